# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: warn.unreachable=False
# mypy: ignore-errors
# ruff: noqa: F821
"""Records out of batches, as tuples (`read_consumer_records`) or into columns (`read_columns`).

Compiles with Cython into `_record_reader_c` (see batch_builder.py, which also has the record's
format). What is read is the decompressed inside of one batch; whatever the bytes are, the outcome
is records or `CorruptRecords`.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import no_cython as cython

if cython.compiled:
    from cython.cimports.cpython.buffer import (
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
    from cython.cimports.cpython.ref import Py_INCREF
    from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
    from cython.cimports.cpython.version import PY_VERSION_HEX
    from cython.cimports.libc.string import memcpy
    from cython.cimports.posix.dlfcn import RTLD_NOW, dlopen, dlsym

from ottla.wire.records import crc32c

COMPILED = bool(cython.compiled)
FORM = 7  # as batch_builder.py's
RECORD_BYTES_MIN = 7

new_tuple = tuple.__new__


class CorruptRecords(ValueError):
    """The bytes of a batch are not records."""


def checksum(data) -> int:
    """The CRC-32C of bytes or of a view of them."""
    if cython.compiled and crc32c_value != cython.NULL:
        buffer: Py_buffer
        found: cython.uint
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            if buffer.len >= 16384:  # worth letting others have the interpreter's lock
                with cython.nogil:
                    found = crc32c_value(cython.cast(cython.p_uchar, buffer.buf), buffer.len)
            else:
                found = crc32c_value(cython.cast(cython.p_uchar, buffer.buf), buffer.len)
        finally:
            PyBuffer_Release(cython.address(buffer))
        return found
    return crc32c(data)


def find_checksum(path: bytes) -> bool:
    """Take the checksum's function from the library that Python's google_crc32c is made with: that
    takes views, and can do without the interpreter's lock. False if it is not to be found."""
    if cython.compiled:
        global crc32c_value
        library: cython.p_void = dlopen(path, RTLD_NOW)
        if library != cython.NULL:
            crc32c_value = cython.cast(Checksum, dlsym(library, b"crc32c_value"))
        return crc32c_value != cython.NULL
    return False


class BytesColumn:
    """Bytes of many rows in Arrow's layout: all of them, 32-bit ends, a bit for each not null."""

    __slots__ = ("data", "nulls", "offsets", "validity")

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets = bytearray(4)  # native int32, one more than there are values
        self.validity = bytearray()
        self.nulls = 0


