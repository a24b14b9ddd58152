"""Records by column: what `Consumer.poll_batches` gives, and its way into Arrow.

The columns hold no Python object for each record. `to_arrow` gives their memory to pyarrow without
a copy, under the names that Spark's Kafka source has: key, value, topic, partition, offset,
timestamp, timestampType, and headers if wanted.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import KafkaError
from ..structs import TopicPartition
from .records import BytesColumn, Columns

if TYPE_CHECKING:
    import pyarrow

CREATE_TIME = 0
LOG_APPEND_TIME = 1
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
FACTORS = {"us": 1000, "ns": 1_000_000}  # of a millisecond
CONSTANTS_MAX = 64  # columns of one value that are kept to be used again


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
        return memoryview(self.columns.offsets).cast("q")[: len(self)]

    @property
    def timestamps(self) -> memoryview:
        """Milliseconds, as a memoryview of int64."""
        return memoryview(self.columns.timestamps).cast("q")[: len(self)]

    @property
    def keys(self) -> list[bytes | None]:
        """The keys, as a list: an object for each."""
        return unpacked(self.columns.keys, len(self))

    @property
    def values(self) -> list[bytes | None]:
        """The values, as a list: an object for each."""
        return unpacked(self.columns.values, len(self))

    @property
    def headers(self) -> list[list[tuple[str, bytes | None]]]:
        """The headers of each record."""
        columns = self.columns
        if not has_headers(columns):
            return [[] for _ in range(len(self))]
        ends = memoryview(columns.header_lists.offsets).cast("i")
        names = unpacked(columns.header_names, ends[len(self)])
        values = unpacked(columns.header_values, ends[len(self)])
        pairs = [
            ((name or b"").decode("utf-8", "replace"), value)
            for name, value in zip(names, values, strict=True)
        ]
        return [pairs[ends[row] : ends[row + 1]] for row in range(len(self))]

    def cut(self, end: int) -> None:
        """Leave out the records from offset `end` on; nothing is copied."""
        offsets = self.offsets
        if len(offsets) and offsets[-1] >= end:
            self.columns.count = bisect_left(offsets, end)

    def to_arrow(
        self, *, headers: bool = False, columns: Sequence[str] | None = None, unit: str = "ms"
    ) -> pyarrow.RecordBatch:
        """A pyarrow record batch; with `headers`, a last column of lists of (key, value).

        `columns` says which columns, and in which order; there a record without headers has null
        in `headers`, as in Spark. `unit` is that of the timestamps.
        """
        arrow = import_pyarrow()
        names = list(COLUMNS if columns is None else columns)
        arrays = [self._arrow_column(arrow, name, unit) for name in names]
        if headers and "headers" not in names:
            names.append("headers")
            arrays.append(self._arrow_headers(arrow, null=False))
        return arrow.RecordBatch.from_arrays(arrays, names=names)

    def _arrow_column(self, arrow: ModuleType, name: str, unit: str) -> pyarrow.Array:
        """One column, over the memory that is there."""
        count = len(self)
        match name:
            case "key":
                return bytes_array(arrow, self.columns.keys, count)
            case "value":
                return bytes_array(arrow, self.columns.values, count)
            case "topic":
                return constant(arrow, self.topic, arrow.string(), count)
            case "partition":
                return constant(arrow, self.partition.partition, arrow.int32(), count)
            case "offset":
                return numbers_array(arrow, arrow.int64(), self.columns.offsets, count)
            case "timestamp":
                return times_array(arrow, self.columns.timestamps, count, unit)
            case "timestampType":
                return constant(arrow, self.timestamp_type, arrow.int32(), count)
            case "headers":
                return self._arrow_headers(arrow, null=True)
            case _:
                raise ValueError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")

    def _arrow_headers(self, arrow: ModuleType, *, null: bool) -> pyarrow.Array:
        """The headers as lists; a record without any has an empty one, or null."""
        count = len(self)
        kind = header_type(arrow)
        columns = self.columns
        if null and not has_headers(columns):
            return arrow.nulls(count, kind)
        total = len(columns.header_names.offsets) // 4 - 1
        content = arrow.StructArray.from_arrays(
            [
                as_text(arrow, bytes_array(arrow, columns.header_names, total)),
                bytes_array(arrow, columns.header_values, total),
            ],
            fields=list(kind.value_type),
        )
        lists = columns.header_lists
        ends = lists.offsets if has_headers(columns) else bytes(4 * (count + 1))
        validity = arrow.py_buffer(lists.validity) if null else None
        return arrow.Array.from_buffers(
            kind, count, [validity, arrow.py_buffer(ends)], children=[content]
        )


def has_headers(columns: Columns) -> bool:
    """Whether any record has some."""
    return len(columns.header_lists.offsets) > 4


def as_text(arrow: ModuleType, names: pyarrow.Array) -> pyarrow.Array:
    """Names as text; what is not UTF-8 in them is replaced."""
    try:
        return names.cast(arrow.string())
    except arrow.ArrowInvalid:
        return arrow.array([name.decode("utf-8", "replace") for name in names.to_pylist()])


def bytes_array(arrow: ModuleType, column: BytesColumn, count: int) -> pyarrow.Array:
    """A binary array over the memory of a column."""
    validity = arrow.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, arrow.py_buffer(column.offsets), arrow.py_buffer(column.data)]
    return arrow.Array.from_buffers(arrow.binary(), count, buffers)


def numbers_array(
    arrow: ModuleType, kind: pyarrow.DataType, data: bytes | bytearray | memoryview, count: int
) -> pyarrow.Array:
    """An array of int64 (whatever they mean) over their memory."""
    return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(data)])


def times_array(arrow: ModuleType, data: bytearray, count: int, unit: str) -> pyarrow.Array:
    """Milliseconds as timestamps in `unit`; raises ArrowInvalid if one is too large for it."""
    if unit != "ms":
        numpy, factor = sys.modules.get("numpy"), FACTORS[unit]
        if numpy is not None:  # the cast would first import pyarrow.compute, which takes 60 ms
            times = numpy.frombuffer(data, "int64")
            if not count or (abs(int(times.min())) | abs(int(times.max()))) < 2**63 // factor:
                kind = arrow.timestamp(unit, tz="UTC")
                return numbers_array(arrow, kind, times * factor, count)
    found = numbers_array(arrow, arrow.timestamp("ms", tz="UTC"), data, count)
    return found if unit == "ms" else found.cast(arrow.timestamp(unit, tz="UTC"))


constants: dict[tuple[str | int, str], pyarrow.Array] = {}


def constant(
    arrow: ModuleType, value: str | int, kind: pyarrow.DataType, count: int
) -> pyarrow.Array:
    """The same value in every row; made once and sliced."""
    known = constants.get((value, str(kind)))
    if known is None or len(known) < count:
        if len(constants) >= CONSTANTS_MAX:
            constants.clear()
        known = repeated(arrow, value, kind, 1 << max(count - 1, 0).bit_length())
        constants[value, str(kind)] = known
    return known.slice(0, count)


def repeated(
    arrow: ModuleType, value: str | int, kind: pyarrow.DataType, count: int
) -> pyarrow.Array:
    """A text or a 32-bit number `count` times, from memory: for a Python value pyarrow would first
    import pandas if it is there, which takes 0.2 s."""
    if isinstance(value, int):
        numbers = array("i", [value]) * count
        return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(numbers)])
    data = value.encode()
    ends = array("i", [n * len(data) for n in range(count + 1)])
    buffers = [None, arrow.py_buffer(ends), arrow.py_buffer(data * count)]
    return arrow.Array.from_buffers(kind, count, buffers)


def header_type(arrow: ModuleType) -> pyarrow.DataType:
    return arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))


def unpacked(column: BytesColumn, count: int) -> list[bytes | None]:
    """A column as Python objects."""
    ends = memoryview(column.offsets).cast("i")
    data, validity = column.data, column.validity
    return [
        bytes(data[ends[row] : ends[row + 1]]) if validity[row >> 3] >> (row & 7) & 1 else None
        for row in range(count)
    ]


def import_pyarrow() -> ModuleType:
    try:
        return import_module("pyarrow")
    except ImportError:
        raise KafkaError(
            "to_arrow() needs pyarrow, which is not installed\nTry: pip install 'ottla[arrow]'"
        ) from None
