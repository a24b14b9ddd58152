"""ShareFetch (KIP-932): acknowledge records of a share group, then get others to process.

As a fetch it may wait until there is something; nothing is acquired before it answers.
"""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.new_groups import is_member_id
from ottla.broker.shares.acknowledging import acknowledge, acknowledgements_in
from ottla.broker.shares.fetching import Fetching
from ottla.broker.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession
from ottla.broker.shares.share_partition import Outcome
from ottla.wire.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.wire.errors import ErrorCode


def handle(request: ShareFetchRequest, context: Context) -> ShareFetchResponse | Pending:
    group_id, member_id = request.group_id, request.member_id
    if group_id is None or member_id is None or not is_member_id(member_id):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    problem = renewal_problem(request)
    if problem:
        return refusal(problem)
    said = acknowledgements_in(request.topics)
    session = session_of(request, group_id, member_id, bool(said), context)
    if isinstance(session, ErrorCode):
        return failure(request, session, context)
    broker = context.broker
    is_last = request.share_session_epoch == FINAL_EPOCH
    fetching = Fetching(request, group_id, member_id, session, context)

    def acknowledged(outcomes: dict[Place, Outcome]) -> None:
        fetching.acknowledged = outcomes
        if is_last:
            manager = broker.coordinators.share_manager
            manager.sessions.remove(group_id, member_id)
            manager.release(session)
            fetching.answer_nothing()
        elif request.is_renew_ack:
            fetching.answer_nothing()
        else:
            fetching.start()

    acknowledge(
        broker,
        group_id,
        member_id,
        said,
        is_renewal=request.is_renew_ack,
        rights=context.rights,
        then=acknowledged,
    )
    return fetching.pending


def session_of(
    request: ShareFetchRequest, group_id: str, member_id: str, acknowledges: bool, context: Context
) -> ShareSession | ErrorCode:
    """The session that the request begins, goes on with or ends, brought up to date."""
    sessions = context.broker.coordinators.share_manager.sessions
    epoch = request.share_session_epoch
    if epoch == FINAL_EPOCH:
        return sessions.get(group_id, member_id) or ErrorCode.SHARE_SESSION_NOT_FOUND
    found: ShareSession | ErrorCode
    if epoch == INITIAL_EPOCH:
        if acknowledges:
            return ErrorCode.INVALID_REQUEST
        found = sessions.open(group_id, member_id, context.peer)
    else:
        found = sessions.advance(group_id, member_id, epoch)
    if not isinstance(found, ShareSession):
        return found
    added = [
        (topic.topic_id, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    forgotten = [
        (topic.topic_id, each)
        for topic in request.forgotten_topics_data
        for each in topic.partitions
    ]
    return found if found.update(added, forgotten) else ErrorCode.INVALID_REQUEST


def renewal_problem(request: ShareFetchRequest) -> str:
    """A renewal of locks fetches nothing, and must say so."""
    if not request.is_renew_ack:
        return ""
    wrong = [
        name
        for name, value in (
            ("maxBytes", request.max_bytes),
            ("minBytes", request.min_bytes),
            ("maxRecords", request.max_records),
            ("maxWaitMs", request.max_wait_ms),
        )
        if value
    ]
    said = "".join(f"{name} must be set to 0, " for name in wrong)
    return f"{said}if isRenewAck is true." if wrong else ""


def refusal(message: str) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)


def failure(
    request: ShareFetchRequest, error_code: ErrorCode, context: Context
) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error_code)  # as Kafka: without words
