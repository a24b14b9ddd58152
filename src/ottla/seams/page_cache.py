"""Whether bytes of a file are in the page cache: reading them waits for no device then."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from functools import cache

_NO_WAIT = getattr(os, "RWF_NOWAIT", None)  # Linux: read what is in the page cache, or say so
CACHE_PROBE_BYTES = 128 * 1024  # one byte in so many is asked for: the kernel reads in such pieces
CACHESTAT = 451  # Linux 6.5 and later, on every architecture that Python has wheels for
CACHESTAT_FIELDS = 5  # of which the first is the number of pages that are there

PagesCached = Callable[[int, int, int], int]


def is_cached(descriptor: int, position: int, size: int) -> bool:
    """Whether a range is in the page cache; True where the system cannot tell.

    The kernel drops single pages, so a few bytes of each piece say little: it is asked to count.
    """
    if _NO_WAIT is None or size <= 0:
        return True
    probe = (bytearray(1),)
    try:
        # A page that is counted may still be on its way from the device: at the beginning, for
        # reading ahead goes on behind what was asked for, or at the end, where it has come to.
        os.preadv(descriptor, probe, position, _NO_WAIT)
        os.preadv(descriptor, probe, position + size - 1, _NO_WAIT)
        counting = pages_cached()
        counted = -1 if counting is None else counting(descriptor, position, size)
        if counted > 0:
            return counted >= pages_of(position, size)
        # None at all, though one was just read: this file system keeps them with another file.
        for at in range(position + CACHE_PROBE_BYTES, position + size, CACHE_PROBE_BYTES):
            os.preadv(descriptor, probe, at, _NO_WAIT)
    except BlockingIOError:
        return False
    except OSError:  # not with this file system; an error of the device comes with the reading
        return True
    return True


def pages_of(position: int, size: int) -> int:
    """How many pages have bytes of a range."""
    return (position + size - 1) // mmap.PAGESIZE - position // mmap.PAGESIZE + 1


@cache
def pages_cached() -> PagesCached | None:
    """What counts the pages of a range that are in the cache (-1: it cannot, for this file); None
    where the kernel has no cachestat(2), or does not allow it.
    """
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return None
    import ctypes  # not at the start: it takes milliseconds

    numbers = ctypes.c_uint64 * (2 + CACHESTAT_FIELDS)
    # Not CDLL: giving up the interpreter's lock would cost more than the call.
    syscall = ctypes.PyDLL(None).syscall
    syscall.argtypes = (
        ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint,
    )  # fmt: skip
    addressof, found_at = ctypes.addressof, 2 * ctypes.sizeof(ctypes.c_uint64)

    def count(descriptor: int, position: int, size: int) -> int:
        memory = numbers(position, size)
        address = addressof(memory)
        if syscall(CACHESTAT, descriptor, address, address + found_at, 0):
            return -1
        pages: int = memory[2]
        return pages

    try:
        descriptor = os.memfd_create("cachestat", os.MFD_CLOEXEC)
    except OSError:
        return None
    try:
        return count if count(descriptor, 0, 1) >= 0 else None
    finally:
        os.close(descriptor)
