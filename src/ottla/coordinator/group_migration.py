"""A group that changes its protocol, classic or consumer, while it has members (KIP-848).

The first member of the consumer protocol makes a classic group a consumer group, and the classic
members stay in it; when the last one that is not classic goes, it is a classic group again. Both
are one batch of records: the tombstones of the one group, and the records of the other. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_group_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.effects import Record
from ottla.coordinator.group import STABLE, Group, Member
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.group_records import group_record, group_tombstone
from ottla.coordinator.new_group import Refused
from ottla.coordinator.topics import TopicsView
from ottla.wire.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.consumer_protocol import (
    VERSION_MAX,
    ConsumerProtocolAssignment,
    TopicPartition,
    read_assignment,
    read_subscription,
    write_versioned,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import WireError

CONSUMER_PROTOCOL = "consumer"
DISABLED = "DISABLED"
UPGRADES = ("UPGRADE", "BIDIRECTIONAL")
DOWNGRADES = ("DOWNGRADE", "BIDIRECTIONAL")


def policy(options: GroupOptions) -> str:
    return options.text("group.consumer.migration.policy").upper()


# ---- upgrade -------------------------------------------------------------------------------------


def check_upgrade(group: Group, options: GroupOptions) -> None:
    """Whether a classic group with members may become a consumer group."""
    reason = None
    if policy(options) not in UPGRADES:
        reason = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > options.broker("group.consumer.max.size"):
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise no_upgrade(group, reason)


def no_upgrade(group: Group, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def upgraded(group: Group, topics: TopicsView) -> tuple[ConsumerGroup, list[Record]]:
    """The classic group as a consumer group: every member has what the leader last assigned."""
    found = ConsumerGroup(group.group_id)
    epoch = found.epoch = found.assignment_epoch = group.generation_id
    try:
        for member in group.members.values():
            upgraded_member = classic_member(group, member, topics)
            found.put_member(upgraded_member)
            found.targets[member.member_id] = {
                topic_id: frozenset(epochs) for topic_id, epochs in upgraded_member.assigned.items()
            }
    except WireError as problem:
        raise no_upgrade(group, "the embedded consumer protocol is malformed") from problem
    found.metadata_hash = topics.group_hash(found.subscribed_topics())
    group_id, members = found.group_id, found.members
    return found, [
        group_tombstone(group_id),
        *(member_record(group_id, each) for each in members.values()),
        epoch_record(group_id, epoch, found.metadata_hash),
        *(target_record(group_id, each, found.targets[each]) for each in members),
        target_epoch_record(group_id, epoch, 0),
        *(current_record(group_id, each) for each in members.values()),
    ]


def classic_member(group: Group, member: Member, topics: TopicsView) -> ConsumerMember:
    subscription = read_subscription(
        member.protocols[group.protocol_name or group.select_protocol()]
    )
    epoch = group.generation_id
    assigned: dict[bytes, dict[int, int]] = {}
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise no_upgrade(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade",
            )
        for topic_id, partitions in ids_of(assignment.assigned_partitions, topics).items():
            assigned[topic_id] = dict.fromkeys(partitions, epoch)
    return ConsumerMember(
        member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        assigned=assigned,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=bytes(metadata))
                for name, metadata in member.protocols.items()
            ],
        ),
    )


def ids_of(partitions: list[TopicPartition], topics: TopicsView) -> dict[bytes, list[int]]:
    """Partitions by the ids of their topics; those of unknown topics are left out."""
    found = {}
    for each in partitions:
        topic = topics.image.topics.get(each.topic)
        if topic is not None:
            found[topic.id] = list(each.partitions)
    return found


# ---- downgrade -----------------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup,
    gone: Collection[ConsumerMember],
    options: GroupOptions,
    size_max: int,
    *,
    replaced: bool = False,
) -> bool:
    """Whether without these members, or with classic ones in their places, only classic ones are
    left, and the policy allows what follows."""
    left = len(group.members) - len(gone)
    if group.classic_count != left or any(each.classic is not None for each in gone):
        return False
    if replaced:
        left += len(gone)
    return 0 < left <= size_max and policy(options) in DOWNGRADES


def downgraded(
    group: ConsumerGroup,
    gone: Collection[ConsumerMember],
    successor: ConsumerMember | None,
    topics: TopicsView,
    now_ms: int,
) -> tuple[Group, list[Record]]:
    """The consumer group as a classic one; `successor` takes the place of the one that is gone."""
    found = Group(group.group_id)
    found.generation_id = group.epoch
    found.protocol_type = CONSUMER_PROTOCOL
    found.state = found.previous_state = STABLE
    found.state_since_ms = now_ms
    without = {each.member_id for each in gone}
    left = [each for each in group.members.values() if each.member_id not in without]
    targets = dict(group.targets)
    member_ids = [*group.members]
    if successor is not None:
        left.append(successor)
        [replaced] = without
        targets[successor.member_id] = group.targets.get(replaced, {})
        member_ids = [successor.member_id if each == replaced else each for each in member_ids]
    for member in left:
        assert member.classic is not None
        found.add(
            Member(
                member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols={each.name: each.metadata for each in member.classic.supported_protocols},
            )
        )
    found.protocol_name = found.select_protocol()
    for each in found.members.values():
        metadata = each.protocols[found.protocol_name]
        each.assignment = written_assignment(targets.get(each.member_id, {}), metadata, topics)
    return found, [*group_tombstones(group, member_ids), group_record(found, now_ms)]


def written_assignment(
    assignment: Mapping[bytes, Collection[int]], subscription: bytes, topics: TopicsView
) -> bytes:
    """An assignment for a classic member, in the version of its subscription."""
    names = ((topics.name_of(topic_id), each) for topic_id, each in assignment.items())
    version = int.from_bytes(subscription[:2], "big", signed=True)
    return write_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                TopicPartition(topic=name, partitions=sorted(partitions))
                for name, partitions in names
                if name is not None
            ]
        ),
        max(0, min(version, VERSION_MAX)),
    )
