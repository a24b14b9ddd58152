"""Returns fetched records to the caller: by poll, one by one, or by column; in its thread.

The position of a partition is the offset after the last record returned. While an iteration runs
through the records of a partition, its position is computed on demand (`settle`): the list
iterator knows how many are left, so a record costs no bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..codec.columns import RecordColumns
from ..codec.records import Columns
from ..errors import KafkaError
from ..structs import ConsumerRecord, TopicPartition
from .deserializers import Deserializers
from .fetched_batches import FetchedBatch
from .subscription import PartitionState, Subscription

ARROW_BYTES_MAX = 1 << 30  # a column's offsets have 31 bits


class RecordDelivery:
    """Takes records from the queues of a subscription, partition after partition in turn."""

    def __init__(
        self, subscription: Subscription, deserializers: Deserializers, *, check_crcs: bool
    ) -> None:
        self.subscription = subscription
        self.deserializers = deserializers
        self.check_crcs = check_crcs
        self.turn = 0
        self.record_count = 0
        # Of the iteration: its partition, the version then, the records, and their iterator.
        self.current: (
            tuple[PartitionState, int, list[ConsumerRecord], Iterator[ConsumerRecord]] | None
        ) = None

    # Records

    def take(self, most: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to so many records; their partitions' positions move behind them."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for state in self._ready():
            try:
                records = self._records(state, most)
            except KafkaError:
                if found:
                    break  # these first; the next call meets it again
                raise
            if records:
                found[state.partition] = records
                most -= len(records)
                if most <= 0:
                    break
        return found

    def begin(self, most: int) -> Iterator[ConsumerRecord] | None:
        """Records of one partition to iterate over; `settle` and `end` keep its position."""
        for state in self._ready():
            before = state.position, state.position_epoch
            records = self._records(state, most)
            if not records:
                continue
            iterator = iter(records)
            self.current = state, state.version, records, iterator
            self.after = state.position, state.position_epoch
            state.position, state.position_epoch = before
            return iterator
        return None

    def settle(self) -> None:
        """Let the position of the partition under iteration be true."""
        if self.current is None:
            return
        state, version, records, iterator = self.current
        left = iterator.__length_hint__()  # type: ignore[attr-defined]
        if state.version != version or len(records) == left:
            return
        if left:
            last = records[len(records) - left - 1]
            state.position, state.position_epoch = last.offset + 1, last.leader_epoch
        else:
            state.position, state.position_epoch = self.after

    def end(self) -> None:
        """The iteration over these records is over; what is left of them goes back."""
        if self.current is None:
            return
        self.settle()
        state, version, records, iterator = self.current
        self.current = None
        left = iterator.__length_hint__()  # type: ignore[attr-defined]
        if left and state.version == version:
            state.chunk = records[len(records) - left :] + state.chunk[state.chunk_at :]
            state.chunk_at = 0
            self.record_count -= left
        records.clear()  # an iterator that is still held ends

    def _ready(self) -> list[PartitionState]:
        states = [
            state
            for state in self.subscription.states.values()
            if state.has_data and not state.paused and not state.held
        ]
        if len(states) > 1:
            self.turn = (self.turn + 1) % len(states)
            states = states[self.turn :] + states[: self.turn]
        return states

    def _records(self, state: PartitionState, most: int) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        while len(found) < most:
            left = len(state.chunk) - state.chunk_at
            if left <= 0:
                if not self._open_next(state, alone=not found):
                    break
                continue
            space = most - len(found)
            if left <= space and not state.chunk_at and not found:
                found, state.chunk = state.chunk, []
            else:
                piece = state.chunk[state.chunk_at : state.chunk_at + space]
                state.chunk_at += len(piece)
                found = found + piece if found else piece
            if state.chunk_at >= len(state.chunk):
                state.chunk, state.chunk_at = [], 0
                state.position = state.chunk_end
            else:
                state.position = found[-1].offset + 1
            state.position_epoch = found[-1].leader_epoch
        self.record_count += len(found)
        return found

    def _open_next(self, state: PartitionState, *, alone: bool) -> bool:
        """Open the next batch; False if there is none, or a bad one after good records."""
        if not state.queue:
            return False
        batch = state.queue[0]
        if batch.version != state.version or state.position is None:
            state.queue.popleft()
            return True
        try:
            records, end = self._decode(batch, state.partition, state.position)
        except KafkaError:
            if alone:
                raise
            return False
        if end == batch.next_offset:
            state.queue.popleft()
            state.taken_bytes += batch.size
        state.chunk, state.chunk_at, state.chunk_end = records, 0, end
        if not records:
            state.position = max(state.position, end)
            state.position_epoch = batch.header.leader_epoch
        return True

    def _decode(
        self, batch: FetchedBatch, partition: TopicPartition, first_offset: int
    ) -> tuple[list[ConsumerRecord], int]:
        """Its records, and the offset after them: less than the batch's if one is bad."""
        turn = self.deserializers
        records: list[ConsumerRecord]
        try:
            records = batch.records(
                partition, first_offset, turn.key_function, turn.value_function,
                check_crc=self.check_crcs,
            )  # fmt: skip
            functions = False
        except KafkaError:
            raise
        except Exception:  # a deserializer's: find the record
            records = batch.records(partition, first_offset, None, None, check_crc=False)
            functions = True
        if not functions and not turn.after:
            return records, batch.next_offset
        good: list[ConsumerRecord] = []
        for record in records:
            try:
                good.append(turn.applied(record, functions=functions))
            except KafkaError:
                if good:
                    return good, record.offset
                raise
        return good, batch.next_offset

    # Columns

    def take_columns(self, most: int | None) -> list[RecordColumns]:
        """All that waits, by partition and column; after `most` records no more batches."""
        found = []
        for state in self._ready():
            columns = self._columns(state, most)
            if columns.count:
                found.append(RecordColumns(state.partition, columns, state.append_time))
                if most is not None:
                    most -= columns.count
                    if most <= 0:
                        break
        return found

    def _columns(self, state: PartitionState, most: int | None) -> Columns:
        columns = Columns()
        self._return_chunk(state)
        while state.queue and (most is None or columns.count < most):
            if not self._add_batch(state, columns):
                break
        self.record_count += columns.count
        return columns

    def add_range(
        self, state: PartitionState, columns: Columns, end: int, *, rows: int, value_bytes: int
    ) -> bool:
        """Add batches that wait until there are so many rows or bytes; True when there are, or
        when what comes next does not belong to these columns (`end` is reached, or the kind of
        timestamp changes)."""
        while state.queue and state.position is not None and state.position < end:
            if columns.count >= rows or len(columns.values.data) >= value_bytes:
                return True
            if not self._add_batch(state, columns):
                return True
        return state.position is not None and state.position >= end

    def _add_batch(self, state: PartitionState, columns: Columns) -> bool:
        """Open the next batch into columns; False if it belongs to the next ones."""
        batch = state.queue[0]
        if batch.version != state.version or state.position is None:
            state.queue.popleft()
            return True
        append_time = batch.header.log_append_time
        if columns.count and (
            append_time != state.append_time or len(columns.values.data) > ARROW_BYTES_MAX
        ):
            return False
        try:
            batch.add_to(columns, state.partition, state.position, check_crc=self.check_crcs)
        except KafkaError:
            if columns.count:
                return False
            raise
        state.queue.popleft()
        state.taken_bytes += batch.size
        state.append_time = append_time
        state.position = batch.next_offset
        state.position_epoch = batch.header.leader_epoch
        return True

    def _return_chunk(self, state: PartitionState) -> None:
        """A batch half used by `poll` is fetched again, from the position on."""
        if state.chunk_at < len(state.chunk):
            with self.subscription.lock:
                state.move(state.position, epoch=state.position_epoch)
