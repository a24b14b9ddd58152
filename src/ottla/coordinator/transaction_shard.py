"""The transaction coordinator's shard: the transactional ids of one partition, and all decisions.

    InitProducerId -> Empty -> partitions added -> Ongoing -> EndTxn -> Prepare…: the outcome is set
                   -> markers written to every partition -> Complete…

The steps themselves are in transaction_steps.py. The outcome is decided by the Prepare record, and
the markers are sent only once it is committed. A marker may be late, lost or written twice;
`markers_written` is called when all are committed. What a coordinator had begun when it was lost is
continued by `loaded`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
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
from ottla.coordinator.transaction_steps import NEEDS_PRODUCER_ID, Needs, Step
from ottla.wire.coordinator_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
    read_key,
    read_value,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.key_values import KeyValue

TIMEOUT_TIMER = ("timeouts",)
EXPIRY_TIMER = ("expiry",)
# What one expired timer writes at most; the rest follows in the next turn of the loop.
TIMED_BYTES_MAX = 256 * 1024
NEXT_TURN_MS = 1
# Transactional ids that are restored in one turn of the loop when a log has been loaded.
FINISH_SLICE_IDS = 200


@dataclass(slots=True, frozen=True)
class TransactionRules:
    """The broker's options for transactions."""

    timeout_check_interval_ms: int = 10_000
    expiration_ms: int = 7 * 24 * 3_600_000
    expiry_check_interval_ms: int = 3_600_000


