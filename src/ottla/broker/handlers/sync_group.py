"""SyncGroup: answered with the member's assignment; the leader's request has the assignments."""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import ErrorCode

PROTOCOL_REQUIRED_FROM = 5


def handle(request: SyncGroupRequest, context: Context) -> SyncGroupResponse | Pending:
    if context.api_version >= PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        # KIP-559: from this version on a member states the protocol that it joined with.
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.group_id == "":
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return SyncGroupResponse(error_code=coordinator)
    reply = PendingReply(lambda error: SyncGroupResponse(error_code=error))
    coordinator.run(partial(coordinator.shard.sync, request, reply))
    return reply.pending
