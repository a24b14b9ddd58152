"""Fetched batches: looked at by their headers when they come, opened when they are wanted.

`split` runs in the background thread: it finds the batches in an answer and leaves out those of
aborted transactions and the broker's markers. A `FetchedBatch` is opened (checksum, decompression,
records or columns) in the thread of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ottla.wire.api.fetch import AbortedTransaction, PartitionData
from ottla.wire.compression import decompress
from ottla.wire.control import ABORT, control_type
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    BatchHeader,
    batch_bounds,
    read_header,
    read_records,
)

from ..codec.records import Columns, CorruptRecords, checksum, read_columns, read_consumer_records
from ..errors import CorruptRecordException, KafkaError
from ..structs import ConsumerRecord, TopicPartition

Function = Callable[[bytes | None], Any]


class FetchedBatch:
    """One batch as it came; `data` is None if there is nothing in it for the caller."""

    __slots__ = ("data", "header", "size", "version")

    def __init__(
        self, header: BatchHeader, data: memoryview | None, size: int, version: int
    ) -> None:
        self.header = header
        self.data = data
        self.size = size
        self.version = version

    @property
    def next_offset(self) -> int:
        return self.header.last_offset + 1

    def records(
        self,
        partition: TopicPartition,
        first_offset: int,
        key: Function | None,
        value: Function | None,
        *,
        check_crc: bool,
    ) -> list[ConsumerRecord]:
        """Its records from `first_offset` on."""
        header = self.header
        if self.data is None:
            return []
        try:
            found: list[ConsumerRecord] = read_consumer_records(
                self._body(check_crc),
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if header.log_append_time else -1,
                first_offset,
                (partition.topic, partition.partition, header.leader_epoch),
                key,
                value,
                ConsumerRecord,
                self._begin,
            )
        except (CorruptRecords, MalformedMessage) as problem:
            raise self._corrupt(partition, problem) from None
        return found

    def add_to(
        self, columns: Columns, partition: TopicPartition, first_offset: int, *, check_crc: bool
    ) -> None:
        """Add its records from `first_offset` on to columns."""
        header = self.header
        if self.data is None:
            return
        try:
            read_columns(
                self._body(check_crc),
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if header.log_append_time else -1,
                first_offset,
                columns,
                self._begin,
            )
        except (CorruptRecords, MalformedMessage) as problem:
            raise self._corrupt(partition, problem) from None

    @property
    def _begin(self) -> int:
        """Where in the `_body` the records begin."""
        return 0 if self.header.compression else HEADER_BYTES - ATTRIBUTES_POSITION

    def _body(self, check_crc: bool) -> bytes | memoryview:
        """What the checksum covers: the end of the header, and the records behind it; or the
        records decompressed."""
        assert self.data is not None
        covered = self.data[ATTRIBUTES_POSITION:]
        if check_crc:
            found = checksum(covered)
            if found != self.header.crc:
                raise CorruptRecords(f"checksum {found:#x}, its header says {self.header.crc:#x}")
        codec = self.header.compression
        if not codec:
            return covered
        return decompress(codec, covered[HEADER_BYTES - ATTRIBUTES_POSITION :])

    def _corrupt(self, partition: TopicPartition, problem: Exception) -> KafkaError:
        header = self.header
        return CorruptRecordException(
            f"the batch at offsets {header.base_offset} to {header.last_offset} of "
            f"{partition.topic}-{partition.partition} cannot be read: {problem}\n"
            f"Try: seek(partition, {header.last_offset + 1}) to go on behind it"
        )


def records_in(data: PartitionData) -> memoryview:
    """The batches of one partition in an answer: a view of the frame it was read from."""
    records = data.records
    if records is None:
        return memoryview(b"")
    assert isinstance(records, memoryview)
    return records


def split(
    records: memoryview,
    fetch_offset: int,
    aborted: Iterable[AbortedTransaction] | None,
    version: int,
) -> Iterator[FetchedBatch]:
    """The batches in an answer; `aborted` is None unless only committed records are wanted."""
    waiting = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    active: set[int] = set()
    for start, end in batch_bounds(records):
        header = read_header(records, start)
        last_offset = header.last_offset
        while waiting and waiting[-1].first_offset <= last_offset:
            active.add(waiting.pop().producer_id)
        wanted = last_offset >= fetch_offset
        if header.is_control:
            wanted = False
            if aborted is not None and _is_abort(records[start:end]):
                active.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in active:
            wanted = False
        yield FetchedBatch(header, records[start:end] if wanted else None, end - start, version)


def _is_abort(batch: memoryview) -> bool:
    records = read_records(batch)
    return bool(records) and control_type(records[0].key) == ABORT
