"""What compaction keeps of a batch: Kafka's cleaner, one batch at a time, on bytes.

A log is read twice. The first reading fills an `OffsetMap` (offset_map.py) from the dirty part: key
→ offset of its last record. The second passes every batch below the map's end to a `BatchFilter`,
which returns the bytes to keep: the batch as it was, the batch with some records gone, an empty
batch, or nothing.

The rules are Kafka's:
- A record survives if no later record has its key. A record without a key does not survive.
- A tombstone survives until its delete horizon (KIP-534): the first cleaning that meets it stamps
  the time of that cleaning plus `delete.retention.ms` into the batch, as base timestamp under an
  attribute bit; a cleaning after that time drops it.
- Records of aborted transactions go. A transaction's marker stays while any batch of it was seen,
  and then until its own delete horizon.
- A batch that holds the last sequence of an active producer, or the last offset of the cleaned
  range, stays even when it is empty: base and last offset, sequences and producer never change.
- Records that stay are copied byte for byte; only a new base timestamp makes new bytes of them.

Nothing here touches a file. The caller passes whole batches in order of offset, and every aborted
transaction of the range. A batch whose checksum is wrong raises `CorruptBatch`: it is never given
a new checksum.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.batch import (
    Batch,
    Buffer,
    control_type,
    empty_batch,
    rebuild,
)
from ottla.log.offset_map import OffsetMap
from ottla.log.transaction_index import AbortedTransaction
from ottla.wire.batch_header import NO_PRODUCER_ID

CONTROL_ABORT = 0
CONTROL_COMMIT = 1


class Transactions:
    """The transactions that are open at the batch just read, and which of them were aborted."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda a: a.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}
        self._batch_seen: set[int] = set()  # producers with an aborted batch read
        self._committing: set[int] = set()
        self.retained: list[AbortedTransaction] = []  # for the cleaned segment's index

    def on_batch(self, batch: Batch) -> bool:
        """Whether this data batch belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            self._batch_seen.add(batch.producer_id)
            return True
        self._committing.add(batch.producer_id)
        return False

    def on_control(self, batch: Batch) -> bool:
        """Whether this marker is no longer needed: no batch of its transaction was read."""
        self._begin_up_to(batch.last_offset)
        kind = control_type(batch)
        if kind is None:
            return True  # emptied by an earlier cleaning
        if kind == CONTROL_ABORT:
            aborted = self._aborting.pop(batch.producer_id, None)
            if aborted is None or batch.producer_id not in self._batch_seen:
                return True
            self._batch_seen.discard(batch.producer_id)
            self.retained.append(aborted)
            return False
        if kind == CONTROL_COMMIT:
            if batch.producer_id in self._committing:
                self._committing.discard(batch.producer_id)
                return False
            return True
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers stayed since the last call."""
        taken, self.retained = self.retained, []
        return taken

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborting.setdefault(aborted.producer_id, aborted)


class LastRecord(NamedTuple):
    """The last batch of a producer that the partition knows: it must stay."""

    last_data_offset: int | None
    producer_epoch: int


class BatchFilter:
    """Decides for each batch of a log, in order of offset, what is left of it."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: Transactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        producers: dict[int, LastRecord],
        upper_bound_offset: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._producers = producers
        self._upper_bound_offset = upper_bound_offset
        self.records_read = 0
        self.records_kept = 0
        self.records_without_key = 0

    def clean(self, batch: Batch) -> Buffer | None:
        """The bytes to keep for this batch, or None when it goes altogether."""
        batch.check()
        horizon_ms = batch.delete_horizon_ms
        self.records_read += batch.record_count
        if batch.is_control:
            unneeded = self._transactions.on_control(batch)
            discard = unneeded and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            unneeded = discard = self._transactions.on_batch(batch)
        keep_empty = self._must_stay(batch)
        if discard and not keep_empty:
            return None
        if discard:
            return empty_batch(batch)
        kept, has_tombstone, max_timestamp_delta, records = self._kept(batch)
        if kept == 0:
            return empty_batch(batch) if keep_empty else None
        self.records_kept += kept
        new_horizon_ms = None
        if horizon_ms is None and (has_tombstone or (batch.is_control and unneeded)):
            new_horizon_ms = self._now_ms + self._delete_retention_ms
        elif kept == batch.record_count:
            return batch.data
        return rebuild(batch, records, kept, max_timestamp_delta, new_horizon_ms)

    def _must_stay(self, batch: Batch) -> bool:
        if batch.last_offset + 1 == self._upper_bound_offset:
            return True  # or the last offset would be forgotten
        last = self._producers.get(batch.producer_id)
        if last is None or batch.producer_id == NO_PRODUCER_ID:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _kept(self, batch: Batch) -> tuple[int, bool, int, bytes]:
        """How many records stay, whether a tombstone does, their largest timestamp delta, and
        their bytes; of a control batch all stay.
        """
        records = batch.records()
        if batch.is_control:
            return batch.record_count, False, batch.max_timestamp - batch.base_timestamp, records
        horizon_ms = batch.delete_horizon_ms
        tombstones_stay = horizon_ms is None or self._now_ms < horizon_ms
        kept, without_key, has_tombstone, max_timestamp_delta, left = self._offsets.keep(
            records, batch.record_count, batch.base_offset, tombstones_stay
        )
        self.records_without_key += without_key
        return kept, has_tombstone, max_timestamp_delta, left
