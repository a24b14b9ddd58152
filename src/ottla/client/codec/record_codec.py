# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: warn.unreachable=False
# mypy: ignore-errors
# ruff: noqa: F821
"""The loops that run once per record: write records into batches, read them out of batches.

This one file runs as it is and compiles with Cython, in its pure-Python mode, into the extension
`_record_codec_c`; records.py chooses. Where a pointer is worth it, a function has a branch
`if cython.compiled`; both branches have the same tests.

A record is: length, attributes (0), timestamp delta, offset delta, key, value, headers; every
number a zigzag varint, every missing key or value a length of -1. Records are written one by one
(`BatchBuilder`) or from Arrow's columns (`ColumnWriter`), and read as tuples
(`read_consumer_records`) or into columns (`read_columns`). What is read is the decompressed inside
of one batch; whatever the bytes are, the outcome is records or `CorruptRecords`.
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
FORM = 6  # raised with every change of what records.py sees, so that an old extension is not taken
HEAD_BYTES = 61  # a batch's header, filled in when the batch is done
RECORD_BYTES_MIN = 7

new_tuple = tuple.__new__


# Writing


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL = 8192
VARINTS = [_varint(n) for n in range(SMALL)]
NULL = b"\x01"


if cython.compiled:

    @cython.cfunc
    @cython.inline
    def zigzag(value: cython.longlong) -> cython.ulonglong:
        return cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))

    @cython.cfunc
    @cython.inline
    def varint_size(value: cython.ulonglong) -> cython.Py_ssize_t:
        size: cython.Py_ssize_t = 1
        while value > 127:
            value >>= 7
            size += 1
        return size

    @cython.cfunc
    @cython.inline
    def put(p: cython.p_uchar, value: cython.ulonglong) -> cython.p_uchar:
        while value > 127:
            p[0] = cython.cast(cython.uchar, (value & 127) | 128)
            p += 1
            value >>= 7
        p[0] = cython.cast(cython.uchar, value)
        return p + 1

    @cython.cfunc
    @cython.inline
    def sized(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Bytes that so many take with their length before them; -1 are none at all."""
        if size < 0:
            return 1
        return size + varint_size(cython.cast(cython.ulonglong, size) << 1)

    @cython.cfunc
    @cython.inline
    def put_sized(
        p: cython.p_uchar, source: cython.p_uchar, size: cython.Py_ssize_t
    ) -> cython.p_uchar:
        if size < 0:
            p[0] = 1
            return p + 1
        p = put(p, cython.cast(cython.ulonglong, size) << 1)
        if size:
            memcpy(p, source, size)
        return p + size


