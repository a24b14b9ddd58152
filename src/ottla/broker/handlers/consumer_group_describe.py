"""ConsumerGroupDescribe (KIP-848): epochs, members and assignments of consumer groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from ottla.broker.authorized_operations import group_operations
from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_groups import ConsumerGroups
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import Refused
from ottla.wire.api.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.wire.errors import ErrorCode

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def handle(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse | Pending:
    if not request.group_ids:
        return ConsumerGroupDescribeResponse()
    pending = Pending()

    def respond(groups: list[DescribedGroup]) -> None:
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = group_operations(context, group.group_id)
        pending.resolve(ConsumerGroupDescribeResponse(groups=groups))

    gather = Gather(len(request.group_ids), respond)
    for number, group_id in enumerate(request.group_ids):
        describe_one(group_id, context, gather.part(number, partial(nothing, group_id)))
    return pending


def describe_one(group_id: str, context: Context, part: Part) -> None:
    if not group_id:
        part.fail(ErrorCode.INVALID_GROUP_ID)
        return
    coordinator = context.broker.coordinators.groups.coordinator_for(group_id)
    if isinstance(coordinator, ErrorCode):
        part.fail(coordinator)
        return
    consumers = coordinator.shard.consumers

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            answer = described(consumers.known_group(group_id), consumers)
        except Refused as refused:
            answer = nothing(group_id, refused.error)
            answer.error_message = refused.message
        effects.reply(part, answer)

    coordinator.run(decide)


def described(group: ConsumerGroup, consumers: ConsumerGroups) -> DescribedGroup:
    preferred = max(group.assignor_counts, key=group.assignor_counts.__getitem__, default=None)
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred or consumers.default_assignor,
        members=[described_member(each, group, consumers) for each in group.members.values()],
    )


def described_member(
    member: ConsumerMember, group: ConsumerGroup, consumers: ConsumerGroups
) -> Member:
    """What it must give up counts as assigned: it is responsible for it until it has."""
    has: dict[bytes, set[int]] = {}
    for assignment in (member.assigned, member.pending_revocation):
        for topic_id, epochs in assignment.items():
            has.setdefault(topic_id, set()).update(epochs)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.pattern,
        assignment=shown(has, consumers),
        target_assignment=shown(group.targets.get(member.member_id, {}), consumers),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def shown(assignment: Mapping[bytes, Collection[int]], consumers: ConsumerGroups) -> Assignment:
    """Topics that have been deleted are left out."""
    names = ((topic_id, consumers.topics.name_of(topic_id)) for topic_id in assignment)
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(assignment[topic_id])
            )
            for topic_id, name in names
            if name is not None
        ]
    )


def nothing(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)


def failure(
    request: ConsumerGroupDescribeRequest, error_code: ErrorCode, context: Context
) -> ConsumerGroupDescribeResponse:
    """The same error for every group."""
    return ConsumerGroupDescribeResponse(
        groups=[nothing(each, error_code) for each in request.group_ids]
    )
