"""Records by column: what `Consumer.poll_batches` gives, and its way into Arrow.

The columns hold no Python object for each record. `to_arrow` hands their memory to pyarrow without
a copy, under the names that Spark's Kafka source has: key, value, topic, partition, offset,
timestamp, timestampType, and headers if wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import KafkaError
from .records import BytesColumn, Columns
from .structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class RecordColumns:
    """Records of one partition, in order."""

    __slots__ = ("columns", "partition", "timestamp_type")

    def __init__(self, partition: TopicPartition, columns: Columns, append_time: bool) -> None:
        self.partition = partition
        self.columns = columns
        self.timestamp_type = LOG_APPEND_TIME if append_time else CREATE_TIME

    def __len__(self) -> int:
        return int(self.columns.count)

    def __repr__(self) -> str:
        return (
            f"<{len(self)} records of {self.partition.topic}-{self.partition.partition}, "
            f"offsets {self.offsets[0]} to {self.offsets[-1]}>"
        )

    @property
    def topic(self) -> str:
        return self.partition.topic

    @property
    def offsets(self) -> memoryview:
        """The offsets, as a memoryview of int64 (numpy.frombuffer takes it)."""
        return memoryview(self.columns.offsets).cast("q")

    @property
    def timestamps(self) -> memoryview:
        """Milliseconds, as a memoryview of int64."""
        return memoryview(self.columns.timestamps).cast("q")

    @property
    def keys(self) -> list[bytes | None]:
        """The keys, as a list: an object for each."""
        return unpacked(self.columns.keys)

    @property
    def values(self) -> list[bytes | None]:
        """The values, as a list: an object for each."""
        return unpacked(self.columns.values)

    @property
    def headers(self) -> list[list[tuple[str, bytes | None]]]:
        """The headers of each record."""
        given = self.columns.headers
        return [given.get(row, []) for row in range(len(self))]

    def to_arrow(self, *, headers: bool = False) -> pyarrow.RecordBatch:
        """A pyarrow record batch; with `headers`, a last column of lists of (key, value)."""
        arrow = import_pyarrow()
        count = len(self)
        stamps = arrow.py_buffer(self.columns.timestamps)
        names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
        arrays = [
            bytes_array(arrow, self.columns.keys, count),
            bytes_array(arrow, self.columns.values, count),
            constant(arrow, self.topic, arrow.string(), count),
            constant(arrow, self.partition.partition, arrow.int32(), count),
            arrow.Array.from_buffers(
                arrow.int64(), count, [None, arrow.py_buffer(self.columns.offsets)]
            ),
            arrow.Array.from_buffers(arrow.timestamp("ms", tz="UTC"), count, [None, stamps]),
            constant(arrow, self.timestamp_type, arrow.int32(), count),
        ]
        if headers:
            names.append("headers")
            arrays.append(arrow.array(self._header_rows(), header_type(arrow)))
        return arrow.RecordBatch.from_arrays(arrays, names=names)

    def _header_rows(self) -> list[list[dict[str, Any]]]:
        return [[{"key": key, "value": value} for key, value in row] for row in self.headers]


def bytes_array(arrow: Any, column: BytesColumn, count: int) -> Any:
    """A binary array over the memory of a column."""
    validity = arrow.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, arrow.py_buffer(column.offsets), arrow.py_buffer(column.data)]
    return arrow.Array.from_buffers(arrow.binary(), count, buffers, null_count=column.nulls)


def constant(arrow: Any, value: Any, kind: Any, count: int) -> Any:
    """The same value in every row, made outside of Python."""
    return arrow.repeat(arrow.scalar(value, kind), count)


def header_type(arrow: Any) -> Any:
    return arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))


def unpacked(column: BytesColumn) -> list[bytes | None]:
    """A column as Python objects."""
    ends = memoryview(column.offsets).cast("i")
    data, validity = column.data, column.validity
    return [
        bytes(data[ends[row] : ends[row + 1]]) if validity[row >> 3] >> (row & 7) & 1 else None
        for row in range(len(ends) - 1)
    ]


def import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise KafkaError(
            "to_arrow() needs pyarrow, which is not installed\nTry: pip install 'ottla[arrow]'"
        ) from None
    return pyarrow
