# cython: language_level=3
"""Waits and receives without the interpreter's lock (Linux; compiled only).

A thread that waits for readiness and then receives needs the lock in between, and does not get it
while the caller's thread turns the records of the answer before into objects. Here both are one
step: the next answer comes into its memory meanwhile.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_wait(int epoll, epoll_event *events, int count, int timeout_ms)
    unsigned int EPOLLIN

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t recv(int socket, void *place, size_t size, int flags)
    int MSG_DONTWAIT

FORM = 1


def receive(int epoll, int socket, target, Py_ssize_t filled, bint begun, int timeout_ms) -> int:
    """Receive a frame into `target`, of which `filled` bytes are there, and wait for its bytes.

    `begun`: the target is exactly what is missing of a frame; else the frame begins there with its
    size. It ends when the frame is whole or does not fit, when anything but this socket is ready
    (or something is wrong with it), or when time is up. Returns how many bytes are there then.
    """
    cdef Py_buffer buffer
    cdef epoll_event events[4]
    cdef unsigned char *place
    cdef Py_ssize_t size, whole
    cdef int count
    PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
    place = <unsigned char *>buffer.buf
    whole = buffer.len
    with nogil:
        while filled < whole:
            count = epoll_wait(epoll, events, 4, timeout_ms)
            if count != 1 or events[0].data.fd != socket or events[0].events != EPOLLIN:
                break
            size = recv(socket, place + filled, whole - filled, MSG_DONTWAIT)
            if size <= 0:
                break
            filled += size
            if not begun and filled >= 4:
                begun = True
                size = (
                    <Py_ssize_t>place[0] << 24 | place[1] << 16 | place[2] << 8 | place[3]
                ) + 4
                if size > whole:
                    break
                whole = size
    PyBuffer_Release(&buffer)
    return filled
