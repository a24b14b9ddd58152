"""Create and delete topics, add partitions, delete records."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import Admin, NewTopic, OffsetSpec, OffsetTimestamp
from ottla.client.errors import error_class
from ottla.client.structs import TopicPartition

from ...access.permissions import Permission
from ...picture import TopicPicture
from ..acting import Action, Asking, Outcome, Preview
from ..formats import count, segment, size
from ..forms import FormError, moment_ms

DELETE_TOPICS_MAX = 100  # at once
CONFIG_LINES_MAX = 200
CLEANUP_POLICIES = ("", "delete", "compact", "compact,delete")


class OnTopic(Action):
    """An action on one topic, which the field `topic` names."""

    def authorize(self, asking: Asking) -> None:
        asking.require(Permission.CHANGE, self.target(asking))

    def target(self, asking: Asking) -> str:
        return asking.fields.one("topic")

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/topics/{segment(self.target(asking))}"

    def form_context(self, asking: Asking) -> dict[str, Any]:
        return {"topic": self.topic(asking)}

    def topic(self, asking: Asking) -> TopicPicture:
        found = asking.picture.topics.get(self.target(asking))
        if found is None:
            raise FormError(f"topic: no {self.target(asking)!r} is known")
        return found


class CreateTopic(Action):
    name = "create-topic"
    template = "create_topic.html"

    def authorize(self, asking: Asking) -> None:
        name = self.target(asking)
        if name:
            asking.require(Permission.CHANGE, name)

    def target(self, asking: Asking) -> str:
        return asking.fields.one("topic")

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/topics"

    def after(self, asking: Asking) -> str:
        name = self.target(asking)
        if name in asking.cluster.picture.topics:
            return f"{asking.base}/topics/{segment(name)}"
        return self.back(asking)

    def form_context(self, asking: Asking) -> dict[str, Any]:
        return {"policies": CLEANUP_POLICIES}

    def wanted(self, asking: Asking) -> NewTopic:
        fields = asking.fields
        name = self.target(asking)
        if not name:
            raise FormError("name: a topic needs one")
        partitions = fields.number("partitions", -1)
        replicas = fields.number("replicas", -1)
        assert partitions is not None
        assert replicas is not None
        configs = config_lines(fields.one("configs"))
        policy = fields.one("policy")
        if policy:
            if policy not in CLEANUP_POLICIES:
                raise FormError(f"cleanup policy: one of {', '.join(CLEANUP_POLICIES[1:])}")
            configs["cleanup.policy"] = policy
        return NewTopic(name, partitions, replicas, topic_configs=configs)

    def plan(self, asking: Asking) -> Preview:
        wanted = self.wanted(asking)
        # The cluster says what it would make of it, or why it would not.
        [told] = asking.admin.create_topics([wanted], validate_only=True)["topics"]
        partitions, replicas = told["num_partitions"], told["replication_factor"]
        rows: list[tuple[object, ...]] = [
            ("partitions", partitions if partitions > 0 else wanted.num_partitions),
            ("replicas of each", replicas if replicas > 0 else wanted.replication_factor),
        ]
        rows += [(name, value) for name, value in wanted.topic_configs.items()]
        warnings = []
        if replicas == 1 and len(asking.picture.brokers) > 1:
            warnings.append("One replica: while its broker is down, the records cannot be read.")
        fields = {
            name: asking.fields.one(name)
            for name in ("topic", "partitions", "replicas", "policy", "configs")
        }
        return Preview(
            f"Create topic {wanted.name}",
            "Create topic",
            [f"A topic {wanted.name} will be made; the cluster has checked that it can be."],
            warnings,
            ("Of the topic", "Value"),
            rows,
            fields,
        )

    def do(self, asking: Asking) -> Outcome:
        wanted = self.wanted(asking)
        asking.admin.create_topics([wanted])
        configs = ", ".join(f"{name}={value}" for name, value in wanted.topic_configs.items())
        return Outcome(
            f"Topic {wanted.name} was created.",
            detail=f"partitions {wanted.num_partitions}, replicas {wanted.replication_factor}"
            + (f", {configs}" if configs else ""),
        )


class DeleteTopics(Action):
    name = "delete-topics"

    def authorize(self, asking: Asking) -> None:
        for name in asking.fields.get("topic", []):
            asking.require(Permission.CHANGE, name)

    def names(self, asking: Asking) -> list[str]:
        names = sorted(set(asking.fields.get("topic", [])))
        if not names:
            raise FormError("Choose a topic first.")
        if len(names) > DELETE_TOPICS_MAX:
            raise FormError(f"topic: at most {DELETE_TOPICS_MAX} at once (got {len(names)})")
        return names

    def target(self, asking: Asking) -> str:
        return ", ".join(sorted(set(asking.fields.get("topic", []))))

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/topics"

    def word(self, asking: Asking) -> str:
        names = self.names(asking)
        return names[0] if len(names) == 1 else f"delete {len(names)} topics"

    def plan(self, asking: Asking) -> Preview:
        names = self.names(asking)
        topics = [asking.picture.topics[name] for name in names if name in asking.picture.topics]
        if not topics:
            raise FormError(f"topic: no {names[0]!r} is known")
        lost = sum(each.records for each in topics)
        warnings = []
        internal = [each.name for each in topics if each.internal]
        if internal:
            warnings.append(f"The cluster itself needs {', '.join(internal)}.")
        readers = {
            group.group_id
            for group in asking.picture.groups.values()
            if group.members and set(group.topics) & set(names)
        }
        if readers:
            shown = ", ".join(sorted(readers)[:5])
            warnings.append(f"{len(readers)} groups read them now: {shown}.")
        what = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics"
        return Preview(
            f"Delete {what}",
            "Delete",
            [f"{count(lost)} records will be lost for good, with the offsets of all groups there."],
            warnings,
            ("Topic", "Partitions", "Records", "Size"),
            [
                (each.name, len(each.partitions), count(each.records), size(each.size_bytes))
                for each in topics
            ],
            {"topic": names},
            self.word(asking),
        )

    def do(self, asking: Asking) -> Outcome:
        names = self.names(asking)
        told = asking.admin.delete_topics(names, raise_errors=False)["topics"]
        failed = [
            f"{each['name']}: {each['error_message'] or error_text(each['error_code'])}"
            for each in told
            if each["error_code"]
        ]
        if failed:
            done = len(names) - len(failed)
            return Outcome(f"{done} of {len(names)} were deleted. {'; '.join(failed)}", good=False)
        what = f"Topic {names[0]} was" if len(names) == 1 else f"{len(names)} topics were"
        return Outcome(f"{what} deleted.")


class AddPartitions(OnTopic):
    name = "add-partitions"
    template = "add_partitions.html"

    def total(self, asking: Asking) -> int:
        total = asking.fields.number("total")
        if total is None:
            raise FormError("partitions: how many there shall be")
        return total

    def plan(self, asking: Asking) -> Preview:
        topic, total = self.topic(asking), self.total(asking)
        asking.admin.create_partitions({topic.name: total}, validate_only=True)
        return Preview(
            f"Add partitions to {topic.name}",
            "Add partitions",
            ["The new partitions are empty; no record moves."],
            [
                "Partitions cannot be taken away again.",
                "Records of a key may come to another partition than before, out of order.",
            ],
            ("", "Now", "Then"),
            [("partitions", len(topic.partitions), total)],
            {"topic": topic.name, "total": total},
        )

    def do(self, asking: Asking) -> Outcome:
        name, total = self.target(asking), self.total(asking)
        asking.admin.create_partitions({name: total})
        return Outcome(f"Topic {name} has {total} partitions now.")


class Truncate(OnTopic):
    """Deletes the oldest records (KIP-107); what the preview found is what is sent."""

    name = "truncate"
    template = "truncate.html"

    def word(self, asking: Asking) -> str:
        return self.target(asking)

    def plan(self, asking: Asking) -> Preview:
        topic = self.topic(asking)
        offsets = self.found(asking, topic)
        rows, lost = [], 0
        for each in topic.partitions:
            if each.partition not in offsets:
                continue
            start, end = each.start_offset, each.end_offset
            until = offsets[each.partition]
            gone = max(0, until - start) if start is not None else 0
            lost += gone
            rows.append((each.partition, count(start), count(until), count(gone), count(end)))
        return Preview(
            f"Delete records of {topic.name}",
            "Delete records",
            [f"{count(lost)} records will be lost for good; groups that stand there go on after."],
            ["A compacted topic does not allow it."] if not rows else [],
            ("Partition", "First offset now", "First offset then", "Records lost", "End offset"),
            rows,
            {
                "topic": topic.name,
                "offsets": ",".join(f"{index}:{at}" for index, at in offsets.items()),
            },
            topic.name,
            possible=bool(rows),
        )

    def found(self, asking: Asking, topic: TopicPicture) -> dict[int, int]:
        """The new first offset of each partition that the form means."""
        fields = asking.fields
        only = fields.number("partition")
        indexes = [each.partition for each in topic.partitions if only in (None, each.partition)]
        if not indexes:
            raise FormError(f"partition: from 0 to {len(topic.partitions) - 1} (got {only})")
        how = fields.one("until", "all")
        last = ends_of(asking.admin, topic.name, indexes, OffsetSpec.LATEST)
        if how == "all":
            return last
        if how == "time":
            at = OffsetTimestamp(moment_ms(fields.one("time")))
            found = ends_of(asking.admin, topic.name, indexes, at)
            return {index: at if at >= 0 else last[index] for index, at in found.items()}
        offset = fields.number("offset")
        if offset is None or offset < 0:
            raise FormError("offset: 0 or more")
        return {index: min(offset, last[index]) for index in indexes}

    def do(self, asking: Asking) -> Outcome:
        name = self.target(asking)
        offsets = offsets_field(asking.fields.one("offsets"))
        asking.admin.delete_records(
            {TopicPartition(name, index): at for index, at in offsets.items()}
        )
        return Outcome(
            f"The records of {name} before these offsets are deleted.",
            detail=f"before {asking.fields.one('offsets')}",
        )


def ends_of(
    admin: Admin, topic: str, indexes: list[int], spec: OffsetSpec | OffsetTimestamp
) -> dict[int, int]:
    asked = {TopicPartition(topic, index): spec for index in indexes}
    found = admin.list_partition_offsets(asked)
    return {at.partition: each.offset for at, each in found.items()}


def offsets_field(text: str) -> dict[int, int]:
    """`0:17,1:4`, as a preview wrote it."""
    try:
        pairs = [each.split(":") for each in text.split(",")]
        return {int(index): int(offset) for index, offset in pairs}
    except ValueError:
        raise FormError("offsets: partition:offset,… as the preview has them") from None


def config_lines(text: str) -> dict[str, str]:
    """`name=value` lines."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise FormError(f"configs: name=value in each line (got {line.strip()[:80]!r})")
        found[name.strip()] = value.strip()
    if len(found) > CONFIG_LINES_MAX:
        raise FormError(f"configs: at most {CONFIG_LINES_MAX} (got {len(found)})")
    return found


def error_text(code: int) -> str:
    return error_class(code).description


ACTIONS: tuple[Action, ...] = (CreateTopic(), DeleteTopics(), AddPartitions(), Truncate())
