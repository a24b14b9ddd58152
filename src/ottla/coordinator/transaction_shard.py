"""The transaction coordinator's shard: the transactional ids of one partition, and what they owe.

    InitProducerId -> Empty -> partitions added -> Ongoing -> EndTxn -> Prepare…: the outcome is set
                   -> markers written to every partition -> Complete…

The steps themselves are in transaction_steps.py. The outcome is decided by the Prepare record, and
the markers are sent only once it is committed. A marker may be late, lost or written twice;
`markers_written` is called when all are committed. What a coordinator had begun when it was lost is
continued by `loaded`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.coordinator import transaction_steps as steps
from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.transaction import (
    COMPLETE,
    EMPTY,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    TopicPartition,
    Transaction,
    transaction_key,
    transaction_of,
)
from ottla.coordinator.transaction_steps import NeedsProducerId, Step, TakeProducerId
from ottla.wire.coordinator_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
    read_key,
    read_value,
)
from ottla.wire.errors import ErrorCode

TIMEOUT_TIMER = ("timeouts",)
EXPIRY_TIMER = ("expiry",)
# What one turn of a timer writes at most; the rest follows in the next turn.
TIMED_BYTES_MAX = 256 * 1024
NEXT_TURN_MS = 1


@dataclass(slots=True, frozen=True)
class TransactionRules:
    """The options of the broker that transactions obey."""

    timeout_check_interval_ms: int = 10_000
    expiration_ms: int = 7 * 24 * 3_600_000
    expiry_check_interval_ms: int = 3_600_000


class Markers(NamedTuple):
    """What is to be written to the partitions of a transaction that has been decided."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class Granted(NamedTuple):
    """An answer to a producer: an error, or the id and epoch it goes on with."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionShard:
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(
        self,
        rules: TransactionRules,
        marker_sender: Reply,
        take_producer_id: TakeProducerId,
        version: int = 2,
    ) -> None:
        self.rules = rules
        # The finalized level of the feature `transaction.version`; it may change at any time.
        self.version = version
        self.transactions: dict[str, Transaction] = {}
        self._marker_sender = marker_sender
        self._take_producer_id = take_producer_id
        self._last_epochs: dict[str, int] = {}
        self._timers_run = False

    # ---- replay ----------------------------------------------------------------------------------

    def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
        found = read_key(TRANSACTION_RECORDS, record.key)
        if found is None or not isinstance(found[0], TransactionLogKey):
            return
        transactional_id = found[0].transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            return
        value = read_value(TransactionLogValue, record.value)
        stored = transaction_of(transactional_id, value)
        # The epoch before is not in the record, as in Kafka: after a failover only the present
        # one counts.
        last_epoch = self._last_epochs.pop(transactional_id, NO_EPOCH)
        if last_epoch != NO_EPOCH:
            stored = replace(stored, last_producer_epoch=last_epoch)
        self.transactions[transactional_id] = stored

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """Nobody writes to `__transaction_state` inside a transaction."""

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """Finish what was decided before: the markers may or may not have been written."""
        for transaction in self.transactions.values():
            if transaction.state in PREPARED:
                self._send_markers(transaction, effects)
        if self.transactions:
            self._set_timers(effects)

    def _set_timers(self, effects: Effects) -> None:
        """From the first name on; a partition without any costs nothing."""
        self._timers_run = True
        effects.set_timer(TIMEOUT_TIMER, self.rules.timeout_check_interval_ms)
        effects.set_timer(EXPIRY_TIMER, self.rules.expiry_check_interval_ms)

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        if key == TIMEOUT_TIMER:
            done = self._abort_timed_out(effects, now_ms)
            interval_ms = self.rules.timeout_check_interval_ms
        else:
            done = self._expire(effects, now_ms)
            interval_ms = self.rules.expiry_check_interval_ms
        effects.set_timer(key, interval_ms if done else NEXT_TURN_MS)

    def parked_replies(self) -> list[Reply]:
        return []

    # ---- what producers ask ----------------------------------------------------------------------

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        effects: Effects,
        now_ms: int,
    ) -> Granted:
        """InitProducerId. May raise `NeedsProducerId`, with nothing done."""
        current = self.transactions.get(transactional_id)
        if current is None:
            current = Transaction(transactional_id, self._take_producer_id())
        step = steps.begin(current, expected, timeout_ms, self._take_producer_id, now_ms)
        if step is ErrorCode.CONCURRENT_TRANSACTIONS and current.state is ONGOING:
            # Fence the producer that left it open, abort, and let the new one ask again.
            self._decide(
                steps.fence(current, self.version, self._take_producer_id, now_ms), effects
            )
        if isinstance(step, ErrorCode):
            return Granted(step)
        self._record(step, effects)
        return Granted(ErrorCode.NONE, step.producer_id, step.producer_epoch)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
        effects: Effects,
        now_ms: int,
    ) -> ErrorCode:
        """The transaction writes to these partitions too, from now on."""
        current = self.transactions.get(transactional_id)
        step = steps.add(current, producer, partitions, client_version, now_ms)
        if isinstance(step, ErrorCode):
            return step
        self._record(step, effects)
        return ErrorCode.NONE

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether these partitions are part of the transaction under way (KIP-890, part 1)."""
        return steps.verify(self.transactions.get(transactional_id), producer, partitions)

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        commit: bool,
        client_version: int,
        effects: Effects,
        now_ms: int,
    ) -> Granted:
        """EndTxn. May raise `NeedsProducerId`, with nothing done."""
        current = self.transactions.get(transactional_id)
        step: Step = steps.end(
            current, producer, commit, client_version, self._take_producer_id, now_ms
        )
        if isinstance(step, Transaction):
            self._decide(step, effects)
            return Granted(ErrorCode.NONE, *steps.granted(step))
        if step or current is None:
            return Granted(step)
        return Granted(ErrorCode.NONE, current.producer_id, current.producer_epoch)

    def markers_written(self, markers: Markers, effects: Effects, now_ms: int) -> None:
        """Every partition has its marker: the transaction is over."""
        current = self.transactions.get(markers.transactional_id)
        if current is None or current.state not in PREPARED or current.producer != markers.producer:
            return  # an echo of markers that were sent twice
        self._record(steps.complete(current, now_ms), effects)

    # ---- what time brings ------------------------------------------------------------------------

    def _abort_timed_out(self, effects: Effects, now_ms: int) -> bool:
        """Abort what is open for too long; False when not all could be done in this turn."""
        size = 0
        for current in self.transactions.values():
            if current.state is not ONGOING:
                continue
            if current.start_timestamp_ms + current.timeout_ms >= now_ms:
                continue
            if size > TIMED_BYTES_MAX:
                return False
            try:
                step = steps.fence(current, self.version, self._take_producer_id, now_ms)
            except NeedsProducerId:
                continue  # in the next round there will be one
            self._decide(step, effects)
            size += size_of(effects.records[-1])
        return True

    def _expire(self, effects: Effects, now_ms: int) -> bool:
        """Forget names that nobody has used for long; False when some are left to do."""
        size = 0
        for current in self.transactions.values():
            idle = current.state is EMPTY or current.state in COMPLETE
            if idle and current.last_update_timestamp_ms + self.rules.expiration_ms <= now_ms:
                if size > TIMED_BYTES_MAX:
                    return False
                effects.records.append(Record(transaction_key(current.transactional_id), None))
                size += size_of(effects.records[-1])
        return True

    # ---- inside ----------------------------------------------------------------------------------

    def _decide(self, transaction: Transaction, effects: Effects) -> None:
        self._record(transaction, effects)
        self._send_markers(transaction, effects)

    def _record(self, transaction: Transaction, effects: Effects) -> None:
        if not self._timers_run:
            self._set_timers(effects)
        self._last_epochs[transaction.transactional_id] = transaction.last_producer_epoch
        effects.records.append(transaction.record(1 if self.version else 0))

    def _send_markers(self, transaction: Transaction, effects: Effects) -> None:
        """Once the decision is committed: until then it may still be lost."""
        effects.reply(
            self._marker_sender,
            Markers(
                transaction.transactional_id,
                transaction.producer,
                transaction.state is PREPARE_COMMIT,
                transaction.partitions,
                transaction.client_version,
            ),
        )


def size_of(record: Record) -> int:
    return len(record.key) + len(record.value or b"") + 32
