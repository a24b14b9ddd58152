"""Columns of rows into record batches, one stream of batches for each partition.

A row's partition is the one its `partitions` column names; else that of its key, as Java's default
partitioner has it (murmur2); rows with neither go to one partition after the other in runs, so that
batches fill. Within a partition rows keep their order. The batches belong to no producer yet:
`RawProducer` stamps them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.wire.records import Record, write_batch

from .producer_options import CODECS
from .records import HEAD_BYTES, murmur2

__all__ = ["ColumnBatches", "EncodedBatch"]

RUN_PART = 8  # rows without a key change partition so many times while a batch fills


class EncodedBatch(NamedTuple):
    """A finished batch; `data` is bytes-like."""

    partition: int
    data: bytes
    records: int


class ColumnBatches:
    """Batches of one topic. `batch_bytes` counts before compression, and is exceeded only by a
    single row that is larger."""

    def __init__(
        self,
        partition_count: int,
        *,
        compression: str = "none",
        batch_bytes: int = 512 * 1024,
        spread_from: int = 0,
    ) -> None:
        if partition_count < 1:
            raise ValueError(f"partition_count must be 1 or more (got {partition_count})")
        if compression not in CODECS:
            raise ValueError(f"compression must be one of {', '.join(CODECS)}")
        self.partition_count = partition_count
        self.codec = CODECS[compression]
        self.batch_bytes = batch_bytes
        self.spread_to = spread_from % partition_count
        self._run = 0
        self._open: dict[int, list[Record]] = {}
        self._sizes: dict[int, int] = {}
        self._done: list[EncodedBatch] = []

    def add(
        self,
        values: Any,
        keys: Any = None,
        partitions: Any = None,
        headers: Any = None,
        timestamps_ms: Any = None,
    ) -> None:
        """Add rows: pyarrow arrays of the same length."""
        now = int(time.time() * 1000)
        count = len(values)
        time_of = timestamps_ms.to_pylist() if hasattr(timestamps_ms, "to_pylist") else None
        plain_time = now if timestamps_ms is None else timestamps_ms
        for row, (value, key, partition, header) in enumerate(
            zip(
                *(listed(column, count) for column in (values, keys, partitions, headers)),
                strict=True,
            )
        ):
            given = [(each["key"], each["value"]) for each in header or ()]
            when = plain_time if time_of is None else now if time_of[row] is None else time_of[row]
            self._add(
                partition, Record(as_bytes(value), key=as_bytes(key), headers=given, timestamp=when)
            )

    def _add(self, partition: int | None, record: Record) -> None:
        size = len(write_batch([record]))
        if partition is None and record.key is not None:
            partition = murmur2(record.key) % self.partition_count
        if partition is None:
            partition = self.spread_to
            self._run += size - HEAD_BYTES
            if self._run >= self.batch_bytes // RUN_PART:
                self._run, self.spread_to = 0, (self.spread_to + 1) % self.partition_count
        if not 0 <= partition < self.partition_count:
            raise ValueError(
                f"partition {partition}: the topic has {self.partition_count}, from 0 on"
            )
        if self._open.get(partition) and self._sizes[partition] + size > self.batch_bytes:
            self._finish(partition)
        self._open.setdefault(partition, []).append(record)
        self._sizes[partition] = self._sizes.get(partition, HEAD_BYTES) + size

    def _finish(self, partition: int) -> None:
        records = self._open.pop(partition)
        self._sizes.pop(partition)
        data = write_batch(records, compression=self.codec)
        self._done.append(EncodedBatch(partition, data, len(records)))

    def take(self, *, rest: bool = False) -> list[EncodedBatch]:
        """The batches that are full, in order by partition; with `rest` all there are."""
        if rest:
            for partition in sorted(self._open):
                self._finish(partition)
        done, self._done = self._done, []
        return done


def listed(column: Any, count: int) -> Iterable[Any]:
    return [None] * count if column is None else column.to_pylist()


def as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