class Columns:
    """Many records without an object for each; numbers are native int64.

    Headers are lists: `header_lists` has no bytes, its ends count in names and values, and it has
    rows only once some record has headers.
    """

    __slots__ = (
        "count", "header_lists", "header_names", "header_values", "keys", "offsets", "timestamps",
        "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.keys = BytesColumn()
        self.values = BytesColumn()
        self.header_lists = BytesColumn()
        self.header_names = BytesColumn()
        self.header_values = BytesColumn()


if cython.compiled:

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def take(p: cython.p_uchar, end: cython.p_uchar, value: cython.p_longlong) -> cython.p_uchar:
        """Read a number; the place after it, or NULL."""
        found: cython.ulonglong = 0
        shift: cython.int = 0
        byte: cython.uchar
        while p < end and shift < 64:
            byte = p[0]
            p += 1
            found |= cython.cast(cython.ulonglong, byte & 127) << shift
            if byte < 128:
                value[0] = cython.cast(cython.longlong, found >> 1) ^ -cython.cast(
                    cython.longlong, found & 1
                )
                return p
            shift += 7
        return cython.NULL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def parse(
        start: cython.p_uchar, p: cython.p_uchar, end: cython.p_uchar, f: cython.p_longlong
    ) -> cython.p_uchar:
        """Read one record into nine numbers (see `parse_plain`); the place after it, or NULL."""
        size: cython.longlong = 0
        stop: cython.p_uchar
        p = take(p, end, cython.address(size))
        if p == cython.NULL or size < 6 or size > end - p:  # RECORD_BYTES_MIN - 1
            return cython.NULL
        stop = p + size
        p = take(p + 1, stop, f)
        if p == cython.NULL:
            return p
        p = take(p, stop, f + 1)
        if p == cython.NULL:
            return p
        p = take(p, stop, f + 3)
        if p == cython.NULL or f[3] > stop - p:
            return cython.NULL
        f[2] = p - start
        if f[3] > 0:
            p += f[3]
        p = take(p, stop, f + 5)
        if p == cython.NULL or f[5] > stop - p:
            return cython.NULL
        f[4] = p - start
        if f[5] > 0:
            p += f[5]
        p = take(p, stop, f + 6)
        if p == cython.NULL or f[6] < 0 or (f[6] == 0 and p != stop):
            return cython.NULL
        f[7] = p - start
        f[8] = stop - start
        return stop

    @cython.cfunc
    @cython.inline
    def put_field(record: object, place: cython.Py_ssize_t, field: object) -> cython.void:
        """Put a field into a tuple that is being made."""
        Py_INCREF(field)
        PyTuple_SET_ITEM(record, place, field)


def number(data: bytes, pos: int) -> tuple:
    """A varint and the place after it."""
    byte = data[pos]
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    found, shift = byte & 127, 7
    while True:
        byte = data[pos]
        pos += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return (found >> 1) ^ -(found & 1), pos
        shift += 7
        if shift > 63:
            raise CorruptRecords("a number of more than 64 bits")


def parse_plain(data: bytes, pos: int) -> tuple:
    """One record: time and offset deltas, place and size of key and value, headers, end."""
    size, pos = number(data, pos)
    stop = pos + size
    if size < RECORD_BYTES_MIN - 1 or stop > len(data):
        raise CorruptRecords("a record that is cut off")
    delta, pos = number(data, pos + 1)
    index, pos = number(data, pos)
    key_size, key_at = number(data, pos)
    value_size, value_at = number(data, key_at + key_size if key_size > 0 else key_at)
    header_count, pos = number(data, value_at + value_size if value_size > 0 else value_at)
    if pos > stop or header_count < 0 or (header_count == 0 and pos != stop):
        raise CorruptRecords("a record whose parts do not fill it")
    return delta, index, key_at, key_size, value_at, value_size, header_count, pos, stop


def read_headers(data: bytes, pos: int, count: int, end: int) -> list:
    """`count` headers from `pos`, which end exactly at `end`."""
    return [
        (name.decode("utf-8", "replace"), content)
        for name, content in raw_headers(data, pos, count, end)
    ]


def raw_headers(data: bytes, pos: int, count: int, end: int) -> list:
    """The same with their names as bytes."""
    if not 0 <= count <= end - pos:
        raise CorruptRecords(f"{count} headers cannot fit into {end - pos} bytes")
    headers = []
    for _ in range(count):
        size, pos = number(data, pos)
        if size < 0 or pos + size > end:
            raise CorruptRecords("a header without a name")
        name = data[pos : pos + size]
        size, pos = number(data, pos + size)
        content = None if size < 0 else data[pos : pos + size]
        pos += max(size, 0)
        if pos > end:
            break
        headers.append((name, content))
    if pos != end:
        raise CorruptRecords(f"record ends at byte {pos}, its size says {end}")
    return headers


def check_count(size: int, count: int) -> None:
    if not 0 <= count <= size // RECORD_BYTES_MIN:
        raise CorruptRecords(f"{count} records cannot fit into {size} bytes")


def read_consumer_records(
    data,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    first_offset: int,
    place: tuple,
    key_deserializer,
    value_deserializer,
    make: type,
    begin: int = 0,
) -> list:
    """The records from `first_offset` on, as `make`: a tuple class with kafka-python's fields.

    `append_time` is -1, or the time of every record; `place` is topic, partition and leader epoch.
    Deserializers are functions of bytes or None, or None to leave them. The records are in `data`
    (bytes or a view of them) from byte `begin` on.
    """
    check_count(len(data) - begin, count)
    if not issubclass(make, tuple):
        raise TypeError(f"records are made as tuples, not as {make!r}")
    found = []
    if cython.compiled:
        buffer: Py_buffer
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            walk(cython.cast(cython.p_uchar, buffer.buf), buffer.len, begin, count, base_offset,
                 base_timestamp, append_time, first_offset, place, key_deserializer,
                 value_deserializer, make, found)  # fmt: skip
        except IndexError:
            raise CorruptRecords("a record ends inside a header") from None
        finally:
            PyBuffer_Release(cython.address(buffer))
    else:
        try:
            walk_plain(bytes(data), begin, count, base_offset, base_timestamp, append_time,
                       first_offset, place, key_deserializer, value_deserializer, make,
                       found)  # fmt: skip
        except IndexError:
            raise CorruptRecords("the batch ends inside a record") from None
    return found


if cython.compiled:

    @cython.cfunc
    def walk(
        start: cython.p_uchar,
        size: cython.Py_ssize_t,
        begin: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        first_offset: cython.longlong,
        place: tuple,
        key_deserializer: object,
        value_deserializer: object,
        make: object,
        found: list,
    ) -> object:
        """Read one record after the other into `found`.

        A record of bytes and numbers cannot be part of a cycle, so the collector need not look at
        it: thousands of young tuples would have it look again and again.
        """
        topic, partition, leader_epoch = place
        timestamp_type: object = 0 if append_time < 0 else 1
        atomic: cython.bint = key_deserializer is None and value_deserializer is None
        p: cython.p_uchar = start + begin
        end: cython.p_uchar = start + size
        f: cython.longlong[9]
        left: cython.Py_ssize_t
        timestamp: cython.longlong
        last_timestamp: cython.longlong = -1
        last_size: cython.longlong = -1
        time: object = -1
        key_size: object
        value_size: object = -1
        key: object
        value: object
        headers: list
        headers_size: object
        record: object
        kind: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), make)
        for left in range(count):  # noqa: B007
            p = parse(start, p, end, f)
            if p == cython.NULL:
                raise CorruptRecords("a record that is cut off or does not fill its size")
            if base_offset + f[1] < first_offset:
                continue
            key = None if f[3] < 0 else start[f[2] : f[2] + f[3]]
            value = None if f[5] < 0 else start[f[4] : f[4] + f[5]]
            if not atomic:
                if key_deserializer is not None:
                    key = key_deserializer(key)
                if value_deserializer is not None:
                    value = value_deserializer(value)
            timestamp = append_time if append_time >= 0 else base_timestamp + f[0]
            if timestamp != last_timestamp:
                last_timestamp = timestamp
                time = timestamp
            key_size = f[3] if f[3] >= 0 else -1
            if f[5] != last_size:
                last_size = f[5]
                value_size = f[5] if f[5] >= 0 else -1
            if f[6]:
                headers = read_headers(start[f[7] : f[8]], 0, f[6], f[8] - f[7])
                headers_size = f[8] - f[7]
            else:
                headers = []
                headers_size = -1
            if PY_VERSION_HEX < 0x030E0000:
                record = PyType_GenericAlloc(kind, 13)
                put_field(record, 0, topic)
                put_field(record, 1, partition)
                put_field(record, 2, leader_epoch)
                put_field(record, 3, base_offset + f[1])
                put_field(record, 4, time)
                put_field(record, 5, timestamp_type)
                put_field(record, 6, key)
                put_field(record, 7, value)
                put_field(record, 8, headers)
                put_field(record, 9, None)
                put_field(record, 10, key_size)
                put_field(record, 11, value_size)
                put_field(record, 12, headers_size)
            else:  # a tuple has more inside that only its own maker knows
                record = new_tuple(make, (
                    topic, partition, leader_epoch, base_offset + f[1], time, timestamp_type,
                    key, value, headers, None, key_size, value_size, headers_size,
                ))  # fmt: skip
            if atomic:
                PyObject_GC_UnTrack(headers)
                PyObject_GC_UnTrack(record)
            found.append(record)
        if p != end:
            raise CorruptRecords("bytes after the last record")
        return None


