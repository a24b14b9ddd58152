"""ConsumerGroupHeartbeat (KIP-848): a member joins, stays, gets its assignment and leaves."""

from __future__ import annotations

from ottla.broker.authorization.patterns import describable_topics
from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.broker.handlers.join_group import client_host
from ottla.broker.new_groups import refuse_invalid, uuid_text
from ottla.coordinator.consumer_heartbeat import Asking
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    Refused,
)
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.errors import ErrorCode

# KIP-1082: from this version on the member brings its own id.
OWN_MEMBER_ID_VERSION = 1
BLANKS = "".join(map(chr, range(33)))  # Java's trim drops what is no more than a space


def handle(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse | Pending:
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if not isinstance(coordinator, ErrorCode):
        consumers = coordinator.shard.consumers
        found = consumers.still_there(request, context.client_id or "", client_host(context))
        if found is not None:
            response, session, timeout_ms = found
            coordinator.set_timer(session, timeout_ms)
            if coordinator.is_settled:
                return response
            effects, reply = Effects(), PendingReply(lambda error: failure(request, error, context))
            effects.reply(reply, response)
            coordinator.execute(effects)
            return reply.pending
    try:
        check(request, context)
    except Refused as refused:
        return failure(request, refused.error, context, refused.message)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    shard = coordinator.shard
    reply = PendingReply(lambda error: failure(request, error, context))
    new_member_id = "" if request.member_id else uuid_text(context.broker.chance.uuid())
    asking = Asking(
        request,
        context.client_id or "",
        client_host(context),
        new_member_id,
        describable_topics(context, "ConsumerGroupHeartbeat"),
    )

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            response = shard.consumers.heartbeat(asking, effects, now_ms)
        except Refused as refused:
            effects.records.clear()
            response = failure(request, refused.error, context, refused.message)
        effects.reply(reply, response)

    coordinator.run(decide)
    return reply.pending


def check(request: ConsumerGroupHeartbeatRequest, context: Context) -> None:
    """What can be refused without looking at the group, in Kafka's order."""
    epoch = request.member_epoch
    if context.api_version >= OWN_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVING_EPOCH:
        refuse_invalid(request.member_id == "", "MemberId can't be empty.")
    refuse_invalid(is_blank(request.group_id), "GroupId can't be empty.")
    refuse_invalid(is_blank(request.instance_id), "InstanceId can't be empty.")
    refuse_invalid(is_blank(request.rack_id), "RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        refuse_invalid(
            request.rebalance_timeout_ms == -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        refuse_invalid(
            request.topic_partitions is None or bool(request.topic_partitions),
            "TopicPartitions must be empty when (re-)joining.",
        )
        refuse_invalid(
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        )
    elif epoch == LEAVING_STATIC_EPOCH:
        refuse_invalid(request.instance_id is None, "InstanceId can't be null.")
    else:
        refuse_invalid(epoch < LEAVING_STATIC_EPOCH, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    known = context.broker.settings.texts("group.consumer.assignors")
    if assignor is not None and assignor not in known:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip(BLANKS)


def failure(
    request: ConsumerGroupHeartbeatRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error_code, error_message=message)
