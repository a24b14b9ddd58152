"""Groups as they are shown: rows of offsets and lag, of members, of state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin

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


class MemberRow(NamedTuple):
    """One member and what it has."""

    group: str
    consumer_id: str
    instance_id: str
    host: str
    client_id: str
    assignment: list[TopicPartition]


class GroupState(NamedTuple):
    """A group as a whole."""

    group: str
    coordinator: str
    strategy: str
    state: str
    member_count: int


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


def described(admin: Admin, group_id: str) -> dict[str, Any]:
    """The group; raises GroupIdNotFoundError when there is none."""
    from ottla.client.errors import GroupIdNotFoundError

    found = admin.describe_groups([group_id])[group_id]
    if found["error"] is not None or found["group_state"] == "Dead":
        raise GroupIdNotFoundError(f"Group {group_id} not found.")
    return found


def member_rows(group_id: str, group: dict[str, Any]) -> list[MemberRow]:
    rows = []
    for member in group["members"]:
        assigned = member["member_assignment"]
        partitions = [
            TopicPartition(each["topic"], index)
            for each in (assigned["assigned_partitions"] if isinstance(assigned, dict) else ())
            for index in each["partitions"]
        ]
        rows.append(
            MemberRow(
                group_id,
                member["member_id"],
                member["group_instance_id"] or "",
                member["client_host"],
                member["client_id"],
                sorted(partitions),
            )
        )
    return rows


def offset_rows(admin: Admin, group_id: str, group: dict[str, Any]) -> list[OffsetRow]:
    """Assigned partitions by member, the busiest first; then those that nobody reads."""
    committed = admin.list_group_offsets(group_id)[group_id]
    members = [row for row in member_rows(group_id, group) if row.assignment]
    assigned = {each for row in members for each in row.assignment}
    ends = end_offsets(admin, {*assigned, *committed})
    rows = []
    for row in sorted(members, key=lambda row: -len(row.assignment)):
        for each in row.assignment:
            who = (row.consumer_id, row.host, row.client_id)
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


def state_of(admin: Admin, group_id: str, group: dict[str, Any]) -> GroupState:
    client = admin._client
    node_id = client.wait(client.coordinator(group_id))
    broker = client.cluster.brokers[node_id]
    return GroupState(
        group_id,
        f"{broker.host}:{broker.port}  ({node_id})",
        group["protocol_data"] or "-",
        group["group_state"],
        len(group["members"]),
    )
