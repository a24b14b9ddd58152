"""SyncGroup: a member asks for its assignment; the leader brings everybody's."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_shard import merge
from ottla.coordinator.rebalance import sync
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import ErrorCode

PROTOCOL_REQUIRED_FROM = 5


def handle(request: SyncGroupRequest, context: Context) -> SyncGroupResponse | Pending:
    if context.api_version >= PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        # KIP-559: from this version on a member says what it thinks was agreed.
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.group_id == "":
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return SyncGroupResponse(error_code=coordinator)
    group = coordinator.shard.groups.get(request.group_id)
    if group is None:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    reply = PendingReply(lambda error: SyncGroupResponse(error_code=error))
    rules = coordinator.shard.group_rules

    def decide(effects: Effects, now_ms: int) -> None:
        inner = Effects()
        sync(group, request, reply, rules, inner, now_ms)
        merge(group, inner, effects)

    coordinator.run(decide)
    return reply.pending
