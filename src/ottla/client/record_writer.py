# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: ignore-errors
"""The loops that run once per record sent: write it into a batch, hash its key.

This one file runs as it is and compiles with Cython, in its pure-Python mode, into the extension
`_record_writer_c`; records.py chooses. Where a pointer is worth it, a function has a branch
`if cython.compiled`; both branches have the same tests.

A record is: length, attributes (0), timestamp delta, offset delta, key, value, headers; every
number a zigzag varint, every missing key or value a length of -1.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import no_cython as cython

COMPILED = bool(cython.compiled)
FORM = 3  # raised with every change of what records.py sees, so that an old extension is not taken


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


HEAD_BYTES = 61  # a batch's header, filled in when the batch is done
SMALL = 8192
VARINTS = [_varint(n) for n in range(SMALL)]
NULL = b"\x01"


@cython.cfunc
@cython.inline
def varint_size(value: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_Resize
    from cython.cimports.libc.string import memcpy

    @cython.cfunc
    @cython.inline
    def zigzag(value: cython.longlong) -> cython.ulonglong:
        return cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))

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
    def put_bytes(p: cython.p_uchar, data: bytes) -> cython.p_uchar:
        size: cython.Py_ssize_t = len(data)
        source: cython.p_uchar = data
        p = put(p, cython.cast(cython.ulonglong, size) << 1)
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
        self.buffer = bytearray(HEAD_BYTES + capacity if cython.compiled else HEAD_BYTES)
        self.capacity = capacity
        self.size = 0
        self.count = 0
        self.base_timestamp = 0
        self.max_timestamp = 0

    def append(self, timestamp: cython.longlong, key, value, headers) -> cython.Py_ssize_t:
        """Add a record, if it fits: the number of bytes now, or minus the bytes it needs."""
        if self.count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        if cython.compiled:
            delta: cython.ulonglong = zigzag(timestamp - self.base_timestamp)
            number: cython.ulonglong = cython.cast(cython.ulonglong, self.count) << 1
            body: cython.Py_ssize_t = 2 + varint_size(delta) + varint_size(number)
            parts: bytes = None
            if key is not None:
                if type(key) is not bytes:
                    key = bytes(key)
                body += len(cython.cast(bytes, key)) + varint_size(
                    cython.cast(cython.ulonglong, len(cython.cast(bytes, key))) << 1
                )
            else:
                body += 1
            if value is not None:
                if type(value) is not bytes:
                    value = bytes(value)
                body += len(cython.cast(bytes, value)) + varint_size(
                    cython.cast(cython.ulonglong, len(cython.cast(bytes, value))) << 1
                )
            else:
                body += 1
            if headers:
                parts = encoded_headers(headers)
                body += len(parts) - 1
            total: cython.Py_ssize_t = body + varint_size(cython.cast(cython.ulonglong, body) << 1)
            if self.size + total > self.capacity:
                return -total
            start: cython.p_uchar = cython.cast(
                cython.p_uchar, cython.cast(cython.p_char, self.buffer)
            )
            head: cython.Py_ssize_t = HEAD_BYTES
            p: cython.p_uchar = start + head + self.size
            p = put(p, cython.cast(cython.ulonglong, body) << 1)
            p[0] = 0
            p = put(p + 1, delta)
            p = put(p, number)
            if key is None:
                p[0] = 1
                p += 1
            else:
                p = put_bytes(p, cython.cast(bytes, key))
            if value is None:
                p[0] = 1
                p += 1
            else:
                p = put_bytes(p, cython.cast(bytes, value))
            if parts is None:
                p[0] = 0
            else:
                source: cython.p_uchar = parts
                memcpy(p, source, len(parts))
            self.size += total
        else:
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
        p: cython.p_uchar = cython.cast(bytes, data)
        size: cython.Py_ssize_t = len(cython.cast(bytes, data))
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
            k *= cython.cast(cython.uint, 0x5BD1E995)
            k ^= k >> 24
            k *= cython.cast(cython.uint, 0x5BD1E995)
            h *= cython.cast(cython.uint, 0x5BD1E995)
            h ^= k
            at += 4
        if size - at == 3:
            h ^= cython.cast(cython.uint, p[at + 2]) << 16
        if size - at >= 2:
            h ^= cython.cast(cython.uint, p[at + 1]) << 8
        if size - at >= 1:
            h ^= cython.cast(cython.uint, p[at])
            h *= cython.cast(cython.uint, 0x5BD1E995)
        h ^= h >> 13
        h *= cython.cast(cython.uint, 0x5BD1E995)
        h ^= h >> 15
        return h & 0x7FFFFFFF
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
