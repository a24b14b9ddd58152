"""A topic as it is at each micro-batch: read anew whenever the plan runs.

Spark plans a batch read of a Python source once and keeps the partitions with the plan, so a table
that a stream is joined with would stand still at the first micro-batch. Here the lookup is part of
the tasks: each gets the offsets from the brokers, and they share the partitions by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..source.batch_reader import BatchReader
from ..source.data_source import ddl
from ..source.options import read_options
from ..source.reading import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TASKS_MAX = 4


def fresh_records(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The records that `spark.read.format("ottla")` would give with these options now, always."""
    settings = read_options(options, "batch")
    tasks = min(TASKS_MAX, spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, tasks, 1, tasks)
    return numbers.mapInArrow(reader_of(dict(options), tasks), ddl(settings))


def reader_of(
    options: dict[str, str], tasks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its number: read every partition that is its own."""

    def read_share(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = BatchReader(read_options(options, "batch"))
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for each in reader.partitions():
                    assert isinstance(each, ReadRange)
                    if each.end > each.start and each.partition % tasks == number:
                        yield from reader.read(each)

    return read_share
