"""The GroupMetadata record of a group in `__consumer_offsets`: writing and replaying it.

One record holds a whole generation. Only its replay makes a group Stable, or known after a restart;
a tombstone is a deleted group. While a log is loaded every record
stands for the whole group (`restore`); once the coordinator is active, a record is one that the
group in memory has just decided on, and only its assignment is new (`apply_assignment`): parked
requests and pending members are not part of the record and stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.effects import Record
from ottla.coordinator.group import COMPLETING, EMPTY, STABLE, Group, Member
from ottla.wire.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    write_key,
    write_value,
)

# What Kafka 4.3 writes: version 4 is only written when tagged fields are in use.
VALUE_VERSION = 3


def group_record(
    group: Group, now_ms: int, assignments: Mapping[str, bytes] | None = None
) -> Record:
    """The present group, with these assignments or the members' own."""
    name = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms if group.members else now_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[name] if name is not None else b"",
                assignment=member.assignment if assignments is None else assignments[member_id],
            )
            for member_id, member in group.members.items()
        ],
    )
    return Record(group_key(group.group_id), write_value(value, VALUE_VERSION))


def group_tombstone(group_id: str) -> Record:
    return Record(group_key(group_id), None)


def group_key(group_id: str) -> bytes:
    return write_key(GroupMetadataKey(group=group_id))


def empty_group_record(group: Group, now_ms: int) -> Record:
    """A group that was just created, and has no members yet."""
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=now_ms)
    return Record(group_key(group.group_id), write_value(value, VALUE_VERSION))


def apply_assignment(group: Group, value: GroupMetadataValue) -> None:
    """Replay a record that the group in memory has decided on: its members get assignments."""
    if not value.members:
        return
    assert group.generation_id == value.generation, f"{group}: a record of {value.generation}"
    for stored in value.members:
        member = group.members[stored.member_id]
        member.assignment = stored.assignment
        member.awaiting_sync = None
    if group.state is COMPLETING:
        group.transition(STABLE, value.current_state_timestamp)


def restore(group_id: str, value: GroupMetadataValue) -> Group:
    """The group of a loaded record: Stable if it has members, for whom nothing changes."""
    group = Group(group_id)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.state_since_ms = value.current_state_timestamp
    for stored in value.members:
        member = Member(
            stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            # Version 0 has only one timeout.
            rebalance_timeout_ms=(
                stored.session_timeout if stored.rebalance_timeout < 0 else stored.rebalance_timeout
            ),
            session_timeout_ms=stored.session_timeout,
            protocols={value.protocol or "": stored.subscription},
            assignment=stored.assignment,
        )
        group.add(member)
    group.leader_id = value.leader if group.members else None
    group.state = group.previous_state = STABLE if group.members else EMPTY
    return group
