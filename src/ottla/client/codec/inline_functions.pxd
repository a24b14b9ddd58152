# Numbers and bytes of the record format in C, inlined where a batch or a row is written.
from libc.string cimport memcpy


cdef inline unsigned long long zigzag(long long value) noexcept nogil:
    return <unsigned long long>((value << 1) ^ (value >> 63))


cdef inline Py_ssize_t varint_size(unsigned long long value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


cdef inline unsigned char *put(unsigned char *p, unsigned long long value) noexcept nogil:
    while value > 127:
        p[0] = <unsigned char>((value & 127) | 128)
        p += 1
        value >>= 7
    p[0] = <unsigned char>value
    return p + 1


# Bytes that so many take with their length before them; -1 are none at all.
cdef inline Py_ssize_t sized(Py_ssize_t size) noexcept nogil:
    if size < 0:
        return 1
    return size + varint_size(<unsigned long long>size << 1)


cdef inline unsigned char *put_sized(
    unsigned char *p, unsigned char *source, Py_ssize_t size
) noexcept nogil:
    if size < 0:
        p[0] = 1
        return p + 1
    p = put(p, <unsigned long long>size << 1)
    if size:
        memcpy(p, source, size)
    return p + size


# Kafka's murmur2 of a key, made positive as Java's clients do.
cdef inline unsigned int hash_of(unsigned char *p, Py_ssize_t size) noexcept nogil:
    cdef unsigned int m = 0x5BD1E995
    cdef unsigned int h = <unsigned int>0x9747B28C ^ <unsigned int>size
    cdef unsigned int k
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        k = (
            <unsigned int>p[at]
            | (<unsigned int>p[at + 1] << 8)
            | (<unsigned int>p[at + 2] << 16)
            | (<unsigned int>p[at + 3] << 24)
        )
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        at += 4
    if size - at == 3:
        h ^= <unsigned int>p[at + 2] << 16
    if size - at >= 2:
        h ^= <unsigned int>p[at + 1] << 8
    if size - at >= 1:
        h ^= <unsigned int>p[at]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h & 0x7FFFFFFF
