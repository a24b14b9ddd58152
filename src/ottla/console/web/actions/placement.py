"""Where replicas lie and who leads: reassign, cancel, elect."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import ElectionType
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition

from ...access.permissions import Permission
from ...picture import PartitionPicture, TopicPicture
from ..acting import Action, Asking, Outcome, Preview
from ..formats import count, size
from ..forms import FormError
from ..spreading import Plan, spread
from .topics import OnTopic

ERRORS_SHOWN = 5
UNCLEAN = "unclean"


class Reassign(OnTopic):
    """Moves the replicas of a topic; what the preview planned is what is sent."""

    name = "reassign"
    template = "reassign.html"

    def after(self, asking: Asking) -> str:
        return f"{asking.base}/reassignments"

    def form_context(self, asking: Asking) -> dict[str, Any]:
        topic = self.topic(asking)
        chosen = set(asking.fields.get("broker", [])) or {
            str(each.node_id) for each in asking.picture.brokers if each.up
        }
        return {"topic": topic, "chosen": chosen}

    def planned(self, asking: Asking, topic: TopicPicture) -> Plan:
        known = {each.node_id: each for each in asking.picture.brokers}
        brokers = sorted(
            {int(each) for each in asking.fields.get("broker", []) if each.isdecimal()}
        )
        if not brokers:
            raise FormError("brokers: choose those that shall hold the topic")
        unknown = [each for each in brokers if each not in known]
        if unknown:
            raise FormError(f"brokers: no broker {unknown[0]} is known")
        factor = asking.fields.number("replicas", topic.replication_factor) or 0
        if not 1 <= factor <= len(brokers):
            raise FormError(
                f"replicas: from 1 to {len(brokers)}, one on each of those brokers (got {factor})"
            )
        return spread(topic.partitions, brokers, factor, {at: known[at].rack for at in brokers})

    def plan(self, asking: Asking) -> Preview:
        topic = self.topic(asking)
        then = self.planned(asking, topic)
        rows, moved = [], 0
        for each in topic.partitions:
            if then[each.partition] != each.replicas:
                new = len(set(then[each.partition]) - set(each.replicas))
                moved += new * (each.size_bytes or 0)
                rows.append(
                    (each.partition, named(each.replicas), named(then[each.partition]), new)
                )
        down = {each.node_id for each in asking.picture.brokers if not each.up}
        missing = sorted({at for replicas in then.values() for at in replicas} & down)
        warnings = [
            f"Broker {each} is down: its replicas come when it is back." for each in missing
        ]
        changed = {index: then[index] for index, *_ in rows}
        return Preview(
            f"Reassign {topic.name}",
            "Reassign",
            [
                f"{count(len(rows))} partitions change, {size(moved)} are copied to other brokers.",
                "Records can be written and read meanwhile; Reassignments shows how far it is.",
            ],
            warnings,
            ("Partition", "Replicas now", "Then", "New copies"),
            rows,
            {"topic": topic.name, "plan": plan_text(changed)},
            possible=bool(rows),
        )

    def do(self, asking: Asking) -> Outcome:
        name = self.target(asking)
        plan = plan_of(asking.fields.one("plan"))
        wanted = {TopicPartition(name, index): list(each) for index, each in plan.items()}
        failed = failures(asking.admin.reassignment_errors(wanted))
        if failed:
            return Outcome(
                f"{len(failed)} of {len(plan)} were refused. {shown(failed)}", good=False
            )
        return Outcome(
            f"{len(plan)} partitions of {name} are being reassigned.",
            detail=asking.fields.one("plan"),
        )


class CancelReassignment(OnTopic):
    name = "cancel-reassignment"

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/reassignments"

    def plan(self, asking: Asking) -> Preview:
        name = self.target(asking)
        under_way = [each for each in asking.picture.reassignments if each.topic == name]
        return Preview(
            f"Cancel the reassignment of {name}",
            "Cancel the reassignment",
            ["The replicas that were there before stay; what was copied so far is deleted."],
            [],
            ("Partition", "Would come", "Would go"),
            [(each.partition, named(each.adding), named(each.removing)) for each in under_way],
            {"topic": name, "partition": [str(each.partition) for each in under_way]},
            possible=bool(under_way),
        )

    def do(self, asking: Asking) -> Outcome:
        name = self.target(asking)
        indexes = [int(each) for each in asking.fields.get("partition", []) if each.isdecimal()]
        if not indexes:
            raise FormError("partition: none was given")
        cancelled: dict[TopicPartition, None] = {TopicPartition(name, at): None for at in indexes}
        failed = failures(asking.admin.reassignment_errors(cancelled))
        if failed:
            return Outcome(
                f"{len(failed)} of {len(indexes)} were refused. {shown(failed)}", good=False
            )
        return Outcome(f"The reassignment of {name} was cancelled.")


class ElectLeaders(Action):
    """The preferred replicas of a topic, or of all; unclean, where no replica in sync is left."""

    name = "elect-leaders"

    def authorize(self, asking: Asking) -> None:
        needed = Permission.CHANGE if self.unclean(asking) else Permission.OPERATE
        asking.require(needed, asking.fields.one("topic") or None)

    def unclean(self, asking: Asking) -> bool:
        return asking.fields.one("how") == UNCLEAN

    def target(self, asking: Asking) -> str:
        return asking.fields.one("topic") or "all topics"

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/reassignments"

    def word(self, asking: Asking) -> str:
        return UNCLEAN if self.unclean(asking) else ""

    def wanted(self, asking: Asking) -> list[tuple[str, PartitionPicture]]:
        only = asking.fields.one("topic")
        if only and only not in asking.picture.topics:
            raise FormError(f"topic: no {only!r} is known")
        topics = [asking.picture.topics[only]] if only else asking.picture.topics.values()
        return [
            (topic.name, each)
            for topic in topics
            for each in topic.partitions
            if (each.leader is None if self.unclean(asking) else not_preferred(each))
        ]

    def plan(self, asking: Asking) -> Preview:
        wanted = self.wanted(asking)
        unclean = self.unclean(asking)
        return Preview(
            f"Elect {'any' if unclean else 'preferred'} leaders of {self.target(asking)}",
            "Elect",
            ["Clients find the new leaders by themselves, within a moment."],
            [
                "A replica that was not in sync leads then: records that it has not are lost.",
            ]
            if unclean
            else [],
            ("Partition", "Leader now", "Preferred", "In sync"),
            [
                (
                    f"{topic}-{each.partition}",
                    "none" if each.leader is None else each.leader,
                    each.replicas[0] if each.replicas else "",
                    named(each.isr),
                )
                for topic, each in wanted
            ],
            {"topic": asking.fields.one("topic"), "how": asking.fields.one("how")},
            self.word(asking),
            possible=bool(wanted),
        )

    def do(self, asking: Asking) -> Outcome:
        wanted = [TopicPartition(topic, each.partition) for topic, each in self.wanted(asking)]
        if not wanted:
            raise FormError("There is nothing to elect any more.")
        kind = ElectionType.UNCLEAN if self.unclean(asking) else ElectionType.PREFERRED
        told = asking.admin.elect_leaders(kind, wanted, raise_errors=False)
        failed = {
            at: error
            for at, error in told.items()
            if error is not None and type(error).__name__ != "ElectionNotNeededError"
        }
        if failed:
            return Outcome(
                f"{len(wanted) - len(failed)} of {len(wanted)} were elected. {shown(failed)}",
                good=False,
            )
        return Outcome(f"{count(len(wanted))} leaders were elected.")


def not_preferred(each: PartitionPicture) -> bool:
    """Whether another one than the preferred replica leads, which could."""
    return bool(each.replicas) and each.leader != each.replicas[0] and each.replicas[0] in each.isr


def named(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def failures(told: dict[TopicPartition, KafkaError | None]) -> dict[TopicPartition, KafkaError]:
    return {at: error for at, error in told.items() if error is not None}


def shown(failed: dict[TopicPartition, Any]) -> str:
    some = [f"{at.topic}-{at.partition}: {error}" for at, error in sorted(failed.items())]
    return "; ".join(some[:ERRORS_SHOWN])


def plan_text(plan: Plan) -> str:
    """`0:1-2,1:2-3`, for the form of a preview."""
    return ",".join(f"{index}:{'-'.join(map(str, each))}" for index, each in plan.items())


def plan_of(text: str) -> Plan:
    try:
        pairs = [each.split(":") for each in text.split(",")]
        return {int(index): tuple(map(int, each.split("-"))) for index, each in pairs}
    except ValueError:
        raise FormError("plan: partition:broker-broker,… as the preview has it") from None


ACTIONS: tuple[Action, ...] = (Reassign(), CancelReassignment(), ElectLeaders())
