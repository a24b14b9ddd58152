"""ShareGroupHeartbeat (KIP-932): a member of a share group joins, stays, gets its partitions,
leaves."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.broker.handlers.consumer_group_heartbeat import is_blank
from ottla.broker.handlers.join_group import client_host
from ottla.broker.new_groups import is_member_id, refuse_invalid
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import JOINING_EPOCH, LEAVING_EPOCH, Refused
from ottla.coordinator.share_groups import ShareAsking
from ottla.wire.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: ShareGroupHeartbeatRequest, context: Context
) -> ShareGroupHeartbeatResponse | Pending:
    if not is_member_id(request.member_id):
        # Kafka says no more than that.
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        check(request)
    except Refused as refused:
        return failure(request, refused.error, context, refused.message)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    shard = coordinator.shard
    reply = PendingReply(lambda error: failure(request, error, context))
    asking = ShareAsking(request, context.client_id or "", client_host(context))

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            response = shard.shares.heartbeat(asking, effects, now_ms)
        except Refused as refused:
            effects.records.clear()
            response = failure(request, refused.error, context, refused.message)
        effects.reply(reply, response)

    coordinator.run(decide)
    return reply.pending


def check(request: ShareGroupHeartbeatRequest) -> None:
    """What can be refused without looking at the group, in Kafka's order."""
    refuse_invalid(is_blank(request.member_id), "MemberId can't be empty.")
    refuse_invalid(is_blank(request.group_id), "GroupId can't be empty.")
    refuse_invalid(is_blank(request.rack_id), "RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH:
        refuse_invalid(
            not request.subscribed_topic_names,
            "SubscribedTopicNames must be set in first request.",
        )
    else:
        refuse_invalid(request.member_epoch < LEAVING_EPOCH, "MemberEpoch is invalid.")


def failure(
    request: ShareGroupHeartbeatRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error_code, error_message=message)
