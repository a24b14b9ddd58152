# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: warn.unreachable=False
# mypy: ignore-errors
"""Records into a batch, one by one: the loop that `Producer.send` runs for every record.

This file runs as it is and compiles with Cython, in its pure-Python mode, into the extension
`_batch_builder_c`, as column_writer.py and record_reader.py do; records.py chooses. Where a pointer
is worth it, a function has a branch `if cython.compiled`; both branches have the same tests.

A record is: length, attributes (0), timestamp delta, offset delta, key, value, headers; every
number a zigzag varint, every missing key or value a length of -1.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import no_cython as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_Resize
    from cython.cimports.libc.string import memcpy
    from cython.cimports.ottla.client.codec._inline_functions_c import (
        hash_of,
        put,
        put_sized,
        sized,
        varint_size,
        zigzag,
    )

COMPILED = bool(cython.compiled)
FORM = 7  # of all three; raised with every change of what records.py or the others see
HEAD_BYTES = 61  # a batch's header, filled in when the batch is done


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


@cython.final
@cython.cclass
class BatchBuilder:
    """The records of one batch in one buffer: space for the header, then `capacity` bytes."""

    if not cython.compiled:
        __slots__ = (
            "base_timestamp", "buffer", "capacity", "count", "max_timestamp", "size",
        )  # fmt: skip

    # The fields are declared in batch_builder.pxd.

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
        """Have space for more; what is there stays. `used` is a buffer of that size to take."""
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
    def byte_capacity(self) -> int:
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
        """The same with the space for the header before it."""
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