@cython.final
@cython.cclass
class BatchBuilder:
    """The records of one batch in one buffer: room for the header, then `capacity` bytes."""

    if not cython.compiled:
        __slots__ = (
            "base_timestamp", "buffer", "capacity", "count", "max_timestamp", "size",
        )  # fmt: skip

    buffer: bytearray
    size: cython.Py_ssize_t
    capacity: cython.Py_ssize_t
    count: cython.Py_ssize_t
    base_timestamp: cython.longlong
    max_timestamp: cython.longlong

    def __init__(self, capacity: int) -> None:
        self.buffer = bytearray(HEAD_BYTES)
        if cython.compiled:
            PyByteArray_Resize(self.buffer, HEAD_BYTES + capacity)
        self.capacity = capacity
        self.size = 0
        self.count = 0
        self.base_timestamp = 0
        self.max_timestamp = 0

    def append(self, timestamp: cython.longlong, key, value, headers) -> cython.Py_ssize_t:
        """Add a record, if it fits: the number of bytes now, or minus the bytes it needs."""
        if cython.compiled:
            key_size: cython.Py_ssize_t = -1
            value_size: cython.Py_ssize_t = -1
            headers_size: cython.Py_ssize_t = 0
            key_at: cython.p_uchar = cython.NULL
            value_at: cython.p_uchar = cython.NULL
            headers_at: cython.p_uchar = cython.NULL
            if key is not None:
                if type(key) is not bytes:
                    key = bytes(key)
                key_at = cython.cast(bytes, key)
                key_size = len(cython.cast(bytes, key))
            if value is not None:
                if type(value) is not bytes:
                    value = bytes(value)
                value_at = cython.cast(bytes, value)
                value_size = len(cython.cast(bytes, value))
            if headers:
                encoded: bytes = encoded_headers(headers)
                headers_at = encoded
                headers_size = len(encoded)
            return self.add(
                timestamp, key_at, key_size, value_at, value_size, headers_at, headers_size
            )
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        count = self.count
        delta = timestamp - self.base_timestamp
        pieces = [
            b"\0",
            VARINTS[delta] if 0 <= delta < SMALL else _varint(delta),
            VARINTS[count] if count < SMALL else _varint(count),
        ]
        if key is None:
            pieces.append(NULL)
        else:
            size = len(key)
            pieces.append(VARINTS[size] if size < SMALL else _varint(size))
            pieces.append(key)
        if value is None:
            pieces.append(NULL)
        else:
            size = len(value)
            pieces.append(VARINTS[size] if size < SMALL else _varint(size))
            pieces.append(value)
        pieces.append(encoded_headers(headers) if headers else b"\0")
        record = b"".join(pieces)
        size = len(record)
        head = VARINTS[size] if size < SMALL else _varint(size)
        size += len(head)
        if self.size + size > self.capacity:
            return -size
        self.buffer += head
        self.buffer += record
        self.size += size
        self.count += 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return self.size

    if cython.compiled:

        @cython.cfunc
        @cython.inline
        @cython.exceptval(check=False)
        def add(
            self,
            timestamp: cython.longlong,
            key: cython.p_uchar,
            key_size: cython.Py_ssize_t,
            value: cython.p_uchar,
            value_size: cython.Py_ssize_t,
            headers: cython.p_uchar,
            headers_size: cython.Py_ssize_t,
        ) -> cython.Py_ssize_t:
            """`append`, of bytes that are somewhere; headers are encoded, or none of size 0."""
            if self.count == 0:
                self.base_timestamp = timestamp
                self.max_timestamp = timestamp
            delta: cython.ulonglong = zigzag(timestamp - self.base_timestamp)
            number: cython.ulonglong = cython.cast(cython.ulonglong, self.count) << 1
            body: cython.Py_ssize_t = (
                1
                + varint_size(delta)
                + varint_size(number)
                + sized(key_size)
                + sized(value_size)
                + (headers_size if headers_size else 1)
            )
            total: cython.Py_ssize_t = sized(body)
            if self.size + total > self.capacity:
                return -total
            head: cython.Py_ssize_t = HEAD_BYTES
            p: cython.p_uchar = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self.buffer))
            p = put(p + head + self.size, cython.cast(cython.ulonglong, body) << 1)
            p[0] = 0
            p = put(p + 1, delta)
            p = put(p, number)
            p = put_sized(p, key, key_size)
            p = put_sized(p, value, value_size)
            if headers_size:
                memcpy(p, headers, headers_size)
            else:
                p[0] = 0
            self.size += total
            self.count += 1
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
            return self.size

    def grow(self, capacity: cython.Py_ssize_t, used: bytearray | None = None) -> None:
        """Make room for more; what is there stays. `used` is a buffer of that size to take."""
        if cython.compiled:
            if used is None:
                PyByteArray_Resize(self.buffer, HEAD_BYTES + capacity)
            else:
                target: cython.p_char = used
                source: cython.p_char = self.buffer
                memcpy(target, source, HEAD_BYTES + self.size)
                self.buffer = used
        self.capacity = capacity

    def lend(self) -> bytearray:
        """The buffer itself, to be used again when the batch is done."""
        return self.buffer

    def cut(self) -> bytearray:
        """The buffer itself, no longer than what is in it: the builder is done."""
        if cython.compiled:
            PyByteArray_Resize(self.buffer, HEAD_BYTES + self.size)
        self.capacity = self.size
        return self.buffer

    @property
    def byte_count(self) -> int:
        """Bytes of all records so far."""
        return self.size

    @property
    def record_count(self) -> int:
        return self.count

    @property
    def room(self) -> int:
        """The bytes that fit without growing."""
        return self.capacity

    @property
    def first_timestamp(self) -> int:
        return self.base_timestamp

    @property
    def last_timestamp(self) -> int:
        """The largest timestamp."""
        return self.max_timestamp

    def body(self) -> memoryview:
        """The records as they are in the buffer; a view, so do not append while it lives."""
        return memoryview(self.buffer)[HEAD_BYTES : HEAD_BYTES + self.size]

    def whole(self) -> memoryview:
        """The same with the room for the header before it."""
        return memoryview(self.buffer)[: HEAD_BYTES + self.size]


