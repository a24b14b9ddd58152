"""The driver's commit: the parcels of all tasks become one transaction, with the ledger in it.

The order is what makes it exactly once. InitProducerId first: it ends what an earlier driver left
open and fences it. Then the ledger is read, stable: it shows whether this batch is committed. Only
then are rows sent, and the ledger's next line with them; EndTxn decides about both. So at every
moment either the batch is committed and in the ledger, or neither.

A producer is kept from batch to batch in the process that commits. If it turns out to be fenced or
its transaction lost (another process of the same driver committed meanwhile, a broker was away for
too long), all is begun again from InitProducerId: reading the ledger again makes that safe.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ottla.client import errors
from ottla.client.producer.raw_producer import RawProducer
from ottla.client.structs import OffsetAndMetadata, TopicPartition

from ..broker_wait import first_line, unanswered
from .connections import send_all, settled
from .faultpoints import reach
from .ledger import REFRESH_AGE_MS, Ledger, Verdict, judge, read
from .options import DELIVERY_TIMEOUT_MS
from .parcels import Parcel, pieces
from .rows import Piece

log = logging.getLogger("ottla.spark")

PROCESS = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
# A transaction may stay open for so long; while it does, read_committed readers wait. A dead
# driver's is ended by its successor at once, or by the cluster after this time.
TRANSACTION_TIMEOUT_S = 60
TRANSACTION_TIMEOUT_S_MAX = 900  # transaction.max.timeout.ms, as clusters have it by default
BYTES_PER_S_MIN = 4 * 1024 * 1024  # slower than this no commit should be
ABORT_TIMEOUT_S = 10.0
PAUSE_S_MAX = 4.0  # between attempts, which go on until the delivery timeout
SESSIONS_MAX = 16  # queries that one process commits for
# Where the ledger of a batch without rows, so without a topic, is kept.
OFFSETS_TOPIC = "__consumer_offsets"

# The producer is of no use any more, yet a new one with the same name may do what it could not.
BEGIN_AGAIN = {
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
    "CONCURRENT_TRANSACTIONS",
    "TRANSACTION_ABORTABLE",
}


class OutcomeUnknown(RuntimeError):
    """EndTxn of a write without a ledger got no answer."""


@dataclass(frozen=True, slots=True)
class Order:
    """A batch to commit; a plain batch write has no number, and no ledger.

    `follows` and `accept` are for `ledger.judge`; `topic` is that of all rows, if there is one.
    A commit that brokers refuse begins again for `retry_s` at most; one that no broker answers for
    `broker_timeout_s`.
    """

    name: str
    properties: Mapping[str, Any]
    batch: int | None = None
    run: str = ""
    follows: bool = False
    accept: bool = False
    topic: str | None = None
    retry_s: float = DELIVERY_TIMEOUT_MS / 1000
    broker_timeout_s: float = 0.0


class Session:
    """A transactional producer in this process, and the ledger as it was read when it began."""

    def __init__(self, order: Order, timeout_s: int) -> None:
        self.name = order.name
        self.timeout_s = timeout_s
        settings = {"transaction.timeout.ms": timeout_s * 1000, **order.properties}
        self.producer = RawProducer(settings, transactional_id=order.name)
        self.ending = False  # EndTxn is sent and not answered
        self.ledger: Ledger | None = None
        self.ledger_topics: set[str] = set()
        try:
            self.producer.init_transactions()
            if order.batch is not None:
                self._read_ledger()
        except BaseException:
            self.producer.close(0)
            raise

    def _read_ledger(self) -> None:
        found = self.producer.committed(self.name)
        self.ledger = read((entry.offset, entry.metadata) for entry in found.values())
        self.ledger_topics = {partition.topic for partition in found}

    def transact(self, parcels: Sequence[Parcel], entry: Ledger | None, topics: set[str]) -> None:
        """Write all of it, or none."""
        producer = self.producer
        producer.begin_transaction()
        try:
            futures = send_all(producer, all_pieces(parcels, producer))
            reach("commit.sent")
            settled(producer, futures)
            if entry is not None:
                self._write_ledger(entry, topics)
            reach("commit.before-end")
        except BaseException:
            with suppress(errors.KafkaError):
                producer.abort_transaction(ABORT_TIMEOUT_S)
            raise
        self.ending = True
        producer.commit_transaction()
        self.ending = False
        reach("commit.after-end")
        if entry is not None:
            self.ledger = entry

    def _write_ledger(self, entry: Ledger, topics: set[str]) -> None:
        """Under the topics of the batch, and under those of a line that must not outlast this."""
        if self.ledger is not None and self.ledger.batch >= entry.batch:
            topics = topics | self.ledger_topics
        line = OffsetAndMetadata(entry.batch, entry.text(), -1)
        self.producer.send_offsets_to_transaction(
            {TopicPartition(topic, 0): line for topic in topics or {OFFSETS_TOPIC}}, self.name
        )
        self.ledger_topics |= topics

    def close(self) -> None:
        with suppress(errors.KafkaError):
            self.producer.close(0)


_sessions: dict[tuple[str, str], Session] = {}


def commit(order: Order, parcels: Sequence[Parcel]) -> bool:
    """Make the batch visible, all of it together; False if it was out already."""
    limits = RetryLimits(order)
    pause_s = 0.0
    while True:
        session = None
        try:
            session = _session(order, sum(parcel.byte_count for parcel in parcels))
            return _commit_once(session, order, parcels)
        except errors.KafkaError as problem:
            ending = session is not None and session.ending
            forget(order)
            if ending and order.batch is None:
                raise OutcomeUnknown(
                    f"the cluster did not say whether the write was committed: {problem}\n"
                    "Try: look into the topic before writing again; ottla.spark.write(df, …, "
                    "query=…, batch=…) keeps a ledger and can be repeated"
                ) from problem
            if not may_help(problem) or limits.passed(problem, time.monotonic() + pause_s):
                raise
            log.warning("commit of %s begins again: %s", order.name, first_line(str(problem)))
        except BaseException:
            forget(order)
            raise
        time.sleep(pause_s)
        pause_s = min(max(0.1, 2 * pause_s), PAUSE_S_MAX)


def _commit_once(session: Session, order: Order, parcels: Sequence[Parcel]) -> bool:
    rows = sum(parcel.rows for parcel in parcels)
    if order.batch is None:
        if rows:
            session.transact(parcels, None, set())
        return True
    now_ms = int(time.time() * 1000)
    ledger = session.ledger
    if not rows:
        if ledger is None or now_ms - ledger.at_ms > REFRESH_AGE_MS:
            _begin_ledger(session, order, now_ms)
        return True
    verdict = judge(
        ledger,
        order.batch,
        order.run,
        follows=order.follows,
        accept=order.accept,
        name=order.name,
    )
    if verdict is Verdict.SKIP:
        log.info("batch %d of %s is out already", order.batch, order.name)
        return False
    topics = {topic for parcel in parcels for topic, _, _, _ in parcel.slices}
    session.transact(parcels, Ledger(order.batch, rows, order.run, now_ms), topics)
    return True


def _begin_ledger(session: Session, order: Order, now_ms: int) -> None:
    """A batch without rows needs no ledger, but the next one should find that there is one."""
    assert order.batch is not None
    last = session.ledger
    batch = order.batch if last is None else max(order.batch, last.batch)
    entry = Ledger(batch, 0, order.run, now_ms)
    topics = {order.topic} if order.topic else session.ledger_topics
    if order.topic:
        session.producer.partitions_for(order.topic)  # makes a topic that nobody has written to yet
    try:
        session.transact([], entry, set(topics))
    except errors.AuthorizationError:
        log.info("no ledger for %s yet: the offsets topic may not be used", order.name)


def all_pieces(parcels: Iterable[Parcel], producer: RawProducer) -> Iterator[Piece]:
    """Everything the tasks made, in the order of the tasks, so of the rows."""
    for parcel in parcels:
        if parcel.staging_topic is None:
            yield from pieces(parcel)
        else:
            from .staging_topic import fetch_pieces

            yield from fetch_pieces(parcel, producer)


def _session(order: Order, byte_count: int) -> Session:
    """The session of this process, if it may stay open long enough for so many bytes."""
    wanted_s = min(TRANSACTION_TIMEOUT_S + byte_count // BYTES_PER_S_MIN, TRANSACTION_TIMEOUT_S_MAX)
    key = _key(order)
    session = _sessions.get(key)
    if session is not None and session.timeout_s < wanted_s:
        forget(order)
        session = None
    if session is None:
        while len(_sessions) >= SESSIONS_MAX:
            _sessions.pop(next(iter(_sessions))).close()
        session = _sessions[key] = Session(order, wanted_s)
    return session


def forget(order: Order) -> None:
    """Let the next commit begin with InitProducerId."""
    session = _sessions.pop(_key(order), None)
    if session is not None:
        session.close()


def _key(order: Order) -> tuple[str, str]:
    return order.name, repr(sorted(order.properties.items()))


def may_help(problem: BaseException | None) -> bool:
    """Whether beginning again may go better."""
    while problem is not None:
        if isinstance(problem, errors.BrokerResponseError) and problem.message in BEGIN_AGAIN:
            return True
        if isinstance(problem, errors.KafkaError) and problem.retriable:
            return True
        problem = problem.__cause__
    return False


class RetryLimits:
    """Until when a commit begins again."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.began = time.monotonic()
        self.refused_since: float | None = None

    def passed(self, problem: errors.KafkaError, at: float) -> bool:
        """Whether it is too late, after this problem. What brokers refuse may be what a broker that
        was away has left behind, so the time for it begins with their first answer."""
        order = self.order
        if unanswered(problem):
            self.refused_since = None
            return at > self.began + max(order.broker_timeout_s, order.retry_s)
        if self.refused_since is None:
            self.refused_since = time.monotonic()
        return at > self.refused_since + order.retry_s
