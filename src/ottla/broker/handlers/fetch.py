"""Fetch (KIP-227 sessions, KIP-320 epochs, KIP-516 topic ids, KIP-951 leader hints).

A fetch is three steps: finding out what is asked for (the request, or the session it refers to),
reading it (`broker/reading.py`), and answering. Between the last two it may wait until `min_bytes`
have come or `max_wait_ms` have passed. Consumers see only what lies below the high watermark, and
with read_committed only below the last stable offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization.fetching import (
    denied_in_session,
    denied_to_follower,
    denied_topics,
)
from ottla.broker.client_quotas import PARTITION_BYTES, Metered
from ottla.broker.context import Context, Pending
from ottla.broker.endpoints import current_leader
from ottla.broker.errors import error_name
from ottla.broker.reading import Answer, Outcome, Reader, is_behind, unknown
from ottla.broker.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    NO_TOPIC_ID,
    CachedPartition,
    FetchSession,
    PartitionKey,
)
from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights
    from ottla.broker.throttle import Throttle
    from ottla.replica.partition import Partition
    from ottla.replica.purgatory import DelayedOperation
    from ottla.seams.clock import Timer

TOPIC_IDS_FROM = 13
REPLICA_STATE_FROM = 15
LEADER_HINTS_FROM = 16
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
# How long a follower waits for records when all there is for it is a high watermark: those of a
# busy partition come within it, and the answer has both. Only reads from followers wait for it.
WATERMARK_WAIT_S = 0.005
# With news of so many partitions a follower is answered at once: it would be read again whenever
# another partition moves, or the follower's next request overtakes this one, as they do while
# thousands of replicas are being opened.
NEWS_AT_ONCE = 50
LEADER_UNKNOWN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(request: FetchRequest, context: Context) -> FetchResponse | Pending:
    """Read what is asked for and answer, now or later."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
    uses_ids = context.api_version >= TOPIC_IDS_FROM
    sessions = context.broker.sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        creates_session = request.session_epoch == INITIAL_EPOCH
        requested = _requested(request, context, uses_ids)
        return Fetch(request, context, requested, None, creates_session).start()
    session = sessions.find(request.session_id, request.session_epoch, uses_ids)
    if not isinstance(session, FetchSession):
        return FetchResponse(error_code=session)
    _update(session, request, context, uses_ids)
    if not session.partitions:
        sessions.close(session.id)
        requested = _requested(request, context, uses_ids)
        return Fetch(request, context, requested, None, False).start()
    sessions.touch(session)
    return Fetch(request, context, [], session, False).start()


def failure(request: FetchRequest, error_code: ErrorCode, context: Context) -> FetchResponse:
    """One error for the whole request, and for those who cannot read that, for each partition."""
    responses = []
    if context.api_version < TOPIC_IDS_FROM:
        for topic in request.topics:
            answers = [unknown(each.partition, error_code) for each in topic.partitions]
            responses.append(FetchableTopicResponse(topic=topic.topic, partitions=answers))
    return FetchResponse(error_code=error_code, session_id=request.session_id, responses=responses)


def _requested(request: FetchRequest, context: Context, uses_ids: bool) -> list[CachedPartition]:
    """The partitions named in the request; of one named twice the last counts."""
    requested: dict[PartitionKey, CachedPartition] = {}
    for topic in request.topics:
        for each in topic.partitions:
            cached = _cached(topic, each, context, uses_ids)
            requested[cached.key] = cached
    return list(requested.values())


def _cached(
    topic: FetchTopic, requested: FetchPartition, context: Context, uses_ids: bool
) -> CachedPartition:
    if uses_ids:
        key = (topic.topic_id, requested.partition)
        name = context.broker.image.topic_name(topic.topic_id)
        return CachedPartition(key, name, topic.topic_id, requested)
    return CachedPartition((topic.topic, requested.partition), topic.topic, NO_TOPIC_ID, requested)


