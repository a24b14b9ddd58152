"""DescribeGroups: state, members and assignments of groups."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.coordinator.group import DEAD, STABLE, Group, Member
from ottla.wire.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.errors import ErrorCode

NOT_FOUND_FROM = 6
# Bits by AclOperation: read, delete, describe; without an authorizer a client may do them all.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_ASKED = -(1 << 31)


def handle(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    groups = [describe(group_id, context) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def describe(group_id: str, context: Context) -> DescribedGroup:
    if group_id == "":
        return nothing(group_id, ErrorCode.INVALID_GROUP_ID)
    seat = context.broker.coordinators.groups.seat_for(group_id)
    if isinstance(seat, ErrorCode):
        return nothing(group_id, seat)
    group = seat.shard.groups.get(group_id)
    if group is None and group_id in seat.shard.offsets.by_group:
        group = Group(group_id)
    if group is None:
        return not_found(group_id, context)
    stable = group.state is STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[described(member, group) for member in group.members.values()],
    )


def described(member: Member, group: Group) -> DescribedGroupMember:
    """What a member brought and got is only told while it holds."""
    stable = group.state is STABLE
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(group.protocol_name or "", b"") if stable else b"",
        member_assignment=member.assignment if stable else b"",
    )


def nothing(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)


def not_found(group_id: str, context: Context) -> DescribedGroup:
    """KIP-1043: a group that does not exist is an error now; before, it was a dead group."""
    answer = DescribedGroup(group_id=group_id, group_state=DEAD.value)
    if context.api_version >= NOT_FOUND_FROM:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {group_id} not found."
    return answer
