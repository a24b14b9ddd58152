"""Whether a write belongs to an open transaction: asked before its first batch is appended.

KIP-890. A batch of a transaction that its coordinator knows nothing about would never get a marker,
and would hold up every reader of committed records for good; and a batch that was under way when
its transaction ended would fall into the next one. So the leader of a partition asks the
coordinator before it begins a transaction there: for a classic client whether the partition was
added, for one of `transaction.version` 2 to add it.

While the question is out, a guard marks the place. A marker that is written meanwhile takes the
guard away, and the answer is then worth nothing: it was about a transaction that is over.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction import EPOCH_BUMP_VERSION, TopicPartition
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition

# Guards whose writes never came; beyond this many the oldest are forgotten.
GUARDS_MAX = 100_000

Verdicts = dict[TopicPartition, ErrorCode]


class Operation(Enum):
    """What a client's version lets us do, and which errors it understands."""

    VERIFY_OLD_ERRORS = 0
    VERIFY = 1
    ADD = 2


class Guard:
    """A first write that is being verified."""

    __slots__ = ("adds", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, adds: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.adds = adds


class Answer:
    """Takes the coordinator's answer for the one who asked."""

    __slots__ = ("_partitions", "_then")

    def __init__(
        self, partitions: frozenset[TopicPartition], then: Callable[[Verdicts], object]
    ) -> None:
        self._partitions = partitions
        self._then = then

    def resolve(self, verdicts: Any) -> None:
        self._then(verdicts)

    def fail(self, error: ErrorCode) -> None:
        self._then(dict.fromkeys(self._partitions, error))


class Verification:
    """The questions that this broker's leaders have out."""

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
        """Mark that the producer is about to begin here; None when it has begun already."""
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
        if guard is None or guard.epoch != producer.producer_epoch:
            adds = operation is Operation.ADD
            guard = self._guards[key] = Guard(producer.producer_epoch, sequence, adds)
            if len(self._guards) > GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
        elif sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def check(
        self, partition: Partition, producer_id: int, guard: Guard, sequence: int
    ) -> ErrorCode:
        """At the moment of the append: is the answer still about the same transaction?"""
        if self._guards.get((partition, producer_id)) is not guard:
            return ErrorCode.INVALID_TXN_STATE
        if sequence > guard.lowest_sequence:
            # An earlier batch of this transaction failed: this one must not take its place.
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if guard.adds and sequence > 0:
            known = partition.producers.get(producer_id)
            if known is None or not known.batches:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    def began(self, partition: Partition, producer_id: int) -> None:
        """The write is in the log: from now on the log itself knows of the transaction."""
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
        """Ask the coordinator; `then` hears an error, or NONE, for every partition, maybe later."""
        if operation is not Operation.ADD:
            self._ask_once(transactional_id, producer, partitions, operation, then)
            return
        clock, settings = self._broker.clock, self._broker.settings
        until_s = (
            clock.monotonic()
            + settings.integer("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        )

        def again() -> None:
            self._ask_once(transactional_id, producer, partitions, operation, judge)

        def judge(verdicts: Verdicts) -> None:
            # The end of the transaction before is still being carried out: that is soon over.
            busy = ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()
            if busy and clock.monotonic() < until_s:
                pause_ms = settings.integer("add.partitions.to.txn.retry.backoff.ms")
                clock.call_later(pause_ms / 1000, again)
            else:
                then(verdicts)

        again()

    def _ask_once(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        operation: Operation,
        then: Callable[[Verdicts], object],
    ) -> None:
        def translate(verdicts: Verdicts) -> None:
            then({place: for_writers(error, operation) for place, error in verdicts.items()})

        answer = Answer(partitions, translate)
        coordinator = self._broker.coordinators.transactions.coordinator_for(transactional_id)
        if not isinstance(coordinator, CoordinatorPartition):
            answer.fail(coordinator)
            return
        shard = coordinator.shard

        def decide(effects: Effects, now_ms: int) -> None:
            if operation is Operation.ADD:
                error = shard.add_partitions(
                    transactional_id, producer, partitions, EPOCH_BUMP_VERSION, effects, now_ms
                )
                verdicts = dict.fromkeys(partitions, error)
            else:
                verdicts = shard.verify_partitions(transactional_id, producer, partitions)
            effects.reply(answer, verdicts)

        coordinator.run(decide)


def for_writers(error: ErrorCode, operation: Operation) -> ErrorCode:
    """A coordinator's error as those who write records know it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY_OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return error