class Markers(NamedTuple):
    """The markers of one transaction whose outcome is decided."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class Granted(NamedTuple):
    """The result for a producer: an error, or the id and epoch with which it continues."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionShard:
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(
        self,
        rules: TransactionRules,
        send_markers: Callable[[Markers], object],
        take_producer_id: Callable[[], int | None],
        version: int = 2,
    ) -> None:
        self.rules = rules
        # The finalized level of the feature `transaction.version`; it may change at any time.
        self.version = version
        self.transactions: dict[str, Transaction] = {}
        self._send_markers = send_markers
        self._take_producer_id = take_producer_id
        self._last_epochs: dict[str, int] = {}
        # While loading: the value of each key's last record.
        self._loading: dict[bytes, bytes | None] = {}
        self._timers_run = False

    # ---- replay ----------------------------------------------------------------------------------

    def load(self, records: list[KeyValue]) -> None:
        """Of each transactional id only the last record is kept, undecoded."""
        for key, value, _ in records:
            if key is not None:
                self._loading[key] = value

    def finish_loading(self) -> Iterator[None]:
        while self._loading:
            for _ in range(min(FINISH_SLICE_IDS, len(self._loading))):
                self.replay(Record(*self._loading.popitem()), None, -1)
            yield

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
        """Does nothing: no transaction writes to `__transaction_state`."""

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """Send the markers of every decided transaction: some may not have been written."""
        for transaction in self.transactions.values():
            if transaction.state in PREPARED:
                self._send_after_commit(transaction, effects)
        if self.transactions:
            self._set_timers(effects)

    def _set_timers(self, effects: Effects) -> None:
        """Started with the first transactional id; a partition without any costs nothing."""
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

    # ---- requests --------------------------------------------------------------------------------

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        effects: Effects,
        now_ms: int,
    ) -> Granted | Needs:
        """InitProducerId. `NEEDS_PRODUCER_ID` when no id is available; nothing has changed then."""
        current = self.transactions.get(transactional_id)
        if current is None:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return NEEDS_PRODUCER_ID
            current = Transaction(transactional_id, producer_id)
        known = current
        step = self._step(lambda new: steps.begin(known, expected, timeout_ms, new, now_ms))
        if step is ErrorCode.CONCURRENT_TRANSACTIONS and known.state is ONGOING:
            # Fence the producer that left it open, abort; the new producer retries.
            fenced = self._step(partial(self._fence, known, now_ms))
            if not isinstance(fenced, Transaction):
                return NEEDS_PRODUCER_ID
            self._decide(fenced, effects)
        if isinstance(step, Needs):
            return step
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
        """AddPartitionsToTxn: add these partitions to the transaction."""
        current = self.transactions.get(transactional_id)
        step = steps.add(current, producer, partitions, client_version, now_ms)
        if not isinstance(step, Transaction):
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
    ) -> Granted | Needs:
        """EndTxn. `NEEDS_PRODUCER_ID` when no id is available; nothing has changed then."""
        current = self.transactions.get(transactional_id)
        step = self._step(
            lambda new: steps.end(current, producer, commit, client_version, new, now_ms)
        )
        if isinstance(step, Transaction):
            self._decide(step, effects)
            return Granted(ErrorCode.NONE, *steps.granted(step))
        if isinstance(step, Needs):
            return step
        if step or current is None:
            return Granted(step)
        return Granted(ErrorCode.NONE, current.producer_id, current.producer_epoch)

    def markers_written(self, markers: Markers, effects: Effects, now_ms: int) -> None:
        """Every partition has its marker: complete the transaction."""
        current = self.transactions.get(markers.transactional_id)
        if current is None or current.state not in PREPARED or current.producer != markers.producer:
            return  # the markers were sent twice
        self._record(steps.complete(current, now_ms), effects)

    # ---- timers ----------------------------------------------------------------------------------

    def _abort_timed_out(self, effects: Effects, now_ms: int) -> bool:
        """Abort transactions open for longer than their timeout; False when some are left."""
        size = 0
        for current in self.transactions.values():
            if current.state is not ONGOING:
                continue
            if current.start_timestamp_ms + current.timeout_ms >= now_ms:
                continue
            if size > TIMED_BYTES_MAX:
                return False
            step = self._step(partial(self._fence, current, now_ms))
            if not isinstance(step, Transaction):
                continue  # there is no producer id: retried at the next check
            self._decide(step, effects)
            size += size_of(effects.records[-1])
        return True

    def _expire(self, effects: Effects, now_ms: int) -> bool:
        """Delete transactional ids that have expired; False when some are left."""
        size = 0
        for current in self.transactions.values():
            idle = current.state is EMPTY or current.state in COMPLETE
            if idle and current.last_update_timestamp_ms + self.rules.expiration_ms <= now_ms:
                if size > TIMED_BYTES_MAX:
                    return False
                effects.records.append(Record(transaction_key(current.transactional_id), None))
                size += size_of(effects.records[-1])
        return True

    # ---- helpers ---------------------------------------------------------------------------------

    def _step(self, step: Callable[[int | None], Step]) -> Step:
        """The step's result; it is given a new producer id if it needs one and there is one."""
        outcome = step(None)
        if isinstance(outcome, Needs):
            producer_id = self._take_producer_id()
            if producer_id is not None:
                outcome = step(producer_id)
        return outcome

    def _fence(self, current: Transaction, now_ms: int, new_id: int | None) -> Step:
        return steps.fence(current, self.version, new_id, now_ms)

    def _decide(self, transaction: Transaction, effects: Effects) -> None:
        self._record(transaction, effects)
        self._send_after_commit(transaction, effects)

    def _record(self, transaction: Transaction, effects: Effects) -> None:
        if not self._timers_run:
            self._set_timers(effects)
        self._last_epochs[transaction.transactional_id] = transaction.last_producer_epoch
        effects.records.append(transaction.record(1 if self.version else 0))

    def _send_after_commit(self, transaction: Transaction, effects: Effects) -> None:
        """Send the markers once the decision is committed: until then it may be lost."""
        markers = Markers(
            transaction.transactional_id,
            transaction.producer,
            transaction.state is PREPARE_COMMIT,
            transaction.partitions,
            transaction.client_version,
        )
        effects.after_commit(lambda: self._send_markers(markers))


def size_of(record: Record) -> int:
    return len(record.key) + len(record.value or b"") + 32
