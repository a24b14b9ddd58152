"""One transactional id: its producer, its open transaction, and its record in the log.

The states are Kafka's, by their numbers in `__transaction_state`. A `Transaction` is never changed
in place: a decision makes the next one, its record is appended, and replaying that record is what
puts it in the old one's place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from ottla.coordinator.effects import Producer, Record
from ottla.wire.coordinator_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    write_key,
    write_value,
)

TopicPartition = tuple[str, int]

# Version 1 has tagged fields for KIP-890.
VALUE_VERSION = 1
NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 32767
# KIP-890: a client of this generation bumps its epoch with every transaction.
EPOCH_BUMP_VERSION = 2


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return "".join(part.capitalize() for part in self.name.split("_"))


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, _ = (
    TransactionState
)
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
COMPLETE = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})

# The states that may follow each state.
NEXT: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
}


@dataclass(slots=True, frozen=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    # The epoch before a bump whose response may have been lost; not in the log.
    last_producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int = NO_TIMESTAMP
    client_version: int = 0

    def become(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        """The next one, in a state that may follow this one."""
        assert state in NEXT[self.state], f"{self.state.text} -> {state.text}"
        return replace(
            self,
            state=state,
            last_update_timestamp_ms=now_ms,
            previous_producer_id=self.producer_id,
            **changes,
        )

    @property
    def epoch_exhausted(self) -> bool:
        """The last epoch is kept for fencing: no producer ever gets it."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.producer_epoch)

    def record(self, version: int = VALUE_VERSION) -> Record:
        """Its record in the log, in a version of the value's schema."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(partition)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            # Kafka writes null, not an empty list, where no transaction has begun.
            transaction_partitions=None
            if self.state is EMPTY
            else [
                PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()
            ],
            transaction_last_update_timestamp_ms=self.last_update_timestamp_ms,
            transaction_start_timestamp_ms=self.start_timestamp_ms,
            client_transaction_version=self.client_version,
        )
        return Record(transaction_key(self.transactional_id), write_value(value, version))


def transaction_key(transactional_id: str) -> bytes:
    return write_key(TransactionLogKey(transactional_id=transactional_id))


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """The transaction of a record."""
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (entry.topic, partition)
            for entry in value.transaction_partitions or ()
            for partition in entry.partition_ids
        ),
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
