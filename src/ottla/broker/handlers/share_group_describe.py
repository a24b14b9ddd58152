"""ShareGroupDescribe (KIP-932): epochs, members and assignments of share groups."""

from __future__ import annotations

from functools import partial

from ottla.broker.authorized_operations import group_operations
from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.consumer_group import Assignment
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import Refused
from ottla.coordinator.share_group import ShareGroup
from ottla.coordinator.share_groups import ASSIGNOR, ShareGroups
from ottla.wire.api import share_group_describe as api
from ottla.wire.api.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: ShareGroupDescribeRequest, context: Context
) -> ShareGroupDescribeResponse | Pending:
    if not request.group_ids:
        return ShareGroupDescribeResponse()
    pending = Pending()

    def respond(groups: list[DescribedGroup]) -> None:
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = group_operations(context, group.group_id)
        pending.resolve(ShareGroupDescribeResponse(groups=groups))

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
    shares = coordinator.shard.shares

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            answer = described(shares.known_group(group_id), shares)
        except Refused as refused:
            answer = nothing(group_id, refused.error)
            answer.error_message = refused.message
        effects.reply(part, answer)

    coordinator.run(decide)


def described(group: ShareGroup, shares: ShareGroups) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[
            api.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.topic_names),
                assignment=shown(member.assigned, shares),
            )
            for member in group.members.values()
        ],
    )


def shown(assignment: Assignment, shares: ShareGroups) -> api.Assignment:
    """Topics that have been deleted are left out."""
    names = ((topic_id, shares.topics.name_of(topic_id)) for topic_id in assignment)
    return api.Assignment(
        topic_partitions=[
            api.TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=sorted(assignment[topic_id])
            )
            for topic_id, name in names
            if name is not None
        ]
    )


def nothing(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)


def failure(
    request: ShareGroupDescribeRequest, error_code: ErrorCode, context: Context
) -> ShareGroupDescribeResponse:
    """The same error for every group."""
    return ShareGroupDescribeResponse(
        groups=[nothing(each, error_code) for each in request.group_ids]
    )
