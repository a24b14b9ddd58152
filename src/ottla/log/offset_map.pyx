# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of offset_map.py: the same class, the same contract.

A slot is the key's SipHash-2-4 of 128 bits under the map's secret, and the offset plus one; 0 there
says that the slot is free. Both forms have the same tests.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from ottla.wire.records import CorruptBatch

FORM = 2  # raised with every change of the interface, so that an old extension is not taken
COMPILED = True
SLOT_BYTES = 24


cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t offset_plus_one


cdef struct Scanned:
    const unsigned char *key
    int64_t key_bytes  # below 0: no key
    int64_t timestamp_delta
    int64_t offset_delta
    bint has_value


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void rounds(uint64_t *v, int count) noexcept nogil:
    cdef int number
    for number in range(count):
        v[0] += v[1]
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] += v[3]
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)


cdef inline void siphash(
    const uint64_t *secret, const unsigned char *data, int64_t size, uint64_t *low, uint64_t *high
) noexcept nogil:
    """SipHash-2-4 with 128 bits (Aumasson and Bernstein)."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t left = size
    v[0] = secret[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = secret[1] ^ <uint64_t>0x646F72616E646F6D ^ <uint64_t>0xEE
    v[2] = secret[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = secret[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        memcpy(&word, data, 8)
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
        data += 8
        left -= 8
    word = 0
    memcpy(&word, data, left)
    word |= (<uint64_t>size) << 56
    v[3] ^= word
    rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    rounds(v, 4)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(v, 4)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline const unsigned char *varint(
    const unsigned char *p, const unsigned char *end, int64_t *value
) noexcept nogil:
    """The position behind a zigzag varint, or NULL."""
    cdef uint64_t raw = 0
    cdef unsigned char byte
    cdef int shift = 0
    while p < end and shift <= 63:
        byte = p[0]
        p += 1
        raw |= (<uint64_t>(byte & 127)) << shift
        if byte < 128:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return p
        shift += 7
    return NULL


cdef inline const unsigned char *scan(
    const unsigned char *p, const unsigned char *end, Scanned *record
) noexcept nogil:
    """The position behind a record, or NULL where there is no whole one."""
    cdef int64_t length
    cdef const unsigned char *stop
    p = varint(p, end, &length)
    if p == NULL or length < 1 or length > end - p:
        return NULL
    stop = p + length
    p = varint(p + 1, stop, &record.timestamp_delta)  # behind the attributes, which say nothing
    if p == NULL:
        return NULL
    p = varint(p, stop, &record.offset_delta)
    if p == NULL:
        return NULL
    p = varint(p, stop, &record.key_bytes)
    if p == NULL:
        return NULL
    record.key = p
    if record.key_bytes > 0:
        if record.key_bytes > stop - p:
            return NULL
        p += record.key_bytes
    if p >= stop:
        return NULL
    record.has_value = not p[0] & 1
    return stop


cdef class OffsetMap:
    cdef Slot *_table
    cdef uint64_t _slots
    cdef int64_t _entries
    cdef uint64_t _secret[2]
    cdef unsigned char *_scratch
    cdef Py_ssize_t _scratch_bytes
    cdef readonly int64_t entries_max
    cdef public int64_t latest_offset

    def __cinit__(self, slots, entries_max, bytes secret):
        assert PyBytes_GET_SIZE(secret) == 16
        memcpy(self._secret, PyBytes_AS_STRING(secret), 16)
        self.entries_max = entries_max
        self.latest_offset = -1
        self._allocate(slots)

    def __dealloc__(self):
        free(self._table)
        free(self._scratch)

    cdef int _allocate(self, uint64_t slots) except -1:
        free(self._table)
        self._table = <Slot *>calloc(slots, sizeof(Slot))
        if self._table == NULL:
            raise MemoryError
        self._slots = slots
        return 0

    def __len__(self):
        return self._entries

    def has_capacity(self, int64_t count):
        if self._entries == 0 and count >= <int64_t>self._slots:
            self._allocate(count + 1)
        return self._entries == 0 or self._entries + count <= self.entries_max

    def digest(self, bytes key):
        cdef uint64_t halves[2]
        siphash(
            self._secret, <const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
            &halves[0], &halves[1],
        )
        return PyBytes_FromStringAndSize(<char *>halves, 16)

    cdef inline Slot *_slot(self, const unsigned char *key, int64_t size) noexcept nogil:
        """The slot of a key, or the free one where it belongs."""
        cdef uint64_t low, high
        cdef uint64_t at
        cdef Slot *slot
        siphash(self._secret, key, size, &low, &high)
        at = low % self._slots
        while True:
            slot = self._table + at
            if slot.offset_plus_one == 0:
                slot.low = low
                slot.high = high
                return slot
            if slot.low == low and slot.high == high:
                return slot
            at += 1
            if at == self._slots:
                at = 0

    def get(self, bytes key):
        cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(key)
        return self._slot(data, PyBytes_GET_SIZE(key)).offset_plus_one - 1

    def add(self, bytes records, Py_ssize_t count, int64_t base_offset, int64_t start_offset):
        cdef const unsigned char *begin = <const unsigned char *>PyBytes_AS_STRING(records)
        cdef const unsigned char *p = begin
        cdef const unsigned char *after
        cdef const unsigned char *end = p + PyBytes_GET_SIZE(records)
        cdef Scanned record
        cdef Slot *slot
        cdef int64_t offset
        cdef Py_ssize_t number
        for number in range(count):
            after = scan(p, end, &record)
            if after == NULL:
                raise CorruptBatch(f"record {number} at byte {p - begin} of {end - begin}")
            p = after
            offset = base_offset + record.offset_delta
            if record.key_bytes >= 0 and offset >= start_offset:
                slot = self._slot(record.key, record.key_bytes)
                if slot.offset_plus_one == 0:
                    self._entries += 1
                slot.offset_plus_one = offset + 1
        if p != end:
            raise CorruptBatch(f"{end - p} bytes after the last of {count} records")

    def keep(self, bytes records, Py_ssize_t count, int64_t base_offset, bint tombstones_stay):
        cdef const unsigned char *begin = <const unsigned char *>PyBytes_AS_STRING(records)
        cdef const unsigned char *p = begin
        cdef const unsigned char *after
        cdef const unsigned char *run = begin  # the records from here to p stay
        cdef const unsigned char *end = p + PyBytes_GET_SIZE(records)
        cdef Scanned record
        cdef int64_t offset, max_timestamp_delta = 0
        cdef Py_ssize_t number, kept = 0, without_key = 0, size = 0
        cdef bint stays, has_tombstone = False
        if self._scratch_bytes < end - begin:
            self._grow_scratch(end - begin)
        for number in range(count):
            after = scan(p, end, &record)
            if after == NULL:
                raise CorruptBatch(f"record {number} at byte {p - begin} of {end - begin}")
            offset = base_offset + record.offset_delta
            if offset > self.latest_offset:
                stays = True
            elif record.key_bytes < 0:
                stays = False
                without_key += 1
            else:
                stays = (record.has_value or tombstones_stay) and (
                    offset + 1 >= self._slot(record.key, record.key_bytes).offset_plus_one
                )
            if stays:
                if kept == 0 or record.timestamp_delta > max_timestamp_delta:
                    max_timestamp_delta = record.timestamp_delta
                kept += 1
                has_tombstone = has_tombstone or not record.has_value
            else:
                memcpy(self._scratch + size, run, p - run)
                size += p - run
                run = after
            p = after
        if p != end:
            raise CorruptBatch(f"{end - p} bytes after the last of {count} records")
        if kept == count:
            return kept, without_key, has_tombstone, max_timestamp_delta, records
        memcpy(self._scratch + size, run, p - run)
        size += p - run
        left = PyBytes_FromStringAndSize(<char *>self._scratch, size)
        return kept, without_key, has_tombstone, max_timestamp_delta, left

    cdef int _grow_scratch(self, Py_ssize_t size) except -1:
        cdef unsigned char *grown = <unsigned char *>realloc(self._scratch, size)
        if grown == NULL:
            raise MemoryError
        self._scratch = grown
        self._scratch_bytes = size
        return 0