def _update(session: FetchSession, request: FetchRequest, context: Context, uses_ids: bool) -> None:
    """Bring a session up to date with an incremental request."""
    for topic in request.topics:
        name_or_id = topic.topic_id if uses_ids else topic.topic
        for each in topic.partitions:
            known = session.partitions.get((name_or_id, each.partition))
            if known is None:
                session.add(_cached(topic, each, context, uses_ids))
            else:
                session.change(known, each)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.forget((forgotten.topic_id if uses_ids else forgotten.topic, index))


class Fetch:
    """One fetch request under way. In a session it reads what is ready, otherwise everything."""

    __slots__ = (
        "bytes_min",
        "context",
        "creates_session",
        "metered",
        "operation",
        "partitions",
        "pending",
        "reader",
        "session",
        "session_epoch",
        "soon",
        "unknown_count",
        "wait_ms",
    )

    def __init__(
        self,
        request: FetchRequest,
        context: Context,
        partitions: list[CachedPartition],
        session: FetchSession | None,
        creates_session: bool,
    ) -> None:
        self.context = context
        self.partitions = partitions
        self.session = session
        self.session_epoch = session.epoch if session is not None else 0
        self.creates_session = creates_session
        replica_id, replica_epoch = request.replica_id, -1
        if context.api_version >= REPLICA_STATE_FROM:
            replica_id = request.replica_state.replica_id
            replica_epoch = request.replica_state.replica_epoch
        bytes_max = min(request.max_bytes, context.broker.fetch_bytes_max)
        # A follower has a throttle of its own, if any.
        self.metered = context if isinstance(context, Metered) and replica_id < 0 else None
        if self.metered is not None:
            bytes_max = min(bytes_max, self.metered.fetch_bytes_max)
        self.bytes_min = min(request.min_bytes, bytes_max)
        self.wait_ms = request.max_wait_ms
        self.reader = Reader(
            context.broker,
            context.api_version,
            replica_id,
            replica_epoch,
            request.isolation_level == READ_COMMITTED,
            bytes_max,
            session,
            request.rack_id,
            context.peer.listener_name,
        )
        if context.rights is not None:
            self._look_up_rights(context.rights, request)
        self.unknown_count = 0
        self.pending: Pending | None = None
        self.operation: DelayedOperation | None = None
        self.soon: Timer | None = None  # until it is answered with what there is

    def _look_up_rights(self, rights: Rights, request: FetchRequest) -> None:
        reader, session = self.reader, self.session
        if reader.replica_id >= 0:
            reader.denied = denied_to_follower(rights)
            return
        reader.rights = rights
        if session is None:
            reader.denied = denied_topics(self.partitions, rights)
        else:
            reader.denied = denied_in_session(session, rights, request)

    def start(self) -> FetchResponse | Pending:
        """Answer at once if that can be done, otherwise wait for more."""
        outcome = self.reader.read(self._to_read())
        missing_bytes = self.bytes_min - outcome.available_bytes
        if self._is_enough(outcome, missing_bytes) or self.wait_ms <= 0:
            return self.response(outcome)
        if self.session is not None and self.session.moved:
            # A follower's fetch may commit records, and what that leads to may write others.
            outcome = self.reader.read(self._to_read())
            missing_bytes = self.bytes_min - outcome.available_bytes
            if self._is_enough(outcome, missing_bytes):
                return self.response(outcome)
        reader = self.reader
        keys = []
        for cached in self._to_read():
            partition = reader.partition(cached)
            if partition is None:
                continue
            if cached not in outcome.held and partition.lags(cached.fetch_offset, reader.isolation):
                return self.response(outcome)
            keys.append(partition)
        session = self.session
        if not keys and (session is None or not session.watches):
            return self.response(outcome)
        self.unknown_count = len(outcome.erroneous)
        self.pending = pending = Pending()
        purgatory = self.context.broker.purgatory
        self.operation = purgatory.park(
            keys, self.wait_ms, self.attempt, missing_bytes=missing_bytes
        )
        if not pending.done:
            pending.on_cancel(self._cancel)
            if session is not None:
                session.parked = self
            if outcome.follower_is_behind:
                self._answer_soon()
            if outcome.held:
                self._wait_for_quota()
        return pending

    def _is_enough(self, outcome: Outcome, missing_bytes: int) -> bool:
        """Whether what was read is answered without waiting for more."""
        return (
            outcome.must_answer
            or missing_bytes <= 0
            or (
                len(outcome.answers) >= NEWS_AT_ONCE
                and self.session is not None
                and self.session.privileged
            )
        )

    def _to_read(self) -> list[CachedPartition]:
        session = self.session
        if session is None:
            return self.partitions
        return session.in_order() if self.reader.watches else session.all_in_order()

    def attempt(self, expired: bool) -> bool:
        """Something has moved, or time is up: read again and answer if there is enough."""
        pending = self.pending
        assert pending is not None
        try:
            response = self._response_if_due(expired)
        except Exception as error:  # as the dispatcher would answer it at once
            self._leave_session()
            pending.fail(error)
            return True
        if response is None:
            return False
        self._leave_session()
        pending.resolve(response)
        return True

    def _response_if_due(self, expired: bool) -> FetchResponse | None:
        session = self.session
        if session is not None and session.epoch != self.session_epoch:
            # Another request of the same session was served while this one waited. A follower sends
            # one on purpose, when there is a partition that this one lacks (replica/follower.py).
            overtaken = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            error = ErrorCode.NONE if session.privileged else overtaken
            return FetchResponse(error_code=error, session_id=session.id)
        outcome = self.reader.read(self._to_read())
        missing_bytes = self.bytes_min - outcome.available_bytes
        gone = len(outcome.erroneous) > self.unknown_count  # a topic was deleted meanwhile
        if expired or gone or self._is_enough(outcome, missing_bytes):
            return self.response(outcome)
        if self.operation is not None:
            self.operation.missing_bytes = missing_bytes
        if outcome.follower_is_behind:
            self._answer_soon()
        if outcome.held:
            self._wait_for_quota()
        return None

    def _answer_soon(self) -> None:
        if self.soon is None:
            self.soon = self.context.broker.clock.call_later(WATERMARK_WAIT_S, self.end)

    def _wait_for_quota(self) -> None:
        """Look again when the throttle lets more pass."""
        throttle = self.reader.throttle
        assert throttle is not None
        assert self.operation is not None
        self.context.broker.purgatory.watch(self.operation, throttle)
        throttle.wake_later()

    def moved(self, partition: Partition) -> None:
        """A partition of the session is ready that was not: wait for its bytes from now on."""
        assert self.operation is not None
        self.context.broker.purgatory.watch(self.operation, partition)

    def end(self) -> None:
        """The session is closed or has gone on to its next request, or waiting is of no use."""
        assert self.operation is not None
        self.context.broker.purgatory.expire(self.operation)

    def _cancel(self) -> None:
        assert self.operation is not None
        self._leave_session()
        self.context.broker.purgatory.cancel(self.operation)

    def _leave_session(self) -> None:
        if self.soon is not None:
            self.soon.cancel()
            self.soon = None
        session = self.session
        if session is not None and session.parked is self:
            session.parked = None

    def response(self, outcome: Outcome) -> FetchResponse:
        """The answer, with the session brought up to date."""
        answers = outcome.answers
        if self.metered is not None and self._is_throttled(self.metered, outcome):
            # Nothing of it goes out, and the session stays as it is: the client asks again.
            session_id = self.session.id if self.session is not None else NO_SESSION
            return FetchResponse(session_id=session_id)
        self._count(answers)
        if self.reader.throttle is not None:
            self._count_throttled(answers, self.reader.throttle)
        if outcome.erroneous:
            answers += outcome.erroneous
        session = self.session
        session_id = NO_SESSION
        if session is not None:
            session_id = session.id
        elif self.creates_session:
            session_id = self._create_session(answers)
        response = FetchResponse(session_id=session_id, responses=_by_topic(answers, session))
        if outcome.must_answer and self.context.api_version >= LEADER_HINTS_FROM:
            endpoints = _hint_leaders(answers, self.context)
            if self.reader.replica_id < 0:
                response.node_endpoints = endpoints
        return response

    def _is_throttled(self, metered: Metered, outcome: Outcome) -> bool:
        return metered.throttles_fetch(outcome.size_bytes + PARTITION_BYTES * len(outcome.answers))

    def _count(self, answers: list[Answer]) -> None:
        """Count what is sent, per topic; what followers get is counted apart."""
        metrics = self.context.broker.metrics
        to_follower = self.reader.replica_id >= 0
        replicated = self.context.broker.replication.metrics.bytes_out
        for cached, data, size in answers:
            topic = metrics.topic(cached.topic or "")
            topic.fetch_requests.value += 1
            (replicated if to_follower else topic.bytes_out).value += size
            if data.error_code:
                metrics.error("Fetch", error_name(data.error_code))

    def _count_throttled(self, answers: list[Answer], throttle: Throttle) -> None:
        """Count what passes of throttled replicas, those in sync included, as Kafka does."""
        passed = 0
        for cached, _, size in answers:
            if size:
                partition = self.reader.partition(cached)
                if partition is not None and throttle.covers(partition):
                    passed += size
        if passed:
            throttle.record(passed)

    def _create_session(self, answers: list[Answer]) -> int:
        for cached, data, _ in answers:
            cached.answered_high_watermark = data.high_watermark
            cached.answered_log_start_offset = data.log_start_offset
        return self.context.broker.sessions.create(
            (cached for cached, _, _ in answers),
            len(answers),
            uses_ids=self.context.api_version >= TOPIC_IDS_FROM,
            privileged=self.reader.replica_id >= 0,
        )


