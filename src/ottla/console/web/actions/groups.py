"""Reset a group's offsets, delete a group."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import Admin, OffsetSpec, OffsetTimestamp
from ottla.client.structs import TopicPartition

from ...access.permissions import Permission
from ...picture import GroupPicture
from ..acting import Action, Asking, Outcome, Preview
from ..formats import count, now_ms, segment
from ..forms import FormError, moment_ms
from .topics import offsets_field

HOW = {
    "earliest": "the first record",
    "latest": "the end",
    "offset": "an offset",
    "time": "a time",
    "ago": "a time ago",
    "shift": "some records forwards or back",
}
UNITS_MS = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
SHIFT_MAX = 1 << 62


class OnGroup(Action):
    def authorize(self, asking: Asking) -> None:
        """One must be allowed to operate all topics of it, also those that one does not see."""
        group = asking.cluster.picture.groups.get(self.target(asking))
        topics = group.topics if group is not None else ()
        for topic in topics:
            asking.require(Permission.OPERATE, topic)
        if not topics:
            asking.require(Permission.OPERATE)

    def target(self, asking: Asking) -> str:
        return asking.fields.one("group")

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/groups/{segment(self.target(asking))}"

    def group(self, asking: Asking) -> GroupPicture:
        found = asking.picture.groups.get(self.target(asking))
        if found is None:
            raise FormError(f"group: no {self.target(asking)!r} is known")
        return found


class ResetGroup(OnGroup):
    """Moves where a group goes on; what the preview found is what is committed."""

    name = "reset-group"
    template = "reset_group.html"

    def authorize(self, asking: Asking) -> None:
        topic = asking.fields.one("topic")
        if topic:
            asking.require(Permission.OPERATE, topic)
        else:
            super().authorize(asking)

    def form_context(self, asking: Asking) -> dict[str, Any]:
        group = self.group(asking)
        topics = sorted(asking.picture.topics) if not group.topics else list(group.topics)
        return {"group": group, "topics": topics, "how": HOW, "units": UNITS_MS}

    def plan(self, asking: Asking) -> Preview:
        group = self.group(asking)
        wanted = self.wanted(asking, group)
        committed = committed_of(asking.admin, group, wanted)
        first = offsets_of(asking.admin, wanted, OffsetSpec.EARLIEST)
        last = offsets_of(asking.admin, wanted, OffsetSpec.LATEST)
        then = self.targets(asking, wanted, committed, first, last)
        rows = []
        for at in sorted(then):
            now = committed.get(at)
            moved = "" if now is None else f"{then[at] - now:+,}"
            rows.append(
                (
                    f"{at.topic}-{at.partition}",
                    count(now),
                    count(then[at]),
                    moved,
                    count(last[at] - then[at]),
                )
            )
        again = sum(max(0, now - then[at]) for at, now in committed.items() if at in then)
        skipped = sum(max(0, then[at] - now) for at, now in committed.items() if at in then)
        busy = bool(group.members)
        warnings = []
        if busy:
            warnings.append(
                f"The group has {len(group.members)} members: Kafka lets offsets be set only when "
                "it has none. Stop its consumers, then come back."
            )
        if group.share:
            warnings.append(
                "What members of the group have processed beyond where it begins is forgotten: it "
                "may come again."
            )
        topics = sorted({at.topic for at in then})
        return Preview(
            f"Reset offsets of {group.group_id}",
            "Reset offsets",
            [f"{count(again)} records will be read again, {count(skipped)} will be skipped."],
            warnings,
            ("Partition", "Committed now", "Then", "Moves by", "Behind then"),
            rows,
            {
                "group": group.group_id,
                "topic": topics[0] if len(topics) == 1 else "",
                "offsets": [
                    f"{topic}/"
                    + ",".join(f"{at.partition}:{then[at]}" for at in then if at.topic == topic)
                    for topic in topics
                ],
            },
            possible=not busy and bool(rows),
        )

    def wanted(self, asking: Asking, group: GroupPicture) -> list[TopicPartition]:
        """The partitions that the form means."""
        only = asking.fields.one("topic")
        partition = asking.fields.number("partition")
        topics = [only] if only else list(group.topics)
        found = [
            TopicPartition(topic, each.partition)
            for topic in topics
            if topic in asking.picture.topics
            for each in asking.picture.topics[topic].partitions
            if partition in (None, each.partition)
        ]
        if not only:
            # Of all topics: where it has been.
            known = {(each.topic, each.partition) for each in group.lags}
            found = [at for at in found if tuple(at) in known]
        if not found:
            raise FormError("topic: the group has no offsets there; choose a topic and partition")
        return found

    def targets(
        self,
        asking: Asking,
        wanted: list[TopicPartition],
        committed: dict[TopicPartition, int],
        first: dict[TopicPartition, int],
        last: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Where each goes on, kept between the first offset and the end."""
        fields = asking.fields
        how = fields.one("to")
        if how == "earliest":
            goal = first
        elif how == "latest":
            goal = last
        elif how in ("time", "ago"):
            goal = self.at_time(asking, wanted, last)
        elif how == "offset":
            offset = fields.number("offset")
            if offset is None or offset < 0:
                raise FormError("offset: 0 or more")
            goal = dict.fromkeys(wanted, offset)
        elif how == "shift":
            by = fields.number("shift")
            if by is None or by == 0 or abs(by) > SHIFT_MAX:
                raise FormError("shift: a number of records, such as -100 or 100")
            # Where nothing is committed there is nothing to shift.
            goal = {at: committed[at] + by for at in wanted if at in committed}
        else:
            raise FormError(f"to: one of {', '.join(HOW)} (got {how!r})")
        return {at: min(max(offset, first[at]), last[at]) for at, offset in goal.items()}

    def at_time(
        self, asking: Asking, wanted: list[TopicPartition], last: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        fields = asking.fields
        if fields.one("to") == "time":
            at_ms = moment_ms(fields.one("time"))
        else:
            amount = fields.number("amount")
            unit = UNITS_MS.get(fields.one("unit", "minutes"))
            if amount is None or amount < 0 or unit is None:
                raise FormError(f"ago: a number of {', '.join(UNITS_MS)}")
            at_ms = max(0, now_ms() - amount * unit)
        found = offsets_of(asking.admin, wanted, OffsetTimestamp(at_ms))
        return {at: offset if offset >= 0 else last[at] for at, offset in found.items()}

    def do(self, asking: Asking) -> Outcome:
        group_id = self.target(asking)
        chosen: dict[TopicPartition, int] = {}
        for text in asking.fields.get("offsets", []):
            topic, slash, offsets = text.rpartition("/")
            if not slash:
                raise FormError("offsets: topic/partition:offset,… as the preview has them")
            asking.require(Permission.OPERATE, topic)
            for index, offset in offsets_field(offsets).items():
                chosen[TopicPartition(topic, index)] = offset
        if not chosen:
            raise FormError("offsets: none")
        known = asking.picture.groups.get(group_id)
        if known is not None and known.share:
            told = asking.admin.alter_share_group_offsets(group_id, chosen)
        else:
            told = asking.admin.alter_group_offsets(group_id, chosen)
        failed = [f"{at.topic}-{at.partition}: {error()}" for at, error in told.items() if error]
        detail = "; ".join(asking.fields.get("offsets", []))
        if failed:
            text = f"{len(failed)} of {len(chosen)} were not set: {'; '.join(failed[:5])}"
            return Outcome(text, good=False, detail=f"{text} ({detail})")
        return Outcome(f"{group_id} goes on there in {len(chosen)} partitions.", detail=detail)


class DeleteGroup(OnGroup):
    name = "delete-group"

    def word(self, asking: Asking) -> str:
        return self.target(asking)

    def after(self, asking: Asking) -> str:
        return f"{asking.base}/groups"

    def plan(self, asking: Asking) -> Preview:
        group = self.group(asking)
        busy = bool(group.members)
        return Preview(
            f"Delete group {group.group_id}",
            "Delete group",
            ["Its committed offsets are lost: if it comes back, it begins as a new one."],
            [f"The group has {len(group.members)} members; stop its consumers first."]
            if busy
            else [],
            ("Partition", "Committed", "Records behind"),
            [
                (f"{each.topic}-{each.partition}", count(each.committed), count(each.lag))
                for each in group.lags
            ],
            {"group": group.group_id},
            group.group_id,
            possible=not busy,
        )

    def do(self, asking: Asking) -> Outcome:
        group_id = self.target(asking)
        told = asking.admin.delete_groups([group_id])[group_id]
        if told != "OK":
            return Outcome(f"Group {group_id} was not deleted: {told}", good=False)
        return Outcome(f"Group {group_id} was deleted.")


def committed_of(
    admin: Admin, group: GroupPicture, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the group goes on in those of these partitions where it has begun."""
    name = group.group_id
    if group.share:
        begun = admin.list_share_group_offsets({name: wanted})[name]
        return {at: each.start_offset for at, each in begun.items() if each is not None}
    found = admin.list_group_offsets({name: wanted})[name]
    return {TopicPartition(*at): each.offset for at, each in found.items()}


def offsets_of(
    admin: Admin, partitions: list[TopicPartition], spec: OffsetSpec | OffsetTimestamp
) -> dict[TopicPartition, int]:
    found = admin.list_partition_offsets(dict.fromkeys(partitions, spec))
    return {TopicPartition(*at): each.offset for at, each in found.items()}


ACTIONS: tuple[Action, ...] = (ResetGroup(), DeleteGroup())
