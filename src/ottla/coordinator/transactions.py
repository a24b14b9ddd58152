"""The transaction coordinator's shard: every decision about transactional ids. Pure.

    InitProducerId -> Empty -> partitions added -> Ongoing -> EndTxn -> Prepare…: the outcome is set
                   -> markers written to every partition -> Complete…

The outcome is decided by the Prepare record, and only once that is committed are markers sent:
`Outbox` hears of them as an asker hears an answer. A marker may be late, lost or written twice;
`markers_written` is told when all are there. Whatever the coordinator was doing when it was lost is
taken up again by `loaded`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.coordinator.effects import Asker, Effects, Producer, Record, TimerKey
from ottla.coordinator.transaction import (
    COMPLETE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
    transaction_key,
    transaction_of,
)
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


@dataclass(slots=True, frozen=True)
class TransactionRules:
    """The options of the broker that transactions obey."""

    timeout_max_ms: int = 900_000
    timeout_check_interval_ms: int = 10_000
    expiration_ms: int = 7 * 24 * 3_600_000
    expiry_check_interval_ms: int = 3_600_000


class Markers(NamedTuple):
    """What is to be written to the partitions of a transaction that has been decided."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]


class Granted(NamedTuple):
    """An answer to a producer: an error, or the id and epoch it goes on with."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class NeedsProducerId(Exception):
    """The decision needs a producer id that nobody has: ask again with one."""


class TransactionShard:
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(self, rules: TransactionRules, outbox: Asker) -> None:
        self.rules = rules
        self.transactions: dict[str, Transaction] = {}
        self._outbox = outbox
        self._last_epochs: dict[str, int] = {}

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
        last_epoch = self._last_epochs.pop(transactional_id, NO_EPOCH)
        self.transactions[transactional_id] = replace(
            transaction_of(transactional_id, value), last_producer_epoch=last_epoch
        )

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """Nobody writes to `__transaction_state` inside a transaction."""

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """Finish what was decided before: the markers may or may not have been written."""
        for transaction in self.transactions.values():
            if transaction.state in PREPARED:
                self._send_markers(transaction, effects)
        effects.set_timer(TIMEOUT_TIMER, self.rules.timeout_check_interval_ms)
        effects.set_timer(EXPIRY_TIMER, self.rules.expiry_check_interval_ms)

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        if key == TIMEOUT_TIMER:
            self._abort_timed_out(effects, now_ms)
            effects.set_timer(TIMEOUT_TIMER, self.rules.timeout_check_interval_ms)
        else:
            self._expire(effects, now_ms)
            effects.set_timer(EXPIRY_TIMER, self.rules.expiry_check_interval_ms)

    def askers(self) -> list[Asker]:
        return []

    # ---- a producer's begin ----------------------------------------------------------------------

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        fresh_producer_id: int | None,
        effects: Effects,
        now_ms: int,
    ) -> Granted:
        """InitProducerId: the id and epoch that fence every earlier producer of this name.

        `expected` is what the producer had before (KIP-360): only who still has it may go on.
        """
        current = self.transactions.get(transactional_id)
        if current is None:
            if fresh_producer_id is None:
                raise NeedsProducerId
            current = Transaction(transactional_id, fresh_producer_id)
        if expected is not None and not may_continue(current, expected):
            return Granted(ErrorCode.PRODUCER_FENCED)
        if current.state in PREPARED:
            return Granted(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state is ONGOING:
            # Fence the producer that left it open, abort, and let the new one ask again. This epoch
            # is never told to anybody.
            self._end(fenced(current), PREPARE_ABORT, effects, now_ms)
            return Granted(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and is_retry(current, expected):
            return Granted(ErrorCode.NONE, current.producer_id, current.producer_epoch)
        if expected is not None and current.producer_epoch not in (
            NO_EPOCH,
            expected.producer_epoch,
        ):
            return Granted(ErrorCode.PRODUCER_FENCED)
        if current.epoch_exhausted:
            if fresh_producer_id is None:
                raise NeedsProducerId
            producer_id, epoch = fresh_producer_id, 0
            previous = current.producer_id
        else:
            producer_id, epoch = current.producer_id, current.producer_epoch + 1
            previous = current.previous_producer_id
        began = current.become(
            EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=previous,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_timestamp_ms=NO_TIMESTAMP,
        )
        last_epoch = current.producer_epoch if expected is not None else NO_EPOCH
        self._record(began, effects, last_epoch)
        return Granted(ErrorCode.NONE, producer_id, epoch)

    # ---- partitions ------------------------------------------------------------------------------

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
        error = producer_error(current, producer)
        if error:
            return error
        assert current is not None
        if current.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if current.state is ONGOING and partitions <= current.partitions:
            return ErrorCode.NONE
        going = current.state is ONGOING
        opened = current.become(
            ONGOING,
            now_ms,
            partitions=(current.partitions if going else frozenset()) | partitions,
            start_timestamp_ms=current.start_timestamp_ms if going else now_ms,
            client_version=client_version,
        )
        self._record(opened, effects, current.last_producer_epoch)
        return ErrorCode.NONE

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether these partitions are part of the transaction under way (KIP-890, part 1)."""
        current = self.transactions.get(transactional_id)
        error = producer_error(current, producer)
        if not error and current is not None and current.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error or current is None:
            return dict.fromkeys(partitions, error)
        added = current.partitions if current.state is ONGOING else frozenset()
        return {
            each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        }

    # ---- the end ---------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        commit: bool,
        client_version: int,
        fresh_producer_id: int | None,
        effects: Effects,
        now_ms: int,
    ) -> Granted:
        """EndTxn: fix the outcome. Asking again for the same outcome is answered the same."""
        current = self.transactions.get(transactional_id)
        if current is None:
            return Granted(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        retry = is_end_retry(current, producer)
        if current.producer_id != producer.producer_id and not retry:
            return Granted(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not end_epoch_valid(current, producer, retry):
            return Granted(ErrorCode.PRODUCER_FENCED)
        verdict = end_verdict(current, commit, retry, client_version)
        if verdict is ErrorCode.NONE:
            return Granted(ErrorCode.NONE, current.producer_id, current.producer_epoch)
        if verdict is not None:
            return Granted(verdict)
        ended = replace(current, client_version=client_version)
        if client_version >= EPOCH_BUMP_VERSION:
            if current.epoch_exhausted:
                if fresh_producer_id is None:
                    raise NeedsProducerId
                ended = replace(ended, next_producer_id=fresh_producer_id)
            ended = replace(ended, producer_epoch=current.producer_epoch + 1)
        decided = self._end(ended, PREPARE_COMMIT if commit else PREPARE_ABORT, effects, now_ms)
        if decided.next_producer_id != NO_PRODUCER_ID:
            return Granted(ErrorCode.NONE, decided.next_producer_id, 0)
        return Granted(ErrorCode.NONE, decided.producer_id, decided.producer_epoch)

    def markers_written(self, markers: Markers, effects: Effects, now_ms: int) -> None:
        """Every partition has its marker: the transaction is over."""
        current = self.transactions.get(markers.transactional_id)
        if (
            current is None
            or current.state not in PREPARED
            or (current.producer_id, current.producer_epoch) != markers.producer
        ):
            return  # an echo of markers that were sent twice
        rotated = current.next_producer_id != NO_PRODUCER_ID
        done = current.become(
            COMPLETE_COMMIT if current.state is PREPARE_COMMIT else COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
            producer_id=current.next_producer_id if rotated else current.producer_id,
            producer_epoch=0 if rotated else current.producer_epoch,
            previous_producer_id=(current.producer_id if rotated else current.previous_producer_id),
            next_producer_id=NO_PRODUCER_ID,
        )
        self._record(done, effects, current.last_producer_epoch)

    # ---- what time brings ------------------------------------------------------------------------

    def _abort_timed_out(self, effects: Effects, now_ms: int) -> None:
        for current in list(self.transactions.values()):
            if current.state is ONGOING and (
                current.start_timestamp_ms + current.timeout_ms < now_ms
            ):
                self._end(fenced(current), PREPARE_ABORT, effects, now_ms)

    def _expire(self, effects: Effects, now_ms: int) -> None:
        """Names that nobody has used for long are forgotten."""
        for current in self.transactions.values():
            idle = current.state is EMPTY or current.state in COMPLETE
            if idle and current.last_update_timestamp_ms + self.rules.expiration_ms <= now_ms:
                effects.records.append(Record(transaction_key(current.transactional_id), None))

    # ---- inside ----------------------------------------------------------------------------------

    def _end(
        self,
        ended: Transaction,
        state: TransactionState,
        effects: Effects,
        now_ms: int,
    ) -> Transaction:
        start_ms = ended.start_timestamp_ms if ended.state is ONGOING else now_ms
        partitions = ended.partitions if ended.state is ONGOING else frozenset[TopicPartition]()
        decided = ended.become(state, now_ms, start_timestamp_ms=start_ms, partitions=partitions)
        self._record(decided, effects, NO_EPOCH)
        self._send_markers(decided, effects)
        return decided

    def _record(self, transaction: Transaction, effects: Effects, last_epoch: int) -> None:
        self._last_epochs[transaction.transactional_id] = last_epoch
        effects.records.append(transaction.record())

    def _send_markers(self, transaction: Transaction, effects: Effects) -> None:
        """Once the decision is committed: until then it may still be lost."""
        effects.reply(
            self._outbox,
            Markers(
                transaction.transactional_id,
                Producer(transaction.producer_id, transaction.producer_epoch),
                transaction.state is PREPARE_COMMIT,
                transaction.partitions,
            ),
        )


# ---- pure helpers --------------------------------------------------------------------------------


def fenced(transaction: Transaction) -> Transaction:
    """With an epoch that its producer does not have; the very last one is kept for this."""
    epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
    return replace(transaction, producer_epoch=epoch)


def may_continue(current: Transaction, expected: Producer) -> bool:
    """Whether who says it was `expected` may be the current producer (KIP-360)."""
    if current.producer_epoch == NO_EPOCH:
        return True  # made a moment ago: the coordinator had forgotten the name
    if expected.producer_id == current.producer_id:
        return True  # its epoch is checked where it is bumped
    exhausted = expected.producer_epoch >= EPOCH_MAX - 1
    return exhausted and expected.producer_id == current.previous_producer_id


def is_retry(current: Transaction, expected: Producer) -> bool:
    """A producer that was given its new epoch, or id, but never heard of it."""
    if expected.producer_id == current.producer_id:
        return NO_EPOCH != expected.producer_epoch == current.last_producer_epoch
    return current.producer_epoch == 0


def producer_error(current: Transaction | None, producer: Producer) -> ErrorCode:
    """Whether `producer` is the current one of its name."""
    if current is None or current.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def is_end_retry(current: Transaction, producer: Producer) -> bool:
    """KIP-890: an EndTxn with the epoch before the bump is one whose answer was lost."""
    if not current.bumps_epoch:
        return False
    if current.producer_id == producer.producer_id:
        return (
            current.state is not ONGOING and current.producer_epoch == producer.producer_epoch + 1
        )
    return (
        current.previous_producer_id == producer.producer_id
        and producer.producer_epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )


def end_epoch_valid(current: Transaction, producer: Producer, retry: bool) -> bool:
    same = producer.producer_epoch == current.producer_epoch
    if not current.bumps_epoch:
        return same
    if current.state in PREPARED:
        return retry
    if current.state in COMPLETE:
        return retry or same
    return same


def end_verdict(
    current: Transaction, commit: bool, retry: bool, client_version: int
) -> ErrorCode | None:
    """What to answer at once; None when the transaction is to be ended now."""
    if current.state is ONGOING:
        return None
    wanted_prepare = PREPARE_COMMIT if commit else PREPARE_ABORT
    if current.state in PREPARED:
        if current.state is wanted_prepare:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.INVALID_TXN_STATE
    wanted_complete = COMPLETE_COMMIT if commit else COMPLETE_ABORT
    if client_version < EPOCH_BUMP_VERSION or not current.bumps_epoch:
        if client_version >= EPOCH_BUMP_VERSION and not commit:
            return None  # the first transaction of a newer client, aborted before it wrote
        return ErrorCode.NONE if current.state is wanted_complete else ErrorCode.INVALID_TXN_STATE
    if retry:
        return ErrorCode.NONE if current.state is wanted_complete else ErrorCode.INVALID_TXN_STATE
    # A transaction that never wrote may be aborted, which bumps the epoch; it cannot be committed.
    return ErrorCode.INVALID_TXN_STATE if commit else None
