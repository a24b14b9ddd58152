"""The records of consumer groups of the new protocol in `__consumer_offsets`: writing and replay.

A change of one member is one small record, so that a heartbeat never writes the whole group. Replay
accepts whatever a compacted log may hold: a tombstone whose record is gone, a member's assignment
before its subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.coordinator.consumer_group import (
    NO_EPOCHS,
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    EpochAssignment,
    MemberState,
    ResolvedPattern,
)
from ottla.coordinator.effects import Record
from ottla.coordinator.new_group import LEAVING_EPOCH
from ottla.wire import consumer_group_records as wire
from ottla.wire.coordinator_records import read_value, write_key, write_value
from ottla.wire.schema import Struct

VERSION = 0  # of every value, in Kafka 4.3


def record(key: Struct, value: Struct | None) -> Record:
    return Record(write_key(key), None if value is None else write_value(value, VERSION))


# ---- writing -------------------------------------------------------------------------------------


def member_record(group_id: str, member: ConsumerMember) -> Record:
    """Who the member is and what it subscribes to."""
    return record(
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        wire.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
            subscribed_topic_regex=member.pattern,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return record(
        wire.ConsumerGroupMetadataKey(group_id=group_id),
        wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> Record:
    return record(
        wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    return record(
        wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def current_record(group_id: str, member: ConsumerMember) -> Record:
    """What the member has now, and on the way to which epoch."""
    return record(
        wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=written(member.assigned),
            partitions_pending_revocation=written(member.pending_revocation),
        ),
    )


def written(assignment: EpochAssignment) -> list[wire.TopicPartitions]:
    found = []
    for topic_id, epochs in assignment.items():
        partitions = sorted(epochs)
        found.append(
            wire.TopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[each] for each in partitions],
            )
        )
    return found


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern | None) -> Record:
    """The topics that a pattern has matched; None when nobody subscribes to it any more."""
    return record(
        wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        None
        if resolved is None
        else wire.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def partition_metadata_tombstone(group_id: str) -> Record:
    return record(wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    names = {"group_id": group_id, "member_id": member_id}
    return [
        record(wire.ConsumerGroupCurrentMemberAssignmentKey(**names), None),
        record(wire.ConsumerGroupTargetAssignmentMemberKey(**names), None),
        record(wire.ConsumerGroupMemberMetadataKey(**names), None),
    ]


def group_tombstones(group: ConsumerGroup, member_ids: Iterable[str]) -> list[Record]:
    """The records that delete a group with these members, in an order that can be replayed."""
    group_id = group.group_id
    current, target, subscription = [], [], []
    for member_id in member_ids:
        first, second, third = member_tombstones(group_id, member_id)
        current.append(first)
        target.append(second)
        subscription.append(third)
    return [
        *current,
        *target,
        record(wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *subscription,
        *(pattern_record(group_id, pattern, None) for pattern in group.patterns),
        partition_metadata_tombstone(group_id),
        record(wire.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# ---- replay --------------------------------------------------------------------------------------


def replay_epoch(
    group: ConsumerGroup,
    key: wire.ConsumerGroupMetadataKey,
    value: wire.ConsumerGroupMetadataValue | None,
) -> None:
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def replay_partition_metadata(
    group: ConsumerGroup, key: wire.ConsumerGroupPartitionMetadataKey, value: Struct | None
) -> None:
    group.has_partition_metadata = value is not None


def replay_member(
    group: ConsumerGroup,
    key: wire.ConsumerGroupMemberMetadataKey,
    value: wire.ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    old = group.members.get(key.member_id) or ConsumerMember(key.member_id)
    group.put_member(
        old._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(sorted(set(value.subscribed_topic_names))),
            pattern=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
    )


def replay_target_epoch(
    group: ConsumerGroup,
    key: wire.ConsumerGroupTargetAssignmentMetadataKey,
    value: wire.ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def replay_target(
    group: ConsumerGroup,
    key: wire.ConsumerGroupTargetAssignmentMemberKey,
    value: wire.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {
            each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
        }


def replay_current(
    group: ConsumerGroup,
    key: wire.ConsumerGroupCurrentMemberAssignmentKey,
    value: wire.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    old = group.members.get(key.member_id)
    if value is not None:
        group.put_member(
            (old or ConsumerMember(key.member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState.of(value.state),
                assigned=read_assignment(value.assigned_partitions, value.member_epoch),
                pending_revocation=read_assignment(
                    value.partitions_pending_revocation, value.member_epoch
                ),
            )
        )
    elif old is not None:
        group.put_member(
            old._replace(
                epoch=LEAVING_EPOCH,
                previous_epoch=LEAVING_EPOCH,
                assigned=NO_EPOCHS,
                pending_revocation=NO_EPOCHS,
            )
        )


def read_assignment(found: list[wire.TopicPartitions], member_epoch: int) -> EpochAssignment:
    """Coordinators before 4.3 wrote no epochs: the member's own stands for them, from 0 on."""
    default = max(member_epoch, 0)
    assignment: dict[bytes, dict[int, int]] = {}
    for each in found:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [default] * len(each.partitions)
        assignment[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return assignment


def replay_pattern(
    group: ConsumerGroup,
    key: wire.ConsumerGroupRegularExpressionKey,
    value: wire.ConsumerGroupRegularExpressionValue | None,
) -> None:
    resolved = None
    if value is not None:
        resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
    group.put_pattern(key.regular_expression, resolved)


REPLAY: Mapping[type[Struct], tuple[type[Struct], Callable[[ConsumerGroup, Any, Any], None]]] = {
    wire.ConsumerGroupMetadataKey: (wire.ConsumerGroupMetadataValue, replay_epoch),
    wire.ConsumerGroupPartitionMetadataKey: (
        wire.ConsumerGroupPartitionMetadataValue,
        replay_partition_metadata,
    ),
    wire.ConsumerGroupMemberMetadataKey: (wire.ConsumerGroupMemberMetadataValue, replay_member),
    wire.ConsumerGroupTargetAssignmentMetadataKey: (
        wire.ConsumerGroupTargetAssignmentMetadataValue,
        replay_target_epoch,
    ),
    wire.ConsumerGroupTargetAssignmentMemberKey: (
        wire.ConsumerGroupTargetAssignmentMemberValue,
        replay_target,
    ),
    wire.ConsumerGroupCurrentMemberAssignmentKey: (
        wire.ConsumerGroupCurrentMemberAssignmentValue,
        replay_current,
    ),
    wire.ConsumerGroupRegularExpressionKey: (
        wire.ConsumerGroupRegularExpressionValue,
        replay_pattern,
    ),
}


def replay(group: ConsumerGroup, key: Struct, value: bytes | None) -> None:
    """Apply one record to its group."""
    value_class, apply = REPLAY[type(key)]
    apply(group, key, None if value is None else read_value(value_class, value))
