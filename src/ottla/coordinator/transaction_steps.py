"""The steps of one transactional id: its next state, or Kafka's error. Pure.

Each step takes the present transaction and a request, and returns the next transaction, or the
`ErrorCode` to answer; NONE means that nothing has to change. A step that needs a producer id which
it was not given returns `NEEDS_PRODUCER_ID`, and is called again with one. The order of the checks
is that of Apache Kafka 4.3, since the first error is the one that is answered.

There are two generations of clients. The classic one ends a transaction under the epoch it wrote
with. Since KIP-890 (`transaction.version` 2) every end bumps the epoch, so that requests still
under way from before the end are fenced; a retry of EndTxn is then known by its epoch, one behind.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from ottla.coordinator.effects import Producer
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
)
from ottla.wire.errors import ErrorCode

NOTHING: frozenset[TopicPartition] = frozenset()


class Needs(Enum):
    """What a step needs to be given when it is called again."""

    PRODUCER_ID = "a producer id that was never used"


NEEDS_PRODUCER_ID = Needs.PRODUCER_ID
Step = Transaction | ErrorCode | Needs


# ---- InitProducerId --------------------------------------------------------------------------


def begin(
    current: Transaction,
    expected: Producer | None,
    timeout_ms: int,
    new_id: int | None,
    now_ms: int,
) -> Step:
    """The next producer of this transactional id: an id and epoch that fence every earlier one.

    `expected` is what the producer had before (KIP-360): it must still be current. The result is
    CONCURRENT_TRANSACTIONS while a transaction is being ended, and also while one is open, which
    the caller ends with `fence`.
    """
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not may_continue(current, expected):
        return ErrorCode.PRODUCER_FENCED
    if current.state is ONGOING:
        if expected is not None and expected != current.producer:
            # Kafka checks this only after it has aborted the successor's transaction.
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS
    epoch = current.producer_epoch
    changes: dict[str, Any] = {}
    if expected is None:
        changes["last_producer_epoch"] = NO_EPOCH
    elif epoch in (NO_EPOCH, expected.producer_epoch):
        changes["last_producer_epoch"] = epoch
    elif expected.producer_epoch == current.last_producer_epoch:
        # It was given this epoch before, in a response that was lost.
        return began(current, timeout_ms, now_ms)
    else:
        return ErrorCode.PRODUCER_FENCED
    if current.epoch_exhausted:
        if new_id is None:
            return NEEDS_PRODUCER_ID
        changes |= {"producer_id": new_id, "producer_epoch": 0}
    else:
        changes["producer_epoch"] = epoch + 1
    return began(current, timeout_ms, now_ms, **changes)


def began(current: Transaction, timeout_ms: int, now_ms: int, **changes: Any) -> Transaction:
    return current.become(
        EMPTY,
        now_ms,
        timeout_ms=timeout_ms,
        partitions=NOTHING,
        start_timestamp_ms=NO_TIMESTAMP,
        **changes,
    )


def may_continue(current: Transaction, expected: Producer) -> bool:
    """Whether the producer that was `expected` may be the current one (KIP-360)."""
    if current.producer_epoch == NO_EPOCH:
        return True  # just created: the transactional id had expired
    if expected.producer_id == current.producer_id:
        return True  # its epoch is checked where it is bumped
    exhausted = expected.producer_epoch >= EPOCH_MAX - 1
    return exhausted and expected.producer_id == current.previous_producer_id


# ---- partitions ------------------------------------------------------------------------------


def add(
    current: Transaction | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction | ErrorCode:
    """Add these partitions to the transaction."""
    if current is not None and current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = producer_error(current, producer)
    if error or current is None:
        return error
    going = current.state is ONGOING
    if going and partitions <= current.partitions:
        return ErrorCode.NONE
    return current.become(
        ONGOING,
        now_ms,
        partitions=current.partitions | partitions if going else partitions,
        start_timestamp_ms=current.start_timestamp_ms if going else now_ms,
        client_version=client_version,
    )


def verify(
    current: Transaction | None, producer: Producer, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether these partitions are part of the transaction under way (KIP-890, part 1)."""
    error = producer_error(current, producer)
    if not error and current is not None and current.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error or current is None:
        return dict.fromkeys(partitions, error)
    return {
        each: ErrorCode.NONE if each in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def producer_error(current: Transaction | None, producer: Producer) -> ErrorCode:
    """Why `producer` is not the current one of the transactional id; NONE if it is."""
    if current is None or current.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# ---- the end ---------------------------------------------------------------------------------


def end(
    current: Transaction | None,
    producer: Producer,
    commit: bool,
    client_version: int,
    new_id: int | None,
    now_ms: int,
) -> Step:
    """EndTxn: fix the outcome. A retry with the same outcome has the same result."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if client_version >= EPOCH_BUMP_VERSION:
        answer = end_with_bump(current, producer, commit)
    else:
        answer = end_classic(current, producer, commit)
    if answer is not None:
        return answer
    state = PREPARE_COMMIT if commit else PREPARE_ABORT
    return ended(current, state, client_version, new_id, now_ms)


def end_classic(current: Transaction, producer: Producer, commit: bool) -> ErrorCode | None:
    """The error to answer; None when the transaction is to be ended now."""
    error = producer_error(current, producer)
    if error:
        return error
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is ONGOING:
        return None
    same = current.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    return ErrorCode.NONE if same else ErrorCode.INVALID_TXN_STATE


def end_with_bump(current: Transaction, producer: Producer, commit: bool) -> ErrorCode | None:
    """The same for a client whose epoch is bumped by every end.

    An EndTxn with the epoch before the bump is a retry after a lost response. One with the present
    epoch is for a transaction that never wrote: it may be aborted, which bumps the epoch and fences
    requests under way, but there is nothing to commit.
    """
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    rotated = (
        current.previous_producer_id == producer.producer_id
        and producer.producer_epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )
    # Only where the last end bumped the epoch. Kafka does not look: there a zombie of this
    # generation can take the epoch of a classic successor for its own.
    retry = current.client_version >= EPOCH_BUMP_VERSION and (
        rotated or current.producer_epoch == producer.producer_epoch + 1
    )
    if current.producer_id != producer.producer_id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    present = current.producer_epoch == producer.producer_epoch
    if not present and not (retry and current.state in COMPLETE):
        return ErrorCode.PRODUCER_FENCED
    if current.state is ONGOING:
        return None
    if retry and not present:
        same = current.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
        return ErrorCode.NONE if same else ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_TXN_STATE if commit else None


def fence(
    current: Transaction, server_version: int, new_id: int | None, now_ms: int
) -> Transaction | Needs:
    """Abort the open transaction under an epoch that its producer does not have.

    The new epoch is given to no producer: the next one gets the epoch after it.
    """
    if server_version >= EPOCH_BUMP_VERSION:
        return ended(current, PREPARE_ABORT, server_version, new_id, now_ms)
    return current.become(
        PREPARE_ABORT,
        now_ms,
        producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=NO_EPOCH,
        client_version=0,
    )


def ended(
    current: Transaction,
    state: TransactionState,
    client_version: int,
    new_id: int | None,
    now_ms: int,
) -> Transaction | Needs:
    """The transaction with its outcome fixed; its markers have the bumped epoch, also the last."""
    changes: dict[str, Any] = {"client_version": client_version}
    if client_version >= EPOCH_BUMP_VERSION:
        if current.epoch_exhausted:
            if new_id is None:
                return NEEDS_PRODUCER_ID
            changes["next_producer_id"] = new_id
        changes["producer_epoch"] = min(current.producer_epoch + 1, EPOCH_MAX)
        changes["last_producer_epoch"] = current.producer_epoch
    if current.state is not ONGOING:
        changes["start_timestamp_ms"] = now_ms
        changes["partitions"] = NOTHING
    return current.become(state, now_ms, **changes)


def complete(current: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker: the transaction is complete."""
    changes: dict[str, Any] = {}
    if current.next_producer_id != NO_PRODUCER_ID:
        changes = {
            "producer_id": current.next_producer_id,
            "producer_epoch": 0,
            "next_producer_id": NO_PRODUCER_ID,
        }
    state = COMPLETE_COMMIT if current.state is PREPARE_COMMIT else COMPLETE_ABORT
    return current.become(state, now_ms, partitions=NOTHING, **changes)


def granted(decided: Transaction) -> Producer:
    """The id and epoch with which the producer continues after an end that was just decided."""
    if decided.next_producer_id != NO_PRODUCER_ID:
        return Producer(decided.next_producer_id, 0)
    return decided.producer