def walk_plain(
    data: bytes,
    at: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    first_offset: int,
    place: tuple,
    key_deserializer,
    value_deserializer,
    make,
    found: list,
) -> None:
    """Read one record after the other into `found`."""
    topic, partition, leader_epoch = place
    timestamp_type = 0 if append_time < 0 else 1
    for _ in range(count):
        f = parse_plain(data, at)
        at = f[8]
        if base_offset + f[1] < first_offset:
            continue
        key = None if f[3] < 0 else data[f[2] : f[2] + f[3]]
        value = None if f[5] < 0 else data[f[4] : f[4] + f[5]]
        if key_deserializer is not None:
            key = key_deserializer(key)
        if value_deserializer is not None:
            value = value_deserializer(value)
        fields = (
            topic, partition, leader_epoch,
            base_offset + f[1],
            append_time if append_time >= 0 else base_timestamp + f[0],
            timestamp_type, key, value,
            read_headers(data, f[7], f[6], f[8]) if f[6] else [],
            None,
            f[3] if f[3] >= 0 else -1,
            f[5] if f[5] >= 0 else -1,
            f[8] - f[7] if f[6] else -1,
        )  # fmt: skip
        found.append(new_tuple(make, fields))
    if at != len(data):
        raise CorruptRecords("bytes after the last record")


