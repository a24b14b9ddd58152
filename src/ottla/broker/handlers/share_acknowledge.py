"""ShareAcknowledge (KIP-932): what a member says of the records that it holds."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.new_groups import is_member_id
from ottla.broker.shares.acknowledging import acknowledge, acknowledgements_in
from ottla.broker.shares.answers import leader_hints
from ottla.broker.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place
from ottla.broker.shares.share_partition import Outcome
from ottla.wire.api.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: ShareAcknowledgeRequest, context: Context
) -> ShareAcknowledgeResponse | Pending:
    group_id, member_id = request.group_id, request.member_id
    if group_id is None or member_id is None or not is_member_id(member_id):
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    broker = context.broker
    manager = broker.coordinators.share_manager
    sessions, epoch = manager.sessions, request.share_session_epoch
    error = ErrorCode.NONE
    if epoch == INITIAL_EPOCH:
        error = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    elif epoch == FINAL_EPOCH:
        if sessions.get(group_id, member_id) is None:
            error = ErrorCode.SHARE_SESSION_NOT_FOUND
    else:
        found = sessions.advance(group_id, member_id, epoch)
        if isinstance(found, ErrorCode):
            error = found
    if error:
        return failure(request, error, context)
    pending = Pending()
    lock_ms = manager.configs.lock_ms(group_id)

    def done(outcomes: dict[Place, Outcome]) -> None:
        if epoch == FINAL_EPOCH:
            session = sessions.remove(group_id, member_id)
            if session is not None:
                manager.release(session)
        pending.resolve(respond(outcomes, lock_ms, context))

    acknowledge(
        broker,
        group_id,
        member_id,
        acknowledgements_in(request.topics),
        is_renewal=request.is_renew_ack,
        rights=context.rights,
        then=done,
    )
    return pending


def respond(
    outcomes: dict[Place, Outcome], lock_ms: int, context: Context
) -> ShareAcknowledgeResponse:
    by_topic: dict[bytes, list[PartitionData]] = {}
    hints = leader_hints([(place, outcome.error) for place, outcome in outcomes.items()], context)
    for place, outcome in outcomes.items():
        topic_id, index = place
        leader_id, leader_epoch = hints.leaders.get(place, (0, 0))
        data = PartitionData(
            partition_index=index,
            error_code=outcome.error,
            error_message=outcome.message,
            current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
        )
        by_topic.setdefault(topic_id, []).append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=each)
            for topic_id, each in by_topic.items()
        ],
        node_endpoints=[
            NodeEndpoint(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in hints.nodes
        ],
    )


def failure(
    request: ShareAcknowledgeRequest, error_code: ErrorCode, context: Context
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=error_code)  # as Kafka: without words
