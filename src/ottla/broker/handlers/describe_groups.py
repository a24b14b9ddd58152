"""DescribeGroups: state, members and assignments of groups."""

from __future__ import annotations

from functools import partial

from ottla.broker.authorized_operations import group_operations
from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import DEAD, STABLE, Group, Member
from ottla.wire.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.errors import ErrorCode

NOT_FOUND_FROM = 6


def handle(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse | Pending:
    if not request.groups:
        return DescribeGroupsResponse()
    pending = Pending()

    def respond(groups: list[DescribedGroup]) -> None:
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = group_operations(context, group.group_id)
        pending.resolve(DescribeGroupsResponse(groups=groups))

    gather = Gather(len(request.groups), respond)
    for number, group_id in enumerate(request.groups):
        describe_one(group_id, context, gather.part(number, partial(nothing, group_id)))
    return pending


def describe_one(group_id: str, context: Context, part: Part) -> None:
    coordinator = context.broker.coordinators.groups.coordinator_for(group_id)
    if isinstance(coordinator, ErrorCode):
        part.fail(coordinator)
        return
    shard = coordinator.shard

    def decide(effects: Effects, now_ms: int) -> None:
        group = shard.groups.get(group_id)
        if group is not None:
            answer = describe(group)
        elif group_id in shard.new_groups:
            answer = not_found(group_id, context, f"Group {group_id} is not a classic group.")
        else:
            answer = not_found(group_id, context, f"Group {group_id} not found.")
        effects.reply(part, answer)

    coordinator.run(decide)


def describe(group: Group) -> DescribedGroup:
    stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[described(member, group) for member in group.members.values()],
    )


def described(member: Member, group: Group) -> DescribedGroupMember:
    """One member; its metadata is only shown in a stable group."""
    stable = group.state is STABLE
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(group.protocol_name or "", b"") if stable else b"",
        member_assignment=member.assignment,
    )


def nothing(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)


def failure(
    request: DescribeGroupsRequest, error_code: ErrorCode, context: Context
) -> DescribeGroupsResponse:
    """The same error for every group."""
    return DescribeGroupsResponse(groups=[nothing(each, error_code) for each in request.groups])


def not_found(group_id: str, context: Context, message: str) -> DescribedGroup:
    """KIP-1043: a group that does not exist is an error, and in older versions a dead group."""
    answer = DescribedGroup(group_id=group_id, group_state=DEAD.value)
    if context.api_version >= NOT_FOUND_FROM:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = message
    return answer
