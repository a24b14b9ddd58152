"""Verification of transactional writes with the coordinator, before their first batch is appended.

KIP-890. A batch of a transaction that its coordinator does not know would never get a marker, and
would stop every reader of committed records for good; and a batch that was under way when its
transaction ended would become part of the next one. So the leader of a partition sends
AddPartitionsToTxn to the coordinator before a transaction begins there: for a classic client to
verify that the partition was added, for one of `transaction.version` 2 to add it.

While the request is under way the partition has a guard for the producer. A marker that is written
meanwhile removes the guard, and the response is then ignored: it was about a transaction that has
ended. So is what was asked before this broker led the partition in its present epoch: another
leader may have written the marker.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.coordinator.effects import Producer
from ottla.coordinator.transaction import TopicPartition
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition

# Guards whose writes never came; beyond this many the oldest are removed.
GUARDS_MAX = 100_000

# From `Peers`: the coordinator's broker is gone, or silent.
NO_ANSWER = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)

Verdicts = dict[TopicPartition, ErrorCode]


class Operation(Enum):
    """What is sent to the coordinator for a client's version, which also decides on errors."""

    VERIFY_OLD_ERRORS = 0
    VERIFY = 1
    ADD = 2


class Guard:
    """A first write that is being verified."""

    __slots__ = ("adds", "epoch", "leader_epoch", "lowest_sequence")

    def __init__(self, epoch: int, leader_epoch: int, sequence: int, adds: bool) -> None:
        self.epoch = epoch
        self.leader_epoch = leader_epoch
        self.lowest_sequence = sequence
        self.adds = adds


class Verification:
    """The guards of this broker's partitions, and the requests to coordinators."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._guards: dict[tuple[Partition, int], Guard] = {}

    def needed(self, operation: Operation) -> bool:
        """Adding is always needed; merely verifying can be switched off."""
        if operation is Operation.ADD:
            return True
        return self._broker.settings.flag("transaction.partition.verification.enable")

    def start(
        self, partition: Partition, producer: Producer, sequence: int, operation: Operation
    ) -> Guard | ErrorCode | None:
        """Guard the partition until the producer begins here; None when it has begun already."""
        if producer.producer_id < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        known = partition.producers.get(producer.producer_id)
        if known is not None:
            if producer.producer_epoch < known.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if known.transaction_first_offset >= 0 and producer.producer_epoch == known.epoch:
                return None
        key = (partition, producer.producer_id)
        guard = self._guards.get(key)
        epochs = producer.producer_epoch, partition.leader_epoch
        if guard is None or (guard.epoch, guard.leader_epoch) != epochs:
            adds = operation is Operation.ADD
            guard = self._guards[key] = Guard(*epochs, sequence, adds)
            if len(self._guards) > GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
        elif sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def check(
        self, partition: Partition, producer_id: int, guard: Guard, sequence: int
    ) -> ErrorCode:
        """Before the append: NONE if the response was about the transaction under way."""
        if self._guards.get((partition, producer_id)) is not guard:
            return ErrorCode.INVALID_TXN_STATE
        if guard.leader_epoch != partition.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if sequence > guard.lowest_sequence:
            # An earlier batch of this transaction failed: this one must not take its place.
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if guard.adds and sequence > 0:
            known = partition.producers.get(producer_id)
            if known is None or not known.batches:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    def began(self, partition: Partition, producer_id: int) -> None:
        """The write is appended: from now on the log knows the transaction."""
        self._guards.pop((partition, producer_id), None)

    def marker_written(self, partition: Partition, producer_id: int) -> None:
        """The producer's transaction has ended here."""
        self._guards.pop((partition, producer_id), None)

    def ask(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        operation: Operation,
        then: Callable[[Verdicts], object],
    ) -> None:
        """Ask the coordinator; `then` gets an error, or NONE, for every partition, maybe later."""
        if operation is not Operation.ADD:
            self._ask_once(transactional_id, producer, partitions, operation, then)
            return
        retry_ms = self._broker.settings.integer("add.partitions.to.txn.retry.backoff.max.ms")
        until_s = self._broker.clock.monotonic() + retry_ms / 1000
        self._ask_until(until_s, transactional_id, producer, partitions, operation, then)

    def _ask_until(
        self,
        until_s: float,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        operation: Operation,
        then: Callable[[Verdicts], object],
    ) -> None:
        """Ask, and again while the markers of the transaction before are being written."""
        clock, settings = self._broker.clock, self._broker.settings
        question = (transactional_id, producer, partitions, operation)

        def judge(verdicts: Verdicts) -> None:
            busy = ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()
            if busy and clock.monotonic() < until_s:
                pause_s = settings.integer("add.partitions.to.txn.retry.backoff.ms") / 1000
                clock.call_later(pause_s, self._ask_until, until_s, *question, then)
            else:
                then(verdicts)

        self._ask_once(*question, judge)

    def _ask_once(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        operation: Operation,
        then: Callable[[Verdicts], object],
    ) -> None:
        def answered(response: Any) -> None:
            errors = errors_of(response, partitions)
            then({place: for_writers(error, operation) for place, error in errors.items()})

        node_id = self._broker.coordinators.transactions.leader_for(transactional_id)
        if node_id is None:
            answered(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            request = request_of(transactional_id, producer, partitions, operation)
            self._broker.peers.send(node_id, request, answered)


def request_of(
    transactional_id: str,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    operation: Operation,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                verify_only=operation is not Operation.ADD,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            )
        ]
    )


def errors_of(
    response: AddPartitionsToTxnResponse | ErrorCode, partitions: frozenset[TopicPartition]
) -> Verdicts:
    """The error of each partition; one for all if there was no response or none for them."""
    if response in NO_ANSWER:
        # Kafka's error for a coordinator that is not reached: those who write map it further.
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
    if isinstance(response, ErrorCode):
        return dict.fromkeys(partitions, response)
    if response.error_code:
        return dict.fromkeys(partitions, ErrorCode(response.error_code))
    found = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    for result in response.results_by_transaction:
        for topic in result.topic_results:
            for each in topic.results_by_partition:
                found[topic.name, each.partition_index] = ErrorCode(each.partition_error_code)
    return found


def for_writers(error: ErrorCode, operation: Operation) -> ErrorCode:
    """A coordinator's error as the APIs that write records have it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY_OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return error