def read_columns(
    data,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    first_offset: int,
    columns: Columns,
    begin: int = 0,
) -> None:
    """Add the records from `first_offset` on to `columns`; nothing is added if they are corrupt.

    `data` is as for `read_consumer_records`.
    """
    check_count(len(data) - begin, count)
    if cython.compiled:
        buffer: Py_buffer
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            add_rows(cython.cast(cython.p_uchar, buffer.buf), buffer.len, begin, count, base_offset,
                     base_timestamp, append_time, first_offset, columns)  # fmt: skip
        except IndexError:
            raise CorruptRecords("a record ends inside a header") from None
        finally:
            PyBuffer_Release(cython.address(buffer))
    else:
        try:
            add_rows_plain(bytes(data), begin, count, base_offset, base_timestamp, append_time,
                           first_offset, columns)  # fmt: skip
        except IndexError:
            raise CorruptRecords("the batch ends inside a record") from None


def with_space(
    columns: Columns,
    kept: int,
    key_bytes: int,
    value_bytes: int,
    headers: int,
    name_bytes: int,
    content_bytes: int,
) -> None:
    """Make the columns larger by so much; what is new in them will be written over."""
    rows = columns.count + kept
    widen(columns.keys, rows, key_bytes)
    widen(columns.values, rows, value_bytes)
    grow(columns.offsets, 8 * rows)
    grow(columns.timestamps, 8 * rows)
    before = len(columns.header_names.offsets) // 4 - 1
    if headers:
        widen(columns.header_names, before + headers, name_bytes)
        widen(columns.header_values, before + headers, content_bytes)
    if headers or before:
        lists = columns.header_lists
        # Rows before the first one with headers end at 0, and are null.
        lists.offsets.extend(bytes(4 * (rows + 1) - len(lists.offsets)))
        lists.validity.extend(bytes((rows + 7) // 8 - len(lists.validity)))


def widen(column: BytesColumn, rows: int, more: int) -> None:
    grow(column.data, len(column.data) + more)
    grow(column.offsets, 4 * (rows + 1))
    column.validity.extend(bytes((rows + 7) // 8 - len(column.validity)))


def grow(buffer: bytearray, size: cython.Py_ssize_t) -> None:
    if cython.compiled:
        PyByteArray_Resize(buffer, size)
    else:
        buffer.extend(bytes(size - len(buffer)))


if cython.compiled:

    @cython.cfunc
    def add_rows(
        start: cython.p_uchar,
        size: cython.Py_ssize_t,
        begin: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        first_offset: cython.longlong,
        columns: object,
    ) -> object:
        """Measure, allocate, fill; without the interpreter's lock if that takes a while."""
        p: cython.p_uchar = start + begin
        end: cython.p_uchar = start + size
        found: cython.longlong[6]  # see `measure`
        good: cython.bint
        long: cython.bint = size >= 16384
        if long:
            with cython.nogil:
                good = measure(start, p, end, count, first_offset - base_offset, found)
        else:
            good = measure(start, p, end, count, first_offset - base_offset, found)
        if not good:
            raise CorruptRecords("a record that is cut off, or bytes after the last record")
        row: cython.Py_ssize_t = columns.count
        header: cython.Py_ssize_t = len(columns.header_names.offsets) // 4 - 1
        with_space(columns, found[0], found[1], found[2], found[3], found[4], found[5])
        keys = columns.keys
        values = columns.values
        to: RowBytes[5]  # keys, values, lists of headers, their names and values
        point(cython.address(to[0]), keys, found[1])
        point(cython.address(to[1]), values, found[2])
        point(cython.address(to[2]), columns.header_lists, 0)
        point(cython.address(to[3]), columns.header_names, found[4])
        point(cython.address(to[4]), columns.header_values, found[5])
        to[2].end = header if header or found[3] else -1
        offsets: cython.p_longlong = cython.cast(
            cython.p_longlong, PyByteArray_AS_STRING(columns.offsets)
        )
        timestamps: cython.p_longlong = cython.cast(
            cython.p_longlong, PyByteArray_AS_STRING(columns.timestamps)
        )
        if long:
            with cython.nogil:
                fill(start, p, end, count, base_offset, base_timestamp, append_time, first_offset,
                     row, offsets, timestamps, to)  # fmt: skip
        else:
            fill(start, p, end, count, base_offset, base_timestamp, append_time, first_offset,
                 row, offsets, timestamps, to)  # fmt: skip
        keys.nulls += to[0].nulls
        values.nulls += to[1].nulls
        columns.header_values.nulls += to[4].nulls
        columns.count = row + found[0]
        return None

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def measure(
        start: cython.p_uchar,
        p: cython.p_uchar,
        end: cython.p_uchar,
        count: cython.Py_ssize_t,
        first: cython.longlong,
        found: cython.p_longlong,
    ) -> cython.bint:
        """How many records from `first` on there are, bytes of their keys and values, how many
        headers, bytes of their names and values; False if they are no records."""
        f: cython.longlong[9]
        left: cython.Py_ssize_t
        for left in range(6):
            found[left] = 0
        for left in range(count):  # noqa: B007
            p = parse(start, p, end, f)
            if p == cython.NULL:
                return False
            if f[1] < first:
                continue
            found[0] += 1
            if f[3] > 0:
                found[1] += f[3]
            if f[5] > 0:
                found[2] += f[5]
            if f[6] and not measure_headers(start + f[7], start + f[8], f[6], found):
                return False
        return p == end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def measure_headers(
        p: cython.p_uchar, end: cython.p_uchar, count: cython.longlong, found: cython.p_longlong
    ) -> cython.bint:
        size: cython.longlong = 0
        while count > 0:
            p = take(p, end, cython.address(size))
            if p == cython.NULL or size < 0 or size > end - p:
                return False
            p += size
            found[4] += size
            p = take(p, end, cython.address(size))
            if p == cython.NULL or size > end - p:
                return False
            if size > 0:
                p += size
                found[5] += size
            found[3] += 1
            count -= 1
        return p == end

    @cython.cfunc
    def point(
        place: cython.pointer(RowBytes), column: object, size: cython.Py_ssize_t
    ) -> cython.void:
        """Where the new rows of a column of bytes go, which have so many."""
        data: bytearray = column.data
        place.data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(data))
        place.ends = cython.cast(cython.p_int, PyByteArray_AS_STRING(column.offsets))
        place.validity = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(column.validity))
        place.end = len(data) - size
        place.nulls = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def put_row(
        place: cython.pointer(RowBytes),
        row: cython.Py_ssize_t,
        bytes_at: cython.p_uchar,
        size: cython.longlong,
    ) -> cython.void:
        if size < 0:
            place.nulls += 1
        else:
            place.validity[row >> 3] |= 1 << (row & 7)
            if size > 0:
                memcpy(place.data + place.end, bytes_at, size)
                place.end += size
        place.ends[row + 1] = place.end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fill(
        start: cython.p_uchar,
        p: cython.p_uchar,
        end: cython.p_uchar,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        first_offset: cython.longlong,
        row: cython.Py_ssize_t,
        offsets: cython.p_longlong,
        timestamps: cython.p_longlong,
        to: cython.pointer(RowBytes),
    ) -> cython.void:
        """Write the numbers and bytes into the allocated memory."""
        f: cython.longlong[9]
        left: cython.Py_ssize_t
        for left in range(count):  # noqa: B007
            p = parse(start, p, end, f)
            if base_offset + f[1] < first_offset:
                continue
            offsets[row] = base_offset + f[1]
            timestamps[row] = append_time if append_time >= 0 else base_timestamp + f[0]
            put_row(to, row, start + f[2], f[3])
            put_row(to + 1, row, start + f[4], f[5])
            if to[2].end >= 0:
                if f[6]:
                    to[2].validity[row >> 3] |= 1 << (row & 7)
                    fill_headers(start + f[7], start + f[8], f[6], to[2].end, to + 3)
                    to[2].end += f[6]
                to[2].ends[row + 1] = to[2].end
            row += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fill_headers(
        p: cython.p_uchar,
        end: cython.p_uchar,
        count: cython.longlong,
        row: cython.Py_ssize_t,
        to: cython.pointer(RowBytes),
    ) -> cython.void:
        size: cython.longlong = 0
        while count > 0:
            p = take(p, end, cython.address(size))
            put_row(to, row, p, size)
            p = take(p + size, end, cython.address(size))
            put_row(to + 1, row, p, size)
            if size > 0:
                p += size
            row += 1
            count -= 1


def add_rows_plain(
    data: bytes,
    at: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    first_offset: int,
    columns: Columns,
) -> None:
    """Parse, allocate, fill."""
    rows = []
    for _ in range(count):
        f = parse_plain(data, at)
        at = f[8]
        if base_offset + f[1] >= first_offset:
            rows.append(f)
    if at != len(data):
        raise CorruptRecords("bytes after the last record")
    row = columns.count
    headers = [raw_headers(data, f[7], f[6], f[8]) if f[6] else [] for f in rows]
    pairs = [pair for each in headers for pair in each]
    header = len(columns.header_names.offsets) // 4 - 1
    with_space(columns, len(rows), 0, 0, len(pairs), 0, 0)
    offsets = memoryview(columns.offsets).cast("q")
    timestamps = memoryview(columns.timestamps).cast("q")
    for index, f in enumerate(rows, row):
        offsets[index] = base_offset + f[1]
        timestamps[index] = append_time if append_time >= 0 else base_timestamp + f[0]
    fill_plain(columns.keys, row, [span(data, f[2], f[3]) for f in rows])
    fill_plain(columns.values, row, [span(data, f[4], f[5]) for f in rows])
    if header or pairs:
        fill_plain(columns.header_names, header, [name for name, _ in pairs])
        fill_plain(columns.header_values, header, [content for _, content in pairs])
        ends = memoryview(columns.header_lists.offsets).cast("i")
        for index, each in enumerate(headers, row):
            header += len(each)
            ends[index + 1] = header
            columns.header_lists.validity[index >> 3] |= bool(each) << (index & 7)
    columns.count += len(rows)


def span(data: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else data[at : at + size]


def fill_plain(column: BytesColumn, row: int, items: list) -> None:
    """Put bytes into a column that has capacity for them from `row` on."""
    ends = memoryview(column.offsets).cast("i")
    for index, item in enumerate(items, row):
        if item is None:
            column.nulls += 1
        else:
            column.validity[index >> 3] |= 1 << (index & 7)
            column.data += item
        ends[index + 1] = len(column.data)
