# What column_writer.py uses of a BatchBuilder when both are compiled.
cimport cython


@cython.final
cdef class BatchBuilder:
    cdef bytearray buffer
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count
    cdef long long base_timestamp
    cdef long long max_timestamp

    cdef Py_ssize_t add(
        self,
        long long timestamp,
        unsigned char *key,
        Py_ssize_t key_size,
        unsigned char *value,
        Py_ssize_t value_size,
        unsigned char *headers,
        Py_ssize_t headers_size,
    ) noexcept
