"""Heartbeat: restarts a member's session; the response says whether it must join again."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.errors import ErrorCode


def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse | Pending:
    if request.group_id == "":
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        # While loading every member counts as alive: its session starts when loading is complete.
        loading = coordinator is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else coordinator)
    shard = coordinator.shard
    reply = PendingReply(lambda error: HeartbeatResponse(error_code=error))

    def decide(effects: Effects, now_ms: int) -> None:
        effects.reply(reply, HeartbeatResponse(error_code=shard.heartbeat(request, effects)))

    coordinator.run(decide)
    return reply.pending
