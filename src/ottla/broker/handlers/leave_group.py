"""LeaveGroup: removes members, by their own request or an operator's (KIP-345: several at once)."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.wire.api.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.wire.errors import ErrorCode

BATCHED_FROM = 3


def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse | Pending:
    if request.group_id == "":
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return LeaveGroupResponse(error_code=coordinator)
    members = request.members
    if context.api_version < BATCHED_FROM:
        members = [MemberIdentity(member_id=request.member_id)]
    shard = coordinator.shard
    reply = PendingReply(lambda error: LeaveGroupResponse(error_code=error))

    def decide(effects: Effects, now_ms: int) -> None:
        results = shard.leave(request.group_id, members, effects, now_ms)
        effects.reply(reply, respond(results, context))

    coordinator.run(decide)
    return reply.pending


def respond(results: list[MemberResponse], context: Context) -> LeaveGroupResponse:
    if context.api_version >= BATCHED_FROM:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)
