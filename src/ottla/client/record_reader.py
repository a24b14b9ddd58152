# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: ignore-errors
# ruff: noqa: F821
"""The loops that run once per record received: a batch as records, or as columns.

This one file runs as it is and compiles with Cython, in its pure-Python mode, into the extension
`_record_reader_c`; records.py chooses. Input is the decompressed inside of one batch. Whatever the
bytes are, the outcome is records or `CorruptRecords`.
"""

from __future__ import annotations

import gc

try:
    import cython
except ImportError:
    from . import no_cython as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_Resize
    from cython.cimports.libc.string import memcpy

COMPILED = bool(cython.compiled)
FORM = 3  # raised with every change of what records.py sees, so that an old extension is not taken
RECORD_BYTES_MIN = 7

new_tuple = tuple.__new__


class CorruptRecords(ValueError):
    """The bytes of a batch are not records."""


class BytesColumn:
    """Keys or values in Arrow's layout: all bytes, 32-bit ends, a bit for each that is not null."""

    __slots__ = ("data", "nulls", "offsets", "validity")

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets = bytearray(4)  # native int32, one more than there are values
        self.validity = bytearray()
        self.nulls = 0


class Columns:
    """Many records without an object for each; numbers are native int64."""

    __slots__ = ("count", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.count = 0
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.keys = BytesColumn()
        self.values = BytesColumn()
        self.headers: dict[int, list] = {}  # by the number of the row; most have none


if cython.compiled:

    @cython.cfunc
    @cython.inline
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
    def parse(
        start: cython.p_uchar, p: cython.p_uchar, end: cython.p_uchar, f: cython.p_longlong
    ) -> cython.p_uchar:
        """Read one record into nine numbers (see `parse_plain`); the place after it, or NULL."""
        size: cython.longlong = 0
        stop: cython.p_uchar
        p = take(p, end, cython.address(size))
        if p == cython.NULL or size < RECORD_BYTES_MIN - 1 or size > end - p:
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
    if not 0 <= count <= end - pos:
        raise CorruptRecords(f"{count} headers cannot fit into {end - pos} bytes")
    headers = []
    for _ in range(count):
        size, pos = number(data, pos)
        if size < 0 or pos + size > end:
            raise CorruptRecords("a header without a name")
        name = data[pos : pos + size].decode("utf-8", "replace")
        size, pos = number(data, pos + size)
        content = None if size < 0 else data[pos : pos + size]
        pos += max(size, 0)
        headers.append((name, content))
    if pos != end:
        raise CorruptRecords(f"record ends at byte {pos}, its size says {end}")
    return headers


def check_count(size: int, count: int) -> None:
    if not 0 <= count <= size // RECORD_BYTES_MIN:
        raise CorruptRecords(f"{count} records cannot fit into {size} bytes")


def read_consumer_records(
    data: bytes,
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
    from byte `begin` on.
    """
    check_count(len(data) - begin, count)
    found = []
    # Thousands of new tuples would make the collector look at them again and again, and none of
    # them can be garbage yet.
    paused = COMPILED and key_deserializer is None and value_deserializer is None and gc.isenabled()
    if paused:
        gc.disable()
    try:
        walk(data, count, base_offset, base_timestamp, append_time, first_offset, place,
             key_deserializer, value_deserializer, make, found, begin)  # fmt: skip
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    finally:
        if paused:
            gc.enable()
    return found


def walk(
    data: bytes,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_time: cython.longlong,
    first_offset: cython.longlong,
    place: tuple,
    key_deserializer,
    value_deserializer,
    make,
    found: list,
    begin: cython.Py_ssize_t,
) -> None:
    """Read one record after the other into `found`."""
    topic, partition, leader_epoch = place
    timestamp_type = 0 if append_time < 0 else 1
    at: cython.Py_ssize_t = begin
    left: cython.Py_ssize_t
    offset: cython.longlong
    timestamp: cython.longlong
    if cython.compiled:
        start: cython.p_uchar = data
        p: cython.p_uchar = start + begin
        end: cython.p_uchar = start + len(data)
        f: cython.longlong[9]
    for left in range(count):  # noqa: B007
        if cython.compiled:
            p = parse(start, p, end, f)
            if p == cython.NULL:
                raise CorruptRecords("a record that is cut off or does not fill its size")
            at = p - start
        else:
            f = parse_plain(data, at)
            at = f[8]
        offset = base_offset + f[1]
        if offset < first_offset:
            continue
        if cython.compiled:
            key = None if f[3] < 0 else start[f[2] : f[2] + f[3]]
            value = None if f[5] < 0 else start[f[4] : f[4] + f[5]]
        else:
            key = None if f[3] < 0 else data[f[2] : f[2] + f[3]]
            value = None if f[5] < 0 else data[f[4] : f[4] + f[5]]
        if key_deserializer is not None:
            key = key_deserializer(key)
        if value_deserializer is not None:
            value = value_deserializer(value)
        timestamp = append_time if append_time >= 0 else base_timestamp + f[0]
        fields = (
            topic, partition, leader_epoch, offset, timestamp, timestamp_type, key, value,
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
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    first_offset: int,
    columns: Columns,
    begin: int = 0,
) -> None:
    """Add the records from `first_offset` on to `columns`; nothing is added if they are corrupt."""
    check_count(len(data) - begin, count)
    try:
        kept, key_bytes, value_bytes = measure(data, count, first_offset - base_offset, begin)
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    row = columns.count
    for column, size in (columns.keys, key_bytes), (columns.values, value_bytes):
        grow(column.data, len(column.data) + size)
        grow(column.offsets, 4 * (row + kept + 1))
        column.validity.extend(bytes((row + kept + 7) // 8 - len(column.validity)))
    grow(columns.offsets, 8 * (row + kept))
    grow(columns.timestamps, 8 * (row + kept))
    fill(data, count, base_offset, base_timestamp, append_time, first_offset, columns,
         key_bytes, value_bytes, begin)  # fmt: skip
    columns.count = row + kept


def grow(room: bytearray, size: cython.Py_ssize_t) -> None:
    """Make the room so large; what is new in it will be written over."""
    if cython.compiled:
        PyByteArray_Resize(room, size)
    else:
        room.extend(bytes(size - len(room)))


def measure(
    data: bytes, count: cython.Py_ssize_t, first: cython.longlong, begin: cython.Py_ssize_t
) -> tuple:
    """How many records from `first` on there are, and how large their keys and values."""
    kept: cython.longlong = 0
    key_bytes: cython.longlong = 0
    value_bytes: cython.longlong = 0
    at: cython.Py_ssize_t = begin
    left: cython.Py_ssize_t
    if cython.compiled:
        start: cython.p_uchar = data
        p: cython.p_uchar = start + begin
        f: cython.longlong[9]
    for left in range(count):  # noqa: B007
        if cython.compiled:
            p = parse(start, p, start + len(data), f)
            if p == cython.NULL:
                raise CorruptRecords("a record that is cut off or does not fill its size")
            at = p - start
        else:
            f = parse_plain(data, at)
            at = f[8]
        if f[1] < first:
            continue
        kept += 1
        if f[3] > 0:
            key_bytes += f[3]
        if f[5] > 0:
            value_bytes += f[5]
        if f[6]:
            read_headers(data, f[7], f[6], f[8])
    if at != len(data):
        raise CorruptRecords("bytes after the last record")
    return kept, key_bytes, value_bytes


def fill(
    data: bytes,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_time: cython.longlong,
    first_offset: cython.longlong,
    columns: Columns,
    key_bytes: cython.Py_ssize_t,
    value_bytes: cython.Py_ssize_t,
    begin: cython.Py_ssize_t,
) -> None:
    """Write the numbers and bytes into the room that `read_columns` made."""
    row: cython.Py_ssize_t = columns.count
    at: cython.Py_ssize_t = begin
    left: cython.Py_ssize_t
    offset: cython.longlong
    timestamp: cython.longlong
    keys = columns.keys
    values = columns.values
    key_end: cython.Py_ssize_t = len(keys.data) - key_bytes
    value_end: cython.Py_ssize_t = len(values.data) - value_bytes
    offsets: cython.longlong[::1] = memoryview(columns.offsets).cast("q")
    timestamps: cython.longlong[::1] = memoryview(columns.timestamps).cast("q")
    key_offsets: cython.int[::1] = memoryview(keys.offsets).cast("i")
    value_offsets: cython.int[::1] = memoryview(values.offsets).cast("i")
    key_data: cython.uchar[::1] = memoryview(keys.data)
    value_data: cython.uchar[::1] = memoryview(values.data)
    key_validity: cython.uchar[::1] = memoryview(keys.validity)
    value_validity: cython.uchar[::1] = memoryview(values.validity)
    key_nulls: cython.Py_ssize_t = 0
    value_nulls: cython.Py_ssize_t = 0
    if cython.compiled:
        start: cython.p_uchar = data
        p: cython.p_uchar = start + begin
        f: cython.longlong[9]
    for left in range(count):  # noqa: B007
        if cython.compiled:
            p = parse(start, p, start + len(data), f)
        else:
            f = parse_plain(data, at)
            at = f[8]
        offset = base_offset + f[1]
        if offset < first_offset:
            continue
        timestamp = append_time if append_time >= 0 else base_timestamp + f[0]
        offsets[row] = offset
        timestamps[row] = timestamp
        if f[3] < 0:
            key_nulls += 1
        else:
            key_validity[row >> 3] |= 1 << (row & 7)
            if cython.compiled:
                if f[3] > 0:
                    memcpy(cython.address(key_data[key_end]), start + f[2], f[3])
            else:
                key_data[key_end : key_end + f[3]] = data[f[2] : f[2] + f[3]]
            key_end += f[3]
        if f[5] < 0:
            value_nulls += 1
        else:
            value_validity[row >> 3] |= 1 << (row & 7)
            if cython.compiled:
                if f[5] > 0:
                    memcpy(cython.address(value_data[value_end]), start + f[4], f[5])
            else:
                value_data[value_end : value_end + f[5]] = data[f[4] : f[4] + f[5]]
            value_end += f[5]
        if f[6]:
            columns.headers[row] = read_headers(data, f[7], f[6], f[8])
        row += 1
        key_offsets[row] = key_end
        value_offsets[row] = value_end
    keys.nulls += key_nulls
    values.nulls += value_nulls
