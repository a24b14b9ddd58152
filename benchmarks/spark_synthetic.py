"""A source and a sink for Spark that do nothing: its ceiling for anything written in Python.

The source hands out Arrow batches that were made once, with the columns of a topic; the sink drops
what it gets. No socket, no decoding, no encoding. What ours is slower than this is ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from ottla.spark.versions import DataSourceStreamArrowWriter, offers_limits

NAME = "synthetic"
BATCH_ROWS = 10_000
VALUE_BYTES = 100
PARTITIONS = 4
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


@cache
def batch(rows: int) -> pa.RecordBatch:
    """Rows as a topic has them, made once in each worker."""
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"key-%d" % (row % 1000) for row in range(rows)]),
            "value": pa.array([os.urandom(VALUE_BYTES) for _ in range(rows)]),
            "topic": pa.array(["synthetic"] * rows),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows)),
            "timestamp": pa.array([1_700_000_000_000_000] * rows).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * rows, pa.int32()),
        }
    )


@dataclass
class Stretch(InputPartition):
    """So many rows of one partition."""

    rows: int


def read(stretch: Stretch) -> Iterator[pa.RecordBatch]:
    made = batch(BATCH_ROWS)
    for start in range(0, stretch.rows, BATCH_ROWS):
        yield made.slice(0, min(BATCH_ROWS, stretch.rows - start))


class Reader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self.rows = int(options["rows"])

    def partitions(self) -> list[InputPartition]:
        return [Stretch(self.rows // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition)


class StreamReader(DataSourceStreamReader):
    """`rows` in all, at once (Spark 4.0 and 4.1)."""

    def __init__(self, options: Any) -> None:
        self.rows = int(options["rows"]) // PARTITIONS
        self.limit = int(options.get("maxOffsetsPerTrigger", 0)) // PARTITIONS

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"at": self.rows}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [Stretch(end["at"] - start["at"]) for _ in range(PARTITIONS)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition)


def stream_reader(options: Any) -> DataSourceStreamReader:
    """Since Spark 4.2 with `maxOffsetsPerTrigger` so many rows at a time."""
    if not offers_limits():
        return StreamReader(options)
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class LimitedReader(StreamReader, SupportsTriggerAvailableNow):
        def prepareForTriggerAvailableNow(self) -> None:
            pass

        def getDefaultReadLimit(self) -> ReadLimit:
            return ReadMaxRows(self.limit * PARTITIONS) if self.limit else ReadAllAvailable()

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
            end = start["at"] + self.limit if isinstance(limit, ReadMaxRows) else self.rows
            return {"at": min(end, self.rows)}

    return LimitedReader(options)


@dataclass
class Dropped(WriterCommitMessage):
    """How many rows were dropped."""

    rows: int


class Drop:
    """What both sinks do."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Dropped:
        return Dropped(sum(each.num_rows for each in batches))


class DropWriter(Drop, DataSourceArrowWriter):
    pass


class DropStreamWriter(Drop, DataSourceStreamArrowWriter):
    pass


class Synthetic(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return stream_reader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return DropWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DropStreamWriter()
