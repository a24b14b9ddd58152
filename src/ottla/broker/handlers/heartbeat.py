"""Heartbeat: a member says that it lives, and hears whether it must join again."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_shard import merge
from ottla.coordinator.membership import heartbeat
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.errors import ErrorCode


def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse | Pending:
    if request.group_id == "":
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        # While loading, a member is as good as alive: its session starts anew afterwards.
        loading = coordinator is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else coordinator)
    group = coordinator.shard.groups.get(request.group_id)
    if group is None:
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    reply = PendingReply(lambda error: HeartbeatResponse(error_code=error))

    def decide(effects: Effects, now_ms: int) -> None:
        inner = Effects()
        heartbeat(group, request, reply, inner)
        merge(group, inner, effects)

    coordinator.run(decide)
    return reply.pending
