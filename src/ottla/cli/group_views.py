"""Groups as they are shown: rows of offsets and lag, of members, of state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin, GroupDescription

CONSUMER_PROTOCOLS = ("consumer", "")  # a group of offsets alone has no protocol


class OffsetRow(NamedTuple):
    """Where a group stands in one partition, and who reads it; None is not known."""

    group: str
    topic: str | None
    partition: int | None
    offset: int | None
    leader_epoch: int | None
    end_offset: int | None
    consumer_id: str
    host: str
    client_id: str

    @property
    def lag(self) -> int | None:
        if self.offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.offset


class GroupState(NamedTuple):
    """A group as a whole."""

    group: str
    coordinator: str
    strategy: str
    state: str
    member_count: int
    epoch: int | None
    assignment_epoch: int | None


def consumer_groups(
    admin: Admin, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """The groups of consumers, by name."""
    found = admin.list_groups(states_filter=states, types_filter=types)
    return sorted(
        (
            group
            for group in found
            if group["group_type"].lower() in ("consumer", "classic", "")
            and group["protocol_type"] in CONSUMER_PROTOCOLS
        ),
        key=lambda group: str(group["group_id"]),
    )


def share_groups(admin: Admin, states: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The share groups, by name."""
    found = admin.list_groups(states_filter=states, types_filter=["share"])
    return sorted(
        (group for group in found if group["group_type"].lower() == "share"),
        key=lambda group: str(group["group_id"]),
    )


def described(admin: Admin, group_id: str) -> GroupDescription:
    """A consumer group of either protocol; raises GroupIdNotFoundError when there is none."""
    return admin.describe_consumer_groups([group_id])[group_id]


def state_or_dead(admin: Admin, group_id: str) -> str:
    """The state of a consumer group; "Dead" when there is none."""
    from ottla.client.errors import GroupIdNotFoundError

    try:
        return described(admin, group_id).state
    except GroupIdNotFoundError:
        return "Dead"


def described_share(admin: Admin, group_id: str) -> GroupDescription:
    """A share group; raises GroupIdNotFoundError when there is none."""
    return admin.describe_share_groups([group_id])[group_id]


def offset_rows(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Assigned partitions by member, the busiest first; then those that nobody reads."""
    group_id = group.group_id
    committed = admin.list_group_offsets(group_id)[group_id]
    members = [row for row in group.members if row.assignment]
    assigned = {each for row in members for each in row.assignment}
    ends = end_offsets(admin, {*assigned, *committed})
    rows = []
    for row in sorted(members, key=lambda row: -len(row.assignment)):
        for each in row.assignment:
            who = (row.member_id, row.host, row.client_id)
            rows.append(_offset_row(group_id, each, committed.get(each), ends.get(each), who))
    return rows + [
        _offset_row(group_id, each, committed[each], ends.get(each), ("-", "-", "-"))
        for each in sorted(set(committed) - assigned)
    ]


def _offset_row(
    group_id: str,
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    end_offset: int | None,
    who: tuple[str, str, str],
) -> OffsetRow:
    epoch = None
    if committed is not None and committed.leader_epoch >= 0:
        epoch = committed.leader_epoch
    return OffsetRow(
        group_id,
        partition.topic,
        partition.partition,
        None if committed is None else committed.offset,
        epoch,
        end_offset,
        *who,
    )


def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where these partitions end; those that are gone are left out."""
    from ottla.client.admin import OffsetSpec
    from ottla.client.errors import KafkaError

    wanted = sorted(partitions)
    try:
        found = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        return {each: offset.offset for each, offset in found.items()}
    except KafkaError:
        existing: dict[TopicPartition, int] = {}
        for each in wanted:
            try:
                one = admin.list_partition_offsets({each: OffsetSpec.LATEST}, timeout_ms=2000)
            except KafkaError:
                continue
            existing[each] = one[each].offset
        return existing


def state_of(admin: Admin, group: GroupDescription) -> GroupState:
    client = admin._client
    node_id = client.wait(client.coordinator(group.group_id))
    broker = client.cluster.brokers[node_id]
    return GroupState(
        group.group_id,
        f"{broker.host}:{broker.port}  ({node_id})",
        group.assignor or "-",
        group.state,
        len(group.members),
        group.epoch,
        group.assignment_epoch,
    )


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions under their topics: `orders:0,1;payments:2`."""
    topics: dict[str, list[str]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(str(each.partition))
    return ";".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items())
