"""LeaveGroup: members go, by their own word or an operator's (KIP-345: several at once)."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_shard import merge
from ottla.coordinator.membership import leave
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
    group = coordinator.shard.groups.get(request.group_id)
    if group is None:
        return respond([unknown(member) for member in members], context)
    reply = PendingReply(lambda error: LeaveGroupResponse(error_code=error))
    rules = coordinator.shard.group_rules

    def decide(effects: Effects, now_ms: int) -> None:
        inner = Effects()
        answers = leave(group, members, rules, inner, now_ms)
        inner.reply(reply, respond(answers, context))
        merge(group, inner, effects)

    coordinator.run(decide)
    return reply.pending


def unknown(member: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )


def respond(answers: list[MemberResponse], context: Context) -> LeaveGroupResponse:
    if context.api_version >= BATCHED_FROM:
        return LeaveGroupResponse(members=answers)
    return LeaveGroupResponse(error_code=answers[0].error_code)
