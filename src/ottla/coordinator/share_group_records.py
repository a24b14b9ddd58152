"""The records of share groups in `__consumer_offsets`: writing and replay (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.coordinator.consumer_group import NOTHING, Assignment
from ottla.coordinator.consumer_group_records import record
from ottla.coordinator.effects import Record
from ottla.coordinator.new_group import LEAVING_EPOCH
from ottla.coordinator.share_group import (
    NO_STATE,
    NamedPartitions,
    ShareGroup,
    ShareMember,
    StatePartitions,
)
from ottla.wire import share_group_records as wire
from ottla.wire.coordinator_records import read_value
from ottla.wire.schema import Struct

# ---- writing -------------------------------------------------------------------------------------


def member_record(group_id: str, member: ShareMember) -> Record:
    return record(
        wire.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        wire.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
        ),
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return record(
        wire.ShareGroupMetadataKey(group_id=group_id),
        wire.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> Record:
    return record(
        wire.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    return record(
        wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def current_record(group_id: str, member: ShareMember) -> Record:
    return record(
        wire.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        wire.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            assigned_partitions=[
                wire.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
            ],
        ),
    )


def state_record(group_id: str, state: StatePartitions) -> Record:
    return record(
        wire.ShareGroupStatePartitionMetadataKey(group_id=group_id),
        wire.ShareGroupStatePartitionMetadataValue(
            initializing_topics=named(state.initializing),
            initialized_topics=named(state.initialized),
            deleting_topics=[
                wire.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in state.deleting.items()
            ],
        ),
    )


def named(topics: Mapping[bytes, NamedPartitions]) -> list[wire.TopicPartitionsInfo]:
    return [
        wire.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions)
        )
        for topic_id, each in topics.items()
    ]


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    names = {"group_id": group_id, "member_id": member_id}
    return [
        record(wire.ShareGroupCurrentMemberAssignmentKey(**names), None),
        record(wire.ShareGroupTargetAssignmentMemberKey(**names), None),
        record(wire.ShareGroupMemberMetadataKey(**names), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[Record]:
    return [
        *(each for member_id in member_ids for each in member_tombstones(group_id, member_id)),
        record(wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        record(wire.ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        record(wire.ShareGroupMetadataKey(group_id=group_id), None),
    ]


# ---- replay --------------------------------------------------------------------------------------


def replay_epoch(
    group: ShareGroup,
    key: wire.ShareGroupMetadataKey,
    value: wire.ShareGroupMetadataValue | None,
) -> None:
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def replay_member(
    group: ShareGroup,
    key: wire.ShareGroupMemberMetadataKey,
    value: wire.ShareGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    old = group.members.get(key.member_id) or ShareMember(key.member_id)
    group.put_member(
        old._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        )
    )


def replay_target_epoch(
    group: ShareGroup,
    key: wire.ShareGroupTargetAssignmentMetadataKey,
    value: wire.ShareGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def replay_target(
    group: ShareGroup,
    key: wire.ShareGroupTargetAssignmentMemberKey,
    value: wire.ShareGroupTargetAssignmentMemberValue | None,
) -> None:
    target = None
    if value is not None:
        target = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
    group.put_target(key.member_id, target)


def replay_current(
    group: ShareGroup,
    key: wire.ShareGroupCurrentMemberAssignmentKey,
    value: wire.ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    old = group.members.get(key.member_id)
    if value is not None:
        group.put_member(
            (old or ShareMember(key.member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned={
                    each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions
                },
            )
        )
    elif old is not None:
        group.put_member(
            old._replace(epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned=NOTHING)
        )


def replay_state(
    group: ShareGroup,
    key: wire.ShareGroupStatePartitionMetadataKey,
    value: wire.ShareGroupStatePartitionMetadataValue | None,
) -> None:
    if value is None:
        group.put_state(NO_STATE)
        return
    group.put_state(
        StatePartitions(
            initializing=read_named(value.initializing_topics),
            initialized=read_named(value.initialized_topics),
            deleting={each.topic_id: each.topic_name for each in value.deleting_topics},
        )
    )


def read_named(found: list[wire.TopicPartitionsInfo]) -> dict[bytes, NamedPartitions]:
    return {
        each.topic_id: NamedPartitions(each.topic_name, frozenset(each.partitions))
        for each in found
    }


REPLAY: Mapping[type[Struct], tuple[type[Struct], Callable[[ShareGroup, Any, Any], None]]] = {
    wire.ShareGroupMetadataKey: (wire.ShareGroupMetadataValue, replay_epoch),
    wire.ShareGroupMemberMetadataKey: (wire.ShareGroupMemberMetadataValue, replay_member),
    wire.ShareGroupTargetAssignmentMetadataKey: (
        wire.ShareGroupTargetAssignmentMetadataValue,
        replay_target_epoch,
    ),
    wire.ShareGroupTargetAssignmentMemberKey: (
        wire.ShareGroupTargetAssignmentMemberValue,
        replay_target,
    ),
    wire.ShareGroupCurrentMemberAssignmentKey: (
        wire.ShareGroupCurrentMemberAssignmentValue,
        replay_current,
    ),
    wire.ShareGroupStatePartitionMetadataKey: (
        wire.ShareGroupStatePartitionMetadataValue,
        replay_state,
    ),
}


def replay(group: ShareGroup, key: Struct, value: bytes | None) -> None:
    """Apply one record to its group."""
    value_class, apply = REPLAY[type(key)]
    apply(group, key, None if value is None else read_value(value_class, value))