def encoded_headers(headers) -> bytes:
    """The number of headers and all of them."""
    out = bytearray(_varint(len(headers)))
    for name, content in headers:
        encoded = name.encode() if isinstance(name, str) else bytes(name)
        out += _varint(len(encoded))
        out += encoded
        if content is None:
            out += NULL
        else:
            out += _varint(len(content))
            out += content
    return bytes(out)


def murmur2(data) -> int:
    """Kafka's hash of a key, as a signed 32-bit number made positive the way Java's clients do."""
    if type(data) is not bytes:
        data = bytes(data)
    if cython.compiled:
        return hash_of(cython.cast(bytes, data), len(cython.cast(bytes, data)))
    size = len(data)
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if size != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


if cython.compiled:

    @cython.cfunc
    @cython.exceptval(check=False)
    def hash_of(p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.uint:
        m: cython.uint = 0x5BD1E995
        h: cython.uint = cython.cast(cython.uint, 0x9747B28C) ^ cython.cast(cython.uint, size)
        k: cython.uint
        at: cython.Py_ssize_t = 0
        while size - at >= 4:
            k = (
                cython.cast(cython.uint, p[at])
                | (cython.cast(cython.uint, p[at + 1]) << 8)
                | (cython.cast(cython.uint, p[at + 2]) << 16)
                | (cython.cast(cython.uint, p[at + 3]) << 24)
            )
            k *= m
            k ^= k >> 24
            k *= m
            h *= m
            h ^= k
            at += 4
        if size - at == 3:
            h ^= cython.cast(cython.uint, p[at + 2]) << 16
        if size - at >= 2:
            h ^= cython.cast(cython.uint, p[at + 1]) << 8
        if size - at >= 1:
            h ^= cython.cast(cython.uint, p[at])
            h *= m
        h ^= h >> 13
        h *= m
        h ^= h >> 15
        return h & 0x7FFFFFFF


# Checksums


CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C; its highest bit stands for 1


def product(first: cython.uint, second: cython.uint) -> cython.uint:
    """Of two polynomials over one bit, modulo that of CRC-32C."""
    found: cython.uint = 0
    polynomial: cython.uint = CASTAGNOLI
    bit: cython.int
    for bit in range(31, -1, -1):
        if (first >> bit) & 1:
            found ^= second
        second = (second >> 1) ^ (polynomial if second & 1 else 0)
    return found


def carried(difference: cython.uint, size: cython.Py_ssize_t) -> int:
    """What a difference of two checksums is after `size` more bytes, the same for both.

    A CRC is the rest of a division, so this is a multiplication by x^(8 * size).
    """
    power: cython.uint = 1 << 23  # x^8, and then its squares
    while size:
        if size & 1:
            difference = product(power, difference)
        size >>= 1
        if size:
            power = product(power, power)
    return difference


# Columns into batches


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
                    builder = self.make_room(number, -total - builder.size)
                    total = -builder.size
                    total += builder.add(
                        timestamp, key_data + key, key_size, value_data + value, value_size,
                        headers_at, headers_size,
                    )  # fmt: skip
            else:
                before = found.size
                size = found.append(timestamp, key, value, given)
                if size < 0:
                    found = self.make_room(number, -size)
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

    def make_room(self, number: cython.Py_ssize_t, needed: cython.Py_ssize_t) -> BatchBuilder:
        """A batch of this partition with room for so many bytes: the open one or a new one."""
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


# Reading


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


def make_room(
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


def grow(room: bytearray, size: cython.Py_ssize_t) -> None:
    if cython.compiled:
        PyByteArray_Resize(room, size)
    else:
        room.extend(bytes(size - len(room)))


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
        """Measure, make room, fill it; without the interpreter's lock if that takes a while."""
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
        make_room(columns, found[0], found[1], found[2], found[3], found[4], found[5])
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
        """Write the numbers and bytes into the room that was made."""
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
    """Parse, make room, fill it."""
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
    make_room(columns, len(rows), 0, 0, len(pairs), 0, 0)
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
    """Put bytes into a column that has room for them from `row` on."""
    ends = memoryview(column.offsets).cast("i")
    for index, item in enumerate(items, row):
        if item is None:
            column.nulls += 1
        else:
            column.validity[index >> 3] |= 1 << (index & 7)
            column.data += item
        ends[index + 1] = len(column.data)