def _has_news(
    session: FetchSession, cached: CachedPartition, data: PartitionData, size: int
) -> bool:
    """Whether `data` has anything that the session has not answered before; it has after this."""
    news = (
        size > 0
        or data.error_code != 0
        or cached.answered_high_watermark != data.high_watermark
        or cached.answered_log_start_offset != data.log_start_offset
        or data.diverging_epoch.epoch >= 0
        or data.preferred_read_replica >= 0
        or (session.privileged and is_behind(cached, data.high_watermark, data.log_start_offset))
    )
    # After an error the partition is answered again when the error is gone.
    cached.answered_high_watermark = -1 if data.error_code else data.high_watermark
    cached.answered_log_start_offset = data.log_start_offset
    if size:
        session.serve_last(cached)
    return news


def _by_topic(answers: list[Answer], session: FetchSession | None) -> list[FetchableTopicResponse]:
    """Group neighbours of the same topic, in the order in which they were read; in a session
    only those with news.
    """
    responses: list[FetchableTopicResponse] = []
    last: CachedPartition | None = None
    for cached, data, size in answers:
        if session is not None and not _has_news(session, cached, data, size):
            continue
        if last is not None and last.topic == cached.topic and last.topic_id == cached.topic_id:
            responses[-1].partitions.append(data)
        else:
            responses.append(
                FetchableTopicResponse(
                    topic=cached.topic or "", topic_id=cached.topic_id, partitions=[data]
                )
            )
        last = cached
    return responses


def _hint_leaders(answers: list[Answer], context: Context) -> list[NodeEndpoint]:
    """Name the leader and its address to a client that asked another broker (KIP-951)."""
    image = context.broker.image
    endpoints: dict[int, NodeEndpoint] = {}
    for cached, data, _ in answers:
        if data.error_code not in LEADER_UNKNOWN:
            continue
        leader = current_leader(image, cached.topic or "", cached.index, context.peer.listener_name)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        if leader.node is not None:
            node_id, host, port, rack = leader.node
            endpoints[node_id] = NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
    return list(endpoints.values())
