"""Columns of rows into record batches, one stream of batches for each partition.

A row's partition is the one its `partitions` column names; else that of its key, as Java's default
partitioner has it (murmur2); rows with neither go to one partition after the other in runs, so that
batches fill. Within a partition rows keep their order. The batches belong to no producer yet:
`RawProducer` stamps them.

Columns are pyarrow's. Their memory is read where it is by the loop in column_writer.py;
compiled, it makes no Python object for a row.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from ..codec.columns import import_pyarrow
from ..codec.records import ArrowBytes, ArrowHeaders, ColumnWriter
from .batch_encoding import seal
from .options import CODECS

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ColumnBatches", "EncodedBatch"]

BATCH_BYTES = 512 * 1024  # half of what a broker takes by default (message.max.bytes)
RUN_PART = 8  # rows without a key change partition so many times while a batch fills
OPEN_BYTES_MAX = 64 * 1024 * 1024  # in batches that are not full, over all partitions


class EncodedBatch(NamedTuple):
    """A finished batch; `data` is not shared, and can be pickled."""

    partition: int
    data: bytes | bytearray
    records: int


class ColumnBatches:
    """Batches of one topic.

    `batch_bytes` counts before compression, and is exceeded only by a single row that is larger.
    After an error some of the rows may be in, and some not: throw it away.
    """

    def __init__(
        self,
        partition_count: int,
        *,
        compression: str = "none",
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        spread_from: int = 0,
    ) -> None:
        if partition_count < 1:
            raise ValueError(f"partition_count must be 1 or more (got {partition_count})")
        if compression not in CODECS:
            raise ValueError(f"compression must be one of {', '.join(CODECS)}")
        self.partition_count = partition_count
        self.codec = CODECS[compression]
        self.level = level
        self._writer = ColumnWriter(
            partition_count,
            batch_bytes,
            batch_bytes // RUN_PART,
            OPEN_BYTES_MAX,
            spread_from % partition_count,
        )

    def add(
        self,
        values: object,
        keys: object = None,
        partitions: object = None,
        headers: object = None,
        timestamps_ms: object = None,
    ) -> None:
        """Add rows: pyarrow arrays, plain or chunked, of the same length; None is a null each.

        `partitions` are whole numbers, null where none is given; `headers` lists of structs of key
        and value; `timestamps_ms` a number for all, or an array of numbers or of timestamps, null
        for now.
        """
        arrow = import_pyarrow()
        now = int(time.time() * 1000)
        single = now
        if isinstance(timestamps_ms, int):
            single, timestamps_ms = timestamps_ms, None
        columns = {
            "values": values,
            "keys": keys,
            "partitions": partitions,
            "headers": headers,
            "timestamps": timestamps_ms,
        }
        given = {name: column for name, column in columns.items() if column is not None}
        if any(isinstance(column, arrow.ChunkedArray) for column in given.values()):
            pieces = arrow.table(given).to_batches()
        else:
            pieces = [arrow.RecordBatch.from_pydict(given)]
        for piece in pieces:
            found = dict(zip(piece.schema.names, piece.columns, strict=True))
            self._writer.write(
                piece.num_rows,
                bytes_of(arrow, found.get("values"), "values"),
                bytes_of(arrow, found.get("keys"), "keys"),
                self._partitions(arrow, found.get("partitions")),
                headers_of(arrow, found.get("headers")),
                times_of(arrow, found.get("timestamps"), now),
                single,
            )

    def _partitions(self, arrow: ModuleType, column: pyarrow.Array | None) -> memoryview | None:
        """Numbers as the loop wants them, all of partitions that there are."""
        if column is None or column.null_count == len(column):
            return None
        if not arrow.types.is_integer(column.type):
            raise TypeError(f"partitions must be whole numbers (got {column.type})")
        from pyarrow import compute

        bounds = compute.min_max(column)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low < 0 or high >= self.partition_count:
            raise ValueError(
                f"partition {low if low < 0 else high}: the topic has {self.partition_count} "
                f"partitions, from 0 to {self.partition_count - 1}"
            )
        return numbers(column.cast(arrow.int32()).fill_null(-1), 4)

    def take(self, *, rest: bool = False) -> list[EncodedBatch]:
        """The batches that are full, in order by partition; with `rest` all there are."""
        if rest:
            self._writer.close()
        return [
            EncodedBatch(number, seal(builder, self.codec, self.level), builder.record_count)
            for number, builder in self._writer.take()
        ]

    @property
    def spread_to(self) -> int:
        """The partition that the next row without partition and key goes to."""
        return int(self._writer.next_partition)


def bytes_of(arrow: ModuleType, column: pyarrow.Array | None, name: str) -> ArrowBytes | None:
    """A column of bytes or text for the loop; None if it is null throughout."""
    if column is None or column.null_count == len(column):
        return None
    kinds = arrow.types
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if kinds.is_binary(kind) or kinds.is_string(kind):
        width = 4
    else:
        width = 8
        if not (kinds.is_large_binary(kind) or kinds.is_large_string(kind)):
            column = as_large(arrow, column, name)
    validity, ends, data = column.buffers()
    if column.null_count == 0:
        validity = None
    held = view(data)
    return ArrowBytes(
        held, view(ends), width, view(validity), column.offset, len(column), len(held)
    )


def as_large(arrow: ModuleType, column: pyarrow.Array, name: str) -> pyarrow.Array:
    """Other layouts of bytes and text in the one with 64-bit offsets."""
    kinds = arrow.types
    others = (kinds.is_binary_view, kinds.is_string_view, kinds.is_fixed_size_binary)
    if not any(is_kind(column.type) for is_kind in others):
        raise TypeError(f"{name} must be binary or string (got {column.type})")
    return column.cast(arrow.large_binary())


def headers_of(arrow: ModuleType, column: pyarrow.Array | None) -> ArrowHeaders | None:
    """A column of headers for the loop; None if there are none at all."""
    if column is None or column.null_count == len(column):
        return None
    kinds = arrow.types
    kind = column.type
    if (
        not (kinds.is_list(kind) or kinds.is_large_list(kind))
        or not kinds.is_struct(kind.value_type)
        or kind.value_type.num_fields != 2
    ):
        raise TypeError(f"headers must be list<struct<key: string, value: binary>> (got {kind})")
    width = 4 if kinds.is_list(kind) else 8
    validity, ends = column.buffers()[:2]
    if column.null_count == 0:
        validity = None
    names, contents = column.values.flatten()
    return ArrowHeaders(
        ArrowBytes(b"", view(ends), width, view(validity), column.offset, len(column), len(names)),
        required(arrow, names, "header keys"),
        required(arrow, contents, "header values"),
    )


def required(arrow: ModuleType, column: pyarrow.Array, name: str) -> ArrowBytes:
    """A column of bytes for the loop, even if it has nothing but nulls."""
    if arrow.types.is_null(column.type):
        column = column.cast(arrow.binary())
    found = bytes_of(arrow, column, name)
    if found is not None:
        return found
    count = len(column)
    return ArrowBytes(b"", bytes(4 * (count + 1)), 4, bytes(count // 8 + 1), 0, count, 0)


def times_of(arrow: ModuleType, column: pyarrow.Array | None, now: int) -> memoryview | None:
    """Milliseconds as the loop wants them; None if no row has a time of its own."""
    if column is None or column.null_count == len(column):
        return None
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("ms", tz=column.type.tz), safe=False)
    elif not arrow.types.is_integer(column.type):
        raise TypeError(f"timestamps_ms must be whole numbers or timestamps (got {column.type})")
    return numbers(column.cast(arrow.int64()).fill_null(now), 8)


def numbers(column: pyarrow.Array, width: int) -> memoryview:
    """The numbers of an array without nulls."""
    start = column.offset * width
    return view(column.buffers()[1])[start : start + len(column) * width]


def view(buffer: pyarrow.Buffer | None) -> memoryview:
    """The bytes of a buffer that Arrow has, or leaves out."""
    return memoryview(b"" if buffer is None else buffer).cast("B")
