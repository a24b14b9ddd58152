"""The disk as an interface: files and directories, real here, simulated in simulated/disk.py.

A file is named by its path and costs a descriptor only while it is in use: RealDisk keeps at most
`descriptors_max` of them open and closes those not used since the last sweep (the clock algorithm,
not a strict order of use, so that a read or a write pays one attribute store for it). A File
survives the renaming of its path or of its directory, and, while a reference to it exists, the
unlinking too: a range of a segment that is being sent can be read to its end.

Contract: `append` writes all or nothing; `write_atomically` leaves the old or the new content;
errors are OSError with the path in it. Reading and writing belong to one thread; `File.sync`,
`sync_directory`, `write_atomically`, `unlink` and `rmtree` may run in another.

A process that has no descriptor left says nothing about the device: then RealDisk closes one of
its own files, or gives up the spare descriptor it keeps, and tries again. Where that does not help
either, the error is `OutOfDescriptors`: nothing was read or written, and a later attempt may
succeed.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ottla.seams.page_cache import is_cached
from ottla.seams.posix import (
    AlreadyLocked,
    Bytes,
    LockedFile,
    boot_id,
    descriptors_allowed,
    named,
    read_ahead,
    read_into,
    read_once,
    sync_descriptor,
    time_line,
    was_changed_at,
    write_all,
)

__all__ = [
    "AlreadyLocked",
    "Bytes",
    "Disk",
    "Entry",
    "File",
    "Lock",
    "OutOfDescriptors",
    "RealDisk",
    "RealFile",
]

Result = TypeVar("Result")
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})  # of the process, of the system
ORIGINAL_TRIES = 3


class OutOfDescriptors(OSError):
    """No descriptor was free to open a file with; the file and the device are as they were."""


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    size: int
    is_directory: bool


class File(Protocol):
    """One file, opened on demand; writing makes it if it is not there, reading does not."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes: ...

    def pread_into(self, view: memoryview, position: int) -> int: ...

    def append(self, data: Bytes) -> None:
        """Write all of it at the end, or raise OSError and leave the file as it was."""

    def pwrite(self, data: Bytes, position: int) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the bytes written so far are on the device. Any thread may call it."""

    def fileno(self) -> int | None:
        """The descriptor to send from, valid until the next call on the disk; None: use pread."""

    def is_cached(self, position: int, size: int) -> bool:
        """Whether a range can be read without waiting for the device; True if that is unknown."""

    def reading_ahead(self, position: int, size: int) -> Callable[[], None]:
        """Work for another thread, after which the range should be cached."""

    def reading_once(self, position: int, size: int) -> Callable[[], bytes]:
        """Work for another thread that reads a range nobody will read again soon."""

    def close(self) -> None:
        """Give the descriptor back; the next use opens it again."""


class Lock(Protocol):
    """A locked file."""

    def release(self) -> None: ...


class Disk(Protocol):
    """What a broker needs of the file system that holds its data."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]: ...

    def entries(self, path: str) -> list[Entry]: ...

    def read(self, path: str) -> bytes: ...

    def mkdir(self, path: str) -> None:
        """Make the directory and its parents; it may be there already."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str, *, missing_ok: bool = False) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None: ...

    def write_original(self, path: str, data: bytes) -> None:
        """Write a file atomically and synced, so that `read_original` knows copies of it."""

    def read_original(self, path: str) -> bytes | None:
        """What `write_original` wrote, or None: the file was copied, or changed since then."""

    def sync_directory(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock: ...

    def database(self, path: str) -> sqlite3.Connection: ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def boot_id(self) -> str:
        """The name of the machine's present boot: while it is the same, what was written is there,
        synced or not. Empty if that is unknown.
        """


class RealFile:
    """A file of RealDisk; make it with RealDisk.open."""

    __slots__ = (
        "__weakref__",
        "_close_wanted",
        "_descriptor",
        "_directory",
        "_disk",
        "_kept",
        "_name",
        "_size",
        "_syncs",
        "_used",
    )

    def __init__(self, disk: RealDisk, directory: str, name: str) -> None:
        self._disk = disk
        self._directory = directory
        self._name = name
        self._descriptor = -1
        self._size = -1
        self._used = False  # since the last sweep
        self._kept = False  # unlinked: once closed it could not be opened again
        self._syncs = 0  # under way in other threads: the descriptor stays open
        self._close_wanted = False  # after the last of these

    @property
    def path(self) -> str:
        return f"{self._directory}/{self._name}"

    def size(self) -> int:
        if self._size < 0:
            if self._descriptor < 0:
                self._size = os.stat(self.path).st_size
            else:
                self._size = os.fstat(self._descriptor).st_size
        return self._size

    def pread(self, size: int, position: int) -> bytes:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self)
        self._used = True
        return os.pread(descriptor, size, position)

    def pread_into(self, view: memoryview, position: int) -> int:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self)
        self._used = True
        return read_into(descriptor, view, position)

    def append(self, data: Bytes) -> None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self, os.O_CREAT)
        self._used = True
        size = self._size
        if size < 0:
            size = self.size()
        wanted = len(data)
        try:
            written = os.pwrite(descriptor, data, size)
            if written != wanted:
                write_all(descriptor, data, size, written)
        except OSError as error:
            self._cut_back(descriptor, size)
            raise named(error, self.path) from error
        self._size = size + wanted

    def _cut_back(self, descriptor: int, size: int) -> None:
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            self._size = -1  # ask again: the owner takes the log offline anyway

    def pwrite(self, data: Bytes, position: int) -> None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self, os.O_CREAT)
        self._used = True
        try:
            write_all(descriptor, data, position, 0)
        except OSError as error:
            self._size = -1
            raise named(error, self.path) from error
        if self._size >= 0:
            self._size = max(self._size, position + len(data))

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self, os.O_CREAT)
        os.ftruncate(descriptor, size)
        self._size = size

    def sync(self) -> None:
        descriptor = self._disk._begin_sync(self)
        try:
            sync_descriptor(descriptor)
        except OSError as error:
            raise named(error, self.path) from error
        finally:
            self._disk._end_sync(self, descriptor)

    def fileno(self) -> int | None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self)
        self._used = True
        return descriptor

    def is_cached(self, position: int, size: int) -> bool:
        descriptor = self.fileno()
        assert descriptor is not None
        return is_cached(descriptor, position, size)

    def reading_ahead(self, position: int, size: int) -> Callable[[], None]:
        descriptor = self.fileno()
        assert descriptor is not None
        return partial(read_ahead, os.dup(descriptor), position, size)

    def reading_once(self, position: int, size: int) -> Callable[[], bytes]:
        return partial(read_once, self.path, position, size)

    def close(self) -> None:
        if not self._kept:
            self._disk._close_descriptor(self)

    def __del__(self) -> None:
        self._disk._forget(self)


class RealDisk:
    """The machine's file system."""

    def __init__(self, *, descriptors_max: int | None = None) -> None:
        self.descriptors_max = descriptors_max or descriptors_allowed()
        self.descriptors_open = 0
        # Files in use by directory and name, so that renaming a directory touches only its own.
        self._files: dict[str, dict[str, weakref.ref[RealFile]]] = {}
        self._clock: deque[weakref.ref[RealFile]] = deque()
        # Held while opening and closing, never around a read or a write.
        self._guard = threading.RLock()
        self._spare = -1
        self._keep_spare()

    def __del__(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        directory, _, name = path.rpartition("/")
        with self._guard:
            siblings = self._files.setdefault(directory, {})
            known = siblings.get(name)
            file = known() if known is not None else None
            if file is None or file._kept:
                file = RealFile(self, directory, name)
                siblings[name] = weakref.ref(file)
            if create:
                self._open_descriptor(file, os.O_CREAT)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return self._retried(path, lambda: os.listdir(path))

    def entries(self, path: str) -> list[Entry]:
        return self._retried(path, lambda: self._entries(path))

    def _entries(self, path: str) -> list[Entry]:
        found = []
        with os.scandir(path) as scan:
            for entry in scan:
                try:
                    is_directory = entry.is_dir()
                    found.append(
                        Entry(entry.name, 0 if is_directory else entry.stat().st_size, is_directory)
                    )
                except FileNotFoundError:
                    continue  # it went between the listing and the asking
        return found

    def read(self, path: str) -> bytes:
        descriptor = self._open(path, os.O_RDONLY)
        try:
            pieces = []
            while piece := os.read(descriptor, 1 << 16):
                pieces.append(piece)
                if len(piece) < 1 << 16:
                    break
            return b"".join(pieces)
        finally:
            self._give_back(descriptor)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            self._keep_readable(new)
            os.replace(old, new)
            inside = self._files.pop(old, None)
            if inside is not None:
                self._files[new] = inside
                for reference in inside.values():
                    if (file := reference()) is not None:
                        file._directory = new
            else:
                self._rename_file(old, new)

    def _rename_file(self, old: str, new: str) -> None:
        directory, _, name = old.rpartition("/")
        reference = self._files.get(directory, {}).pop(name, None)
        if reference is None or (file := reference()) is None:
            return
        file._directory, _, file._name = new.rpartition("/")
        self._files.setdefault(file._directory, {})[file._name] = reference

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        with self._guard:
            self._keep_readable(path)
        # Outside the guard: freeing a big file takes its time, and others want to open theirs.
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _keep_readable(self, path: str) -> None:
        """A file that is still referenced keeps a descriptor: without its name it could not be
        opened again.
        """
        directory, _, name = path.rpartition("/")
        reference = self._files.get(directory, {}).pop(name, None)
        if reference is not None and (file := reference()) is not None:
            try:
                if file._descriptor < 0:
                    self._open_descriptor(file, may_sweep=False)
                file._kept = True
            except FileNotFoundError:
                pass

    def rmtree(self, path: str) -> None:
        with self._guard:
            for name in list(self._files.get(path, ())):
                self._keep_readable(f"{path}/{name}")
            self._files.pop(path, None)
        self._retried(path, lambda: shutil.rmtree(path))

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        temporary = f"{path}.tmp"
        descriptor = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(descriptor, data, 0, 0)
            if sync:
                sync_descriptor(descriptor)
        except OSError as error:
            raise named(error, path) from error
        finally:
            self._give_back(descriptor)
        with self._guard:
            # Or who opens this name next would be given the replaced file, and sync that one.
            self._keep_readable(path)
            os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def write_original(self, path: str, data: bytes) -> None:
        for _ in range(ORIGINAL_TRIES):
            self.write_atomically(path, time_line() + data, sync=True)
            if self.read_original(path) is not None:
                break  # else the device was too slow, or the clock was set

    def read_original(self, path: str) -> bytes | None:
        line, _, data = self.read(path).partition(b"\n")
        return data if was_changed_at(path, line) else None

    def sync_directory(self, path: str) -> None:
        descriptor = self._open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot sync a directory, and say so with EINVAL; there is then
            # nothing to wait for.
            if error.errno != errno.EINVAL:
                raise named(error, path) from error
        finally:
            self._give_back(descriptor)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def lock(self, path: str) -> Lock:
        return LockedFile(path)

    def database(self, path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def free_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).free

    def total_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).total

    def boot_id(self) -> str:
        return boot_id()

    # Descriptors

    def _open(self, path: str, flags: int, *, may_sweep: bool = False) -> int:
        """A new descriptor. Only a thread that reads and writes files may close others for it:
        another would close one that is just being read from.
        """
        return self._retried(
            path, lambda: os.open(path, flags | os.O_CLOEXEC, 0o644), may_sweep=may_sweep
        )

    def _retried(self, path: str, work: Callable[[], Result], *, may_sweep: bool = False) -> Result:
        """Repeats what fails for want of a descriptor, as long as one can be freed for it."""
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                if not self._free_descriptor(may_sweep=may_sweep):
                    raise OutOfDescriptors(error.errno, error.strerror, path) from error

    def _free_descriptor(self, *, may_sweep: bool) -> bool:
        with self._guard:
            if may_sweep and self._sweep(self.descriptors_open):
                return True
            if self._spare < 0:
                return False
            os.close(self._spare)
            self._spare = -1
            return True

    def _give_back(self, descriptor: int) -> None:
        os.close(descriptor)
        if self._spare < 0:
            self._keep_spare()

    def _keep_spare(self) -> None:
        """One descriptor is held open for nothing, to be given up when there is no other."""
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._spare = -1  # tried again when a file is closed

    def _open_descriptor(
        self, file: RealFile, extra_flags: int = 0, *, may_sweep: bool = True
    ) -> int:
        with self._guard:
            if file._descriptor >= 0:
                return file._descriptor
            if may_sweep and self.descriptors_open >= self.descriptors_max:
                self._sweep(self.descriptors_max)
            path = file.path
            try:
                descriptor = self._open(path, os.O_RDWR | extra_flags, may_sweep=may_sweep)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EROFS):
                    raise
                descriptor = self._open(path, os.O_RDONLY, may_sweep=may_sweep)
            file._descriptor = descriptor
            file._size = os.fstat(descriptor).st_size
            self.descriptors_open += 1
            self._clock.append(weakref.ref(file))
            return descriptor

    def _sweep(self, below: int) -> bool:
        """Close files not used since the last sweep, until fewer than `below` are open.

        Two rounds at most: the first takes away the marks. Unlinked files stay, and those that are
        being synced, so the limit may be exceeded: False then.
        """
        for _ in range(2 * len(self._clock)):
            if not self._clock or self.descriptors_open < below:
                break
            reference = self._clock.popleft()
            file = reference()
            if file is None or file._descriptor < 0:
                continue
            if file._used or file._kept or file._syncs:
                file._used = False
                self._clock.append(reference)
            else:
                self._close_descriptor(file)
        return self.descriptors_open < below

    def _close_descriptor(self, file: RealFile) -> None:
        with self._guard:
            if file._syncs:
                file._close_wanted = True
            elif file._descriptor >= 0:
                self._give_back(file._descriptor)
                file._descriptor = -1
                self.descriptors_open -= 1
                if len(self._clock) > 2 * self.descriptors_open + 64:
                    self._clock = deque(r for r in self._clock if (f := r()) and f._descriptor >= 0)

    def _begin_sync(self, file: RealFile) -> int:
        """A descriptor that stays open until `_end_sync`: the file's, or one for this sync alone.

        Were a closed file opened here to stay open, many of them could use up all descriptors, for
        only the thread that reads and writes may close others.
        """
        with self._guard:
            if file._descriptor < 0:
                return self._open(file.path, os.O_RDONLY)
            file._syncs += 1
            return file._descriptor

    def _end_sync(self, file: RealFile, descriptor: int) -> None:
        with self._guard:
            if descriptor != file._descriptor:
                self._give_back(descriptor)
                return
            file._syncs -= 1
            if file._close_wanted and not file._syncs:
                file._close_wanted = False
                self._close_descriptor(file)

    def _forget(self, file: RealFile) -> None:
        with self._guard:
            self._close_descriptor(file)
            siblings = self._files.get(file._directory)
            if siblings is not None:
                reference = siblings.get(file._name)
                if reference is not None and reference() is None:
                    del siblings[file._name]
                    if not siblings:
                        del self._files[file._directory]
