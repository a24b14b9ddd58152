# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: warn.unreachable=False
# mypy: ignore-errors
"""Rows of Arrow's columns into batches, one for each partition: no Python object for a row.

Compiles with Cython into `_column_writer_c` (see batch_builder.py); the fields of a `BatchBuilder`
and the functions of the record format are then used in C.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import no_cython as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_Resize
    from cython.cimports.ottla.client.codec._batch_builder_c import BatchBuilder
    from cython.cimports.ottla.client.codec._inline_functions_c import (
        hash_of,
        put,
        put_sized,
        sized,
        varint_size,
    )

    from ._batch_builder_c import FORM, HEAD_BYTES
else:
    from .batch_builder import FORM, HEAD_BYTES, BatchBuilder, murmur2

__all__ = ["COMPILED", "FORM", "ArrowBytes", "ArrowHeaders", "ColumnWriter"]

COMPILED = bool(cython.compiled)


@cython.final
@cython.cclass
class ArrowBytes:
    """Bytes, strings or lists of many rows, as Arrow lays them out.

    Row 0 is number `first` of the buffers. `ends` are native integers of `width` bytes, one more
    than there are rows; `validity` has a bit for each row, or is empty: no nulls. `data` may be
    empty for lists: then only its `size` counts.
    """

    if not cython.compiled:
        __slots__ = ("count", "data", "ends", "first", "held", "size", "validity")

    count: cython.Py_ssize_t
    first: cython.Py_ssize_t
    size: cython.Py_ssize_t
    held: object
    if cython.compiled:
        data: cython.p_uchar
        validity: cython.p_uchar
        ends_4: cython.p_int
        ends_8: cython.p_longlong

    def __init__(self, data, ends, width: int, validity, first: int, count: int, size: int) -> None:
        if len(ends) < width * (first + count + 1) or 8 * len(validity) < bool(validity) * (
            first + count
        ):
            raise ValueError(
                f"buffers of a column are too small for rows {first} to {first + count}"
            )
        self.held = (data, ends, validity)
        self.first = first
        self.count = count
        self.size = size
        if cython.compiled:
            bytes_in: cython.const[cython.uchar][::1] = data
            ends_in: cython.const[cython.uchar][::1] = ends
            validity_in: cython.const[cython.uchar][::1] = validity
            self.data = cython.cast(cython.p_uchar, cython.address(bytes_in[0]))
            at: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(ends_in[0]))
            self.ends_4 = cython.cast(cython.p_int, at) if width == 4 else cython.NULL
            self.ends_8 = cython.cast(cython.p_longlong, at) if width == 8 else cython.NULL
            at = cython.cast(cython.p_uchar, cython.address(validity_in[0]))
            self.validity = at if len(validity) else cython.NULL
        else:
            self.data = data
            self.ends = memoryview(ends)[: len(ends) // width * width].cast(
                "i" if width == 4 else "q"
            )
            self.validity = validity

    if cython.compiled:

        @cython.cfunc
        @cython.inline
        @cython.exceptval(check=False)
        def find(self, row: cython.Py_ssize_t, start: cython.p_longlong) -> cython.longlong:
            """How much the row has, and where it begins; -1 is null, -2 are wrong ends."""
            end: cython.longlong
            row += self.first
            if self.validity != cython.NULL and not (self.validity[row >> 3] >> (row & 7)) & 1:
                return -1
            if self.ends_4 != cython.NULL:
                start[0] = self.ends_4[row]
                end = self.ends_4[row + 1]
            else:
                start[0] = self.ends_8[row]
                end = self.ends_8[row + 1]
            if start[0] < 0 or end < start[0] or end > self.size:
                return -2
            return end - start[0]

    else:

        def find(self, row: int):
            """Where the row begins and ends, or None."""
            row += self.first
            if self.validity and not self.validity[row >> 3] >> (row & 7) & 1:
                return None
            start, end = self.ends[row], self.ends[row + 1]
            if not 0 <= start <= end <= self.size:
                raise ValueError(WRONG_ENDS)
            return start, end

        def get(self, row: int) -> bytes | None:
            place = self.find(row)
            return None if place is None else bytes(self.data[place[0] : place[1]])


WRONG_ENDS = "a column whose offsets do not lie in its data"
NAMELESS = "a header without a name"


@cython.final
@cython.cclass
class ArrowHeaders:
    """The headers of many rows: lists of names and contents."""

    if not cython.compiled:
        __slots__ = ("contents", "lists", "names", "scratch")

    lists: ArrowBytes
    names: ArrowBytes
    contents: ArrowBytes
    scratch: bytearray

    def __init__(self, lists: ArrowBytes, names: ArrowBytes, contents: ArrowBytes) -> None:
        if names.count < lists.size or contents.count < lists.size:
            raise ValueError("a column of headers with fewer names or values than its lists have")
        self.lists = lists
        self.names = names
        self.contents = contents
        self.scratch = bytearray(256)

    if cython.compiled:

        @cython.cfunc
        def encode(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
            """Put the headers of a row into `scratch`; their bytes, or 0 if there are none."""
            start: cython.longlong = 0
            name: cython.longlong = 0
            content: cython.longlong = 0
            each: cython.longlong
            name_size: cython.longlong
            content_size: cython.longlong
            count: cython.longlong = self.lists.find(row, cython.address(start))
            if count == -2:
                raise ValueError(WRONG_ENDS)
            if count <= 0:
                return 0
            size: cython.Py_ssize_t = varint_size(cython.cast(cython.ulonglong, count) << 1)
            for each in range(start, start + count):
                name_size = self.names.find(each, cython.address(name))
                content_size = self.contents.find(each, cython.address(content))
                if name_size == -1:
                    raise ValueError(NAMELESS)
                if name_size == -2 or content_size == -2:
                    raise ValueError(WRONG_ENDS)
                size += sized(name_size) + sized(content_size)
            if size > len(self.scratch):
                PyByteArray_Resize(self.scratch, 2 * size)
            p: cython.p_uchar = cython.cast(
                cython.p_uchar, cython.cast(cython.p_char, self.scratch)
            )
            p = put(p, cython.cast(cython.ulonglong, count) << 1)
            for each in range(start, start + count):
                name_size = self.names.find(each, cython.address(name))
                content_size = self.contents.find(each, cython.address(content))
                p = put_sized(p, self.names.data + name, name_size)
                p = put_sized(p, self.contents.data + content, content_size)
            return size

    else:

        def get(self, row: int) -> list:
            place = self.lists.find(row)
            found = []
            for each in range(*place) if place is not None else ():
                name = self.names.get(each)
                if name is None:
                    raise ValueError(NAMELESS)
                found.append((name, self.contents.get(each)))
            return found


@cython.final
@cython.cclass
class ColumnWriter:
    """Rows into one open batch for each partition; full ones go to `done` with their partition.

    A batch has `batch_bytes` at most, unless a single row is larger. Rows without partition and key
    go to `spread_to`, which moves on every `run_bytes`. When all open batches together have more
    than `open_bytes_max`, all are closed.
    """

    if not cython.compiled:
        __slots__ = (
            "batch_bytes", "done", "first_bytes", "open", "open_bytes", "open_bytes_max",
            "partition_count", "run_bytes", "run_left", "spread_to",
        )  # fmt: skip

    partition_count: cython.Py_ssize_t
    batch_bytes: cython.Py_ssize_t
    first_bytes: cython.Py_ssize_t
    run_bytes: cython.Py_ssize_t
    run_left: cython.Py_ssize_t
    open_bytes: cython.Py_ssize_t
    open_bytes_max: cython.Py_ssize_t
    spread_to: cython.Py_ssize_t
    open: list
    done: list

    def __init__(
        self,
        partition_count: int,
        batch_bytes: int,
        run_bytes: int,
        open_bytes_max: int,
        spread_to: int,
    ) -> None:
        self.partition_count = partition_count
        self.batch_bytes = max(batch_bytes - HEAD_BYTES, 0)
        self.first_bytes = min(FIRST_BYTES, self.batch_bytes)
        self.run_bytes = run_bytes
        self.run_left = run_bytes
        self.open_bytes = 0
        self.open_bytes_max = open_bytes_max
        self.spread_to = spread_to
        self.open = [None] * partition_count
        self.done = []

    def write(
        self,
        count: cython.Py_ssize_t,
        values: ArrowBytes | None,
        keys: ArrowBytes | None,
        partitions,
        headers: ArrowHeaders | None,
        timestamps,
        timestamp: cython.longlong,
    ) -> None:
        """Add rows. `partitions` is a buffer of native int32, -1 where none is given, or None;
        `timestamps` one of native int64, or None: then every row has `timestamp`."""
        if (
            (values is not None and values.count < count)
            or (keys is not None and keys.count < count)
            or (partitions is not None and len(partitions) < 4 * count)
            or (headers is not None and headers.lists.count < count)
            or (timestamps is not None and len(timestamps) < 8 * count)
        ):
            raise ValueError("columns of different lengths")
        if count:
            self.write_rows(count, values, keys, partitions, headers, timestamps, timestamp)

    def write_rows(
        self,
        count: cython.Py_ssize_t,
        values: ArrowBytes | None,
        keys: ArrowBytes | None,
        partitions,
        headers: ArrowHeaders | None,
        timestamps,
        timestamp: cython.longlong,
    ) -> None:
        row: cython.Py_ssize_t
        number: cython.Py_ssize_t
        total: cython.Py_ssize_t
        spread: cython.bint
        if cython.compiled:
            places: cython.p_int = cython.NULL
            times: cython.p_longlong = cython.NULL
            key: cython.longlong = 0
            value: cython.longlong = 0
            key_size: cython.longlong = -1
            value_size: cython.longlong = -1
            headers_size: cython.Py_ssize_t = 0
            headers_at: cython.p_uchar = cython.NULL
            key_data: cython.p_uchar = cython.NULL if keys is None else keys.data
            value_data: cython.p_uchar = cython.NULL if values is None else values.data
            if partitions is not None:
                places_in: cython.const[cython.uchar][::1] = partitions
                places = cython.cast(cython.p_int, cython.address(places_in[0]))
            if timestamps is not None:
                times_in: cython.const[cython.uchar][::1] = timestamps
                times = cython.cast(cython.p_longlong, cython.address(times_in[0]))
            builder: BatchBuilder
        else:
            places = None if partitions is None else memoryview(partitions).cast("i")
            times = None if timestamps is None else memoryview(timestamps).cast("q")
        for row in range(count):
            if cython.compiled:
                if keys is not None:
                    key_size = keys.find(row, cython.address(key))
                if values is not None:
                    value_size = values.find(row, cython.address(value))
                if key_size == -2 or value_size == -2:
                    raise ValueError(WRONG_ENDS)
                if headers is not None:
                    headers_size = headers.encode(row)
                    headers_at = cython.cast(
                        cython.p_uchar, cython.cast(cython.p_char, headers.scratch)
                    )
                if times != cython.NULL:
                    timestamp = times[row]
                number = places[row] if places != cython.NULL else -1
                spread = number < 0 and key_size < 0
                if number < 0:
                    number = (
                        self.spread_to
                        if spread
                        else hash_of(key_data + key, key_size) % self.partition_count
                    )
            else:
                key = None if keys is None else keys.get(row)
                value = None if values is None else values.get(row)
                given = () if headers is None else headers.get(row)
                if times is not None:
                    timestamp = times[row]
                number = -1 if places is None else places[row]
                spread = number < 0 and key is None
                if number < 0:
                    number = self.spread_to if spread else murmur2(key) % self.partition_count
            if number >= self.partition_count:
                raise ValueError(f"partition {number}: the topic has {self.partition_count}")
            found = self.open[number]
            if found is None:
                found = self.open[number] = BatchBuilder(self.first_bytes)
            if cython.compiled:
                builder = cython.cast(BatchBuilder, found)
                total = -builder.size
                total += builder.add(
                    timestamp, key_data + key, key_size, value_data + value, value_size,
                    headers_at, headers_size,
                )  # fmt: skip
                if total < 0:
                    builder = self.with_space(number, -total - builder.size)
                    total = -builder.size
                    total += builder.add(
                        timestamp, key_data + key, key_size, value_data + value, value_size,
                        headers_at, headers_size,
                    )  # fmt: skip
            else:
                before = found.size
                size = found.append(timestamp, key, value, given)
                if size < 0:
                    found = self.with_space(number, -size)
                    before = found.size
                    size = found.append(timestamp, key, value, given)
                total = size - before
            self.open_bytes += total
            if spread:
                self.run_left -= total
                if self.run_left <= 0:
                    self.run_left = self.run_bytes
                    self.spread_to = (number + 1) % self.partition_count
            if self.open_bytes > self.open_bytes_max:
                self.close()

    def with_space(self, number: cython.Py_ssize_t, needed: cython.Py_ssize_t) -> BatchBuilder:
        """A batch of this partition with space for so many bytes: the open one or a new one."""
        builder: BatchBuilder = self.open[number]
        if builder.count and builder.size + needed > self.batch_bytes:
            self.close_one(number)
            # A partition that filled a batch will fill another one.
            builder = self.open[number] = BatchBuilder(max(needed, self.batch_bytes))
        else:
            wanted = min(GROWTH * builder.capacity, self.batch_bytes)
            builder.grow(max(wanted, builder.size + needed))
        return builder

    def close_one(self, number: cython.Py_ssize_t) -> None:
        """The open batch of this partition is done."""
        builder: BatchBuilder = self.open[number]
        self.open_bytes -= builder.size
        self.open[number] = None
        self.done.append((number, builder))

    def close(self) -> None:
        """All open batches are done."""
        for number in range(self.partition_count):
            if self.open[number] is not None:
                self.close_one(number)

    def take(self) -> list:
        """What is done: partitions and builders."""
        done, self.done = self.done, []
        return done

    @property
    def next_partition(self) -> int:
        """Where the next row without partition and key goes."""
        return self.spread_to


FIRST_BYTES = 4 * 1024  # of a new buffer
GROWTH = 8  # a buffer that is full gets so many times larger
