"""Produce inside a transaction: verification before the first batch of a partition is appended.

For most requests with a transactional id the log already knows the transaction, and they are
appended at once. Otherwise the append waits for the transaction coordinator (verification.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.context import Context, Pending, relay
from ottla.broker.produce_validation import Headers, failed_partition
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

# Older clients do not retry on these; on NOT_ENOUGH_REPLICAS they do, without new metadata.
UNAVAILABLE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Response = ProduceResponse | Pending | None
# The responses for partitions whose records are not appended.
FailedPartitions = Mapping[TopicPartition, PartitionProduceResponse]
Append = Callable[[ProduceRequest, Headers, Context, FailedPartitions], Response]


class FirstBatch(NamedTuple):
    """A batch that may be the first of its transaction in a partition."""

    partition: Partition
    sequence: int
    guard: Guard


class SeveralProducers(Exception):
    """Transactional records of more than one producer in one request."""


def verify(request: ProduceRequest, headers: Headers, context: Context, append: Append) -> Response:
    """Verify the first batches, then append; the response comes later if that takes time."""
    operation = operation_of(context.api_version)
    verification = context.broker.coordinators.verification
    failed: dict[TopicPartition, PartitionProduceResponse] = {}
    if not verification.needed(operation):
        return append(request, headers, context, failed)
    producer = None
    firsts: dict[TopicPartition, FirstBatch] = {}
    for partition, batch_producer, sequence in transactional_batches(request, headers, context):
        if producer is not None and batch_producer != producer:
            raise SeveralProducers
        producer = batch_producer
        guard = verification.start(partition, producer, sequence, operation)
        if isinstance(guard, ErrorCode):
            failed[partition.topic, partition.index] = failed_partition(partition.index, guard)
        elif guard is not None:
            firsts[partition.topic, partition.index] = FirstBatch(partition, sequence, guard)
    if producer is None or not firsts:
        return append(request, headers, context, failed)
    waiting = VerifiedProduce(request, headers, context, append, producer, firsts, failed)
    assert request.transactional_id is not None
    verification.ask(
        request.transactional_id, producer, frozenset(firsts), operation, waiting.answered
    )
    return waiting.outcome()


class VerifiedProduce:
    """One produce request that waits for the coordinator."""

    def __init__(
        self,
        request: ProduceRequest,
        headers: Headers,
        context: Context,
        append: Append,
        producer: Producer,
        firsts: dict[TopicPartition, FirstBatch],
        failed: dict[TopicPartition, PartitionProduceResponse],
    ) -> None:
        self.request = request
        self.headers = headers
        self.context = context
        self.append = append
        self.producer = producer
        self.firsts = firsts
        self.failed = failed
        self.response: list[Response] = []
        self.pending: Pending | None = None

    def answered(self, verdicts: Verdicts) -> None:
        """Append the partitions that the coordinator has no error for."""
        adds = self.context.api_version >= ADDS_FROM
        verification = self.context.broker.coordinators.verification
        producer_id = self.producer.producer_id
        for place, first in self.firsts.items():
            verdict = verdicts[place]
            if verdict:
                self.failed[place] = failed_partition(place[1], *produce_error(verdict, adds))
                continue
            error = verification.check(first.partition, producer_id, first.guard, first.sequence)
            if error:
                start = first.partition.log_start_offset
                self.failed[place] = failed_partition(place[1], error, log_start_offset=start)
        try:
            response = self.append(self.request, self.headers, self.context, self.failed)
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
        """The response, or a pending one: later requests of the connection wait for it."""
        if self.response:
            return self.response[0]
        self.pending = Pending(exclusive=True)
        return self.pending


def transactional_batches(
    request: ProduceRequest, headers: Headers, context: Context
) -> list[tuple[Partition, Producer, int]]:
    """The transactional batches of a request, in partitions that exist."""
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


def produce_error(error: ErrorCode, adds: bool) -> tuple[ErrorCode, str | None]:
    """A coordinator's error as Produce answers it, with its message."""
    if error is ErrorCode.INVALID_TXN_STATE:
        return error, "Partition was not added to the transaction"
    busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds
    if busy or error in UNAVAILABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS, (
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {error.name}"
        )
    return error, None
