"""The calls of the operating system that RealDisk needs, with a substitute where one is missing.

Linux is what we test; macOS has no fdatasync and needs F_FULLFSYNC, and some file systems lack
one or the other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time

from ottla.seams.page_cache import is_cached

Bytes = bytes | bytearray | memoryview

READ_AHEAD_STEP_BYTES = 256 * 1024

NS_PER_MS = 1_000_000
WRITTEN_WITHIN_MS = 2_000  # from the time in a file to the end of its write, sync and rename
BOOT_ID = "/proc/sys/kernel/random/boot_id"  # Linux
DESCRIPTOR_LIMIT_DEFAULT = 1_024  # what many systems allow a process
FILES_SHARE = 2  # files may have half of the descriptors, connections most of the rest
FILES_MAX_MIN = 16


class AlreadyLocked(OSError):
    """Another process (or another broker in this one) holds the lock."""


class LockedFile:
    """flock keeps out a second broker, also within this process; lockf keeps out Apache Kafka,
    which uses that one.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise AlreadyLocked(errno.EAGAIN, "another broker holds the lock", path) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_all(descriptor: int, data: Bytes, position: int, done: int) -> None:
    view = memoryview(data)
    while done < len(view):
        written = os.pwrite(descriptor, view[done:], position + done)
        if written == 0:
            raise OSError(errno.EIO, "the device took no bytes")
        done += written


def read_ahead(descriptor: int, position: int, size: int) -> None:
    """On a thread: read a range into the page cache, and close the descriptor."""
    try:
        buffer = memoryview(bytearray(READ_AHEAD_STEP_BYTES))
        end = position + size
        while position < end:
            got = read_into(descriptor, buffer, position)
            if got == 0:
                return
            position += got
    finally:
        os.close(descriptor)


def read_once(path: str, position: int, size: int) -> bytes:
    """On a thread: read a range, and leave no more of it in the page cache than was there.

    With a descriptor of its own, for which the kernel reads nothing ahead.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        advise = getattr(os, "posix_fadvise", None)
        if advise is None:
            return os.pread(descriptor, size, position)
        advise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        was_cached = is_cached(descriptor, position, size)
        data = os.pread(descriptor, size, position)
        if not was_cached:
            advise(descriptor, position, size, os.POSIX_FADV_DONTNEED)
        return data
    finally:
        os.close(descriptor)


def read_into(descriptor: int, view: memoryview, position: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], position)
    data = os.pread(descriptor, len(view), position)
    view[: len(data)] = data
    return len(data)


def sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        # There fsync stops at the drive's cache (fsync(2)); not every file system can do better.
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def time_line() -> bytes:
    """The present time, for the first line of a file that is about to be written."""
    return b"%d\n" % (time.time_ns() // NS_PER_MS)


def was_changed_at(path: str, line: bytes) -> bool:
    """Whether the file was written when its first line says, and not changed or copied since.

    By its ctime: no tool can preserve that in a copy.
    """
    changed_ms = os.stat(path).st_ctime_ns // NS_PER_MS
    return line.isdigit() and abs(changed_ms - int(line)) <= WRITTEN_WITHIN_MS


def boot_id() -> str:
    """The name of the machine's present boot; empty where the system has none."""
    if sys.platform == "darwin":
        import ctypes

        name, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
        failed = ctypes.CDLL(None).sysctlbyname(
            b"kern.bootsessionuuid", name, ctypes.byref(size), None, ctypes.c_size_t(0)
        )
        return "" if failed else name.value.decode()
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return ""


def named(error: OSError, path: str) -> OSError:
    """The same error with the path in it: descriptors tell an operator nothing."""
    return error if error.filename else OSError(error.errno, error.strerror or str(error), path)


def descriptor_limit() -> int:
    """How many descriptors this process may have open (the soft RLIMIT_NOFILE)."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError, ValueError):
        return DESCRIPTOR_LIMIT_DEFAULT
    if soft <= 0 or soft == resource.RLIM_INFINITY:
        return DESCRIPTOR_LIMIT_DEFAULT
    return soft


def descriptors_allowed() -> int:
    """How many of them a disk may keep open for its files."""
    return max(FILES_MAX_MIN, descriptor_limit() // FILES_SHARE)
