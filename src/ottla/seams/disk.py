"""The disk, handed in: files and directories, real here, simulated in simulated/disk.py.

A file is named by its path and costs a descriptor only while it is in use: RealDisk keeps at most
`descriptors_max` of them open and closes those not used since the last sweep (a clock, not a
strict order of use, so that a read or a write pays one attribute store for it). A File survives
the renaming of its path or of its directory, and, while somebody holds it, the unlinking too: a
sender that was lent a range of a segment reads to the end of it.

What it owes its caller: `append` writes all or nothing; `write_atomically` leaves the old or the
new content; errors are OSError with the path in it. Reading and writing belong to one thread;
`File.sync`, `sync_directory`, `unlink` and `rmtree` may run in another.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import weakref
from collections import deque
from typing import NamedTuple, Protocol

from ottla.seams.posix import (
    AlreadyLocked,
    Bytes,
    LockedFile,
    descriptors_allowed,
    named,
    read_into,
    sync_descriptor,
    write_all,
)

__all__ = ["AlreadyLocked", "Bytes", "Disk", "Entry", "File", "Lock", "RealDisk", "RealFile"]


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

    def close(self) -> None:
        """Give the descriptor back; the next use opens it again."""


class Lock(Protocol):
    """A locked file."""

    def release(self) -> None: ...


class Disk(Protocol):
    """All that a broker asks of the place where its data lies."""

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

    def sync_directory(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock: ...

    def database(self, path: str) -> sqlite3.Connection: ...

    def free_bytes(self, path: str) -> int: ...


class RealFile:
    """A file of RealDisk; make it with RealDisk.open."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_directory",
        "_disk",
        "_kept",
        "_name",
        "_size",
        "_used",
    )

    def __init__(self, disk: RealDisk, directory: str, name: str) -> None:
        self._disk = disk
        self._directory = directory
        self._name = name
        self._descriptor = -1
        self._size = -1
        self._used = False  # since the clock's hand last came by
        self._kept = False  # unlinked: once closed it could not be opened again

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
        descriptor = self._disk._duplicate(self)
        try:
            sync_descriptor(descriptor)
        except OSError as error:
            raise named(error, self.path) from error
        finally:
            os.close(descriptor)

    def fileno(self) -> int | None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self)
        self._used = True
        return descriptor

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
        self._guard = (
            threading.RLock()
        )  # opening, closing, duplicating: never around a read or a write

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
        return os.listdir(path)

    def entries(self, path: str) -> list[Entry]:
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
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while piece := os.read(descriptor, 1 << 16):
                pieces.append(piece)
                if len(piece) < 1 << 16:
                    break
            return b"".join(pieces)
        finally:
            os.close(descriptor)

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
        """Whoever still holds the file keeps a descriptor of it: without the name there is no
        other way back.
        """
        directory, _, name = path.rpartition("/")
        reference = self._files.get(directory, {}).pop(name, None)
        if reference is not None and (file := reference()) is not None:
            try:
                if file._descriptor < 0:
                    self._open_descriptor(file)
                file._kept = True
            except FileNotFoundError:
                pass

    def rmtree(self, path: str) -> None:
        with self._guard:
            for name in list(self._files.get(path, ())):
                self._keep_readable(f"{path}/{name}")
            self._files.pop(path, None)
        shutil.rmtree(path)

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        temporary = f"{path}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(descriptor, data, 0, 0)
            if sync:
                sync_descriptor(descriptor)
        except OSError as error:
            raise named(error, path) from error
        finally:
            os.close(descriptor)
        with self._guard:
            # Or who opens this name next would be given the replaced file, and sync that one.
            self._keep_readable(path)
            os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot sync a directory, and say so with EINVAL; there is then
            # nothing to wait for.
            if error.errno != errno.EINVAL:
                raise named(error, path) from error
        finally:
            os.close(descriptor)

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

    def _open_descriptor(self, file: RealFile, extra_flags: int = 0) -> int:
        with self._guard:
            if file._descriptor >= 0:
                return file._descriptor
            if self.descriptors_open >= self.descriptors_max:
                self._sweep()
            path = file.path
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | extra_flags, 0o644)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EROFS):
                    raise
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            file._descriptor = descriptor
            file._size = os.fstat(descriptor).st_size
            self.descriptors_open += 1
            self._clock.append(weakref.ref(file))
            return descriptor

    def _sweep(self) -> None:
        """Close files not used since the hand last passed, until there is room for one more.

        Two rounds at most: the first takes away the marks. Unlinked files stay, and so the limit
        is a wish, not a wall.
        """
        for _ in range(2 * len(self._clock)):
            if self.descriptors_open < self.descriptors_max:
                return
            reference = self._clock.popleft()
            file = reference()
            if file is None or file._descriptor < 0:
                continue
            if file._used or file._kept:
                file._used = False
                self._clock.append(reference)
            else:
                self._close_descriptor(file)

    def _close_descriptor(self, file: RealFile) -> None:
        with self._guard:
            if file._descriptor >= 0:
                os.close(file._descriptor)
                file._descriptor = -1
                self.descriptors_open -= 1
                if len(self._clock) > 2 * self.descriptors_open + 64:
                    self._clock = deque(r for r in self._clock if (f := r()) and f._descriptor >= 0)

    def _duplicate(self, file: RealFile) -> int:
        """A descriptor of one's own, so that a sync in another thread is not cut off by the
        sweep.
        """
        with self._guard:
            return os.dup(
                file._descriptor if file._descriptor >= 0 else self._open_descriptor(file)
            )

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
