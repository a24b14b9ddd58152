# What the compiled record reader takes from C beyond what Cython declares itself.
cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t size)
    void PyObject_GC_UnTrack(object thing)

cdef struct RowBytes:  # a column of bytes that is being filled
    unsigned char *data
    int *ends
    unsigned char *validity
    Py_ssize_t end
    Py_ssize_t nulls

ctypedef unsigned int (*Checksum)(unsigned char *data, size_t size) noexcept nogil
cdef Checksum crc32c_value
