"""Produce inside a transaction: what is asked before the first batch of a partition is appended.

A produce request that names a transactional id comes here first. For most requests the log already
knows the transaction and nothing is asked; the request then goes on as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.context import Context, Pending
from ottla.broker.first_look import Headers
from ottla.broker.verification import Guard, Operation, Verdicts
from ottla.coordinator.effects import Producer
from ottla.coordinator.transaction import TopicPartition
from ottla.wire.api.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from ottla.wire.batch_header import MAGIC, TRANSACTIONAL
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

TOPIC_IDS_FROM = 13
ADDS_FROM = 12
ABORTABLE_FROM = 11

# Older clients do not retry these; NOT_ENOUGH_REPLICAS they do, and without new metadata.
UNAVAILABLE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Response = ProduceResponse | Pending | None
# The answers to partitions whose records are not appended.
Refusals = Mapping[TopicPartition, PartitionProduceResponse]
Append = Callable[[ProduceRequest, Headers, Context, Refusals], Response]


class First(NamedTuple):
    """A batch that may be the first of its transaction in a partition."""

    partition: Partition
    sequence: int
    guard: Guard


class SeveralProducers(Exception):
    """Transactional records of more than one producer in one request."""


def verify(request: ProduceRequest, headers: Headers, context: Context, append: Append) -> Response:
    """Verify what must be verified, then append; the answer comes later if that takes time."""
    operation = operation_of(context.api_version)
    verification = context.broker.coordinators.verification
    refusals: dict[TopicPartition, PartitionProduceResponse] = {}
    if not verification.needed(operation):
        return append(request, headers, context, refusals)
    producer = None
    firsts: dict[TopicPartition, First] = {}
    for partition, batch_producer, sequence in transactional_batches(request, headers, context):
        if producer is not None and batch_producer != producer:
            raise SeveralProducers
        producer = batch_producer
        guard = verification.start(partition, producer, sequence, operation)
        if isinstance(guard, ErrorCode):
            refusals[partition.topic, partition.index] = refused(partition.index, guard)
        elif guard is not None:
            firsts[partition.topic, partition.index] = First(partition, sequence, guard)
    if producer is None or not firsts:
        return append(request, headers, context, refusals)
    question = Question(request, headers, context, append, producer, firsts, refusals)
    assert request.transactional_id is not None
    verification.ask(
        request.transactional_id, producer, frozenset(firsts), operation, question.answered
    )
    return question.outcome()


class Question:
    """One request that waits for the coordinator."""

    def __init__(
        self,
        request: ProduceRequest,
        headers: Headers,
        context: Context,
        append: Append,
        producer: Producer,
        firsts: dict[TopicPartition, First],
        refusals: dict[TopicPartition, PartitionProduceResponse],
    ) -> None:
        self.request = request
        self.headers = headers
        self.context = context
        self.append = append
        self.producer = producer
        self.firsts = firsts
        self.refusals = refusals
        self.response: list[Response] = []
        self.pending: Pending | None = None

    def answered(self, verdicts: Verdicts) -> None:
        """The coordinator has spoken: append what belongs to the transaction."""
        adds = self.context.api_version >= ADDS_FROM
        verification = self.context.broker.coordinators.verification
        producer_id = self.producer.producer_id
        for place, first in self.firsts.items():
            verdict = verdicts[place]
            if verdict:
                self.refusals[place] = refused(place[1], *as_told(verdict, adds))
                continue
            error = verification.check(first.partition, producer_id, first.guard, first.sequence)
            if error:
                start = first.partition.log_start_offset
                self.refusals[place] = refused(place[1], error, log_start_offset=start)
        try:
            response = self.append(self.request, self.headers, self.context, self.refusals)
        except Exception as error:
            if self.pending is None:
                raise
            self.pending.fail(error)
            return
        for first in self.firsts.values():
            known = first.partition.producers.get(producer_id)
            if known is not None and known.transaction_first_offset >= 0:
                verification.began(first.partition, producer_id)
        if self.pending is None:
            self.response.append(response)
        else:
            relay(response, self.pending)

    def outcome(self) -> Response:
        """The response if it is here; what is behind it on the connection waits otherwise."""
        if self.response:
            return self.response[0]
        self.pending = Pending(exclusive=True)
        return self.pending


def relay(response: Response, pending: Pending) -> None:
    """Let `pending` end as `response` does."""
    if not isinstance(response, Pending):
        pending.resolve(response)
        return
    inner = response

    def settled(answer: Any, error: BaseException | None) -> None:
        if error is None:
            pending.resolve(answer)
        else:
            pending.fail(error)

    inner.on_settled(settled)
    pending.on_cancel(inner.cancel)


def transactional_batches(
    request: ProduceRequest, headers: Headers, context: Context
) -> list[tuple[Partition, Producer, int]]:
    """The batches of producers in transactions, in partitions that exist."""
    broker = context.broker
    found = []
    unused = iter(headers)
    for topic in request.topic_data:
        name: str | None = topic.name
        if context.api_version >= TOPIC_IDS_FROM:
            name = broker.image.topic_name(topic.topic_id)
        for data in topic.partition_data:
            header = next(unused)
            if name is None or header is None or header.magic != MAGIC:
                continue
            if not header.attributes & TRANSACTIONAL or header.producer_id < 0:
                continue
            partition = broker.partitions.get(name, data.index)
            if partition is not None:
                producer = Producer(header.producer_id, header.producer_epoch)
                found.append((partition, producer, header.base_sequence))
    return found


def operation_of(version: int) -> Operation:
    if version >= ADDS_FROM:
        return Operation.ADD
    return Operation.VERIFY if version >= ABORTABLE_FROM else Operation.VERIFY_OLD_ERRORS


def refused(
    index: int, error: ErrorCode, message: str | None = None, log_start_offset: int = -1
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        error_message=message,
        log_start_offset=log_start_offset,
    )


def as_told(error: ErrorCode, adds: bool) -> tuple[ErrorCode, str | None]:
    """A coordinator's error as a producer may hear it, and the words for it."""
    if error is ErrorCode.INVALID_TXN_STATE:
        return error, "Partition was not added to the transaction"
    busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds
    if busy or error in UNAVAILABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS, (
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {error.name}"
        )
    return error, None
