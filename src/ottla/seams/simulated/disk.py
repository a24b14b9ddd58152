"""A disk in memory that forgets what was not synced: for tests and the simulation.

Every file remembers what is on the device and, apart from it, what has been written since the
last sync; every directory the same of its names. `crash` then does to each un-synced write what
power cuts do: keeps it, loses it, keeps some sectors of it, or keeps the length and not the
bytes, each on its own, for devices write in any order. Names of one directory change in order
(file systems journal them). Syncing a file does not sync its name: the strictest reading of
POSIX.

Faults: `fail` lets operations on chosen paths raise OSError, `capacity_bytes` fills the disk up,
`flip_bit` and `cut` damage what is at rest. An fsync that fails drops what it should have
written, as Linux does, so that asking again succeeds and proves nothing.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.seams.disk import NO_DESCRIPTOR, AlreadyLocked, Entry, OutOfDescriptors
from ottla.seams.simulated.disk_nodes import Directory, Node, apply

if TYPE_CHECKING:
    from ottla.seams.disk import Bytes


class _Fault:
    """OSErrors to come."""

    def __init__(
        self, operation: str, part: str, number: int, after: int, times: int | None
    ) -> None:
        self.operation = operation
        self.part = part
        self.number = number
        self.after = after
        self.times = times

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.part not in path or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class SimulatedFile:
    """A file of SimulatedDisk; it refers to the content, so names may change or go."""

    __slots__ = ("__weakref__", "_disk", "_node", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, node: Node | None) -> None:
        self._disk = disk
        self._path = path
        self._node = node

    @property
    def path(self) -> str:
        return self._path

    def _found(self, *, create: bool = False) -> Node:
        if self._node is None:
            self._node = self._disk._file(self._path, create=create)
        return self._node

    def size(self) -> int:
        return len(self._found().data)

    def pread(self, size: int, position: int) -> bytes:
        self._disk._may_fail("read", self._path)
        return bytes(self._found().data[position : position + size])

    def pread_into(self, view: memoryview, position: int) -> int:
        data = self.pread(len(view), position)
        view[: len(data)] = data
        return len(data)

    def append(self, data: Bytes) -> None:
        node = self._found(create=True)
        self.pwrite(data, len(node.data))

    def pwrite(self, data: Bytes, position: int) -> None:
        self._disk._may_fail("write", self._path)
        node = self._found(create=True)
        self._disk._take(max(0, position + len(data) - len(node.data)), self._path)
        node.modified_ms = self._disk.now_ms
        node.write(data, position)

    def truncate(self, size: int) -> None:
        self._disk._may_fail("truncate", self._path)
        self._found(create=True).truncate(size)

    def sync(self) -> None:
        node = self._found()
        try:
            self._disk._may_fail("sync", self._path)
        except OutOfDescriptors:
            raise
        except OSError:
            node.pending.clear()
            raise
        node.sync()

    def fileno(self) -> int | None:
        return None

    def is_cached(self, position: int, size: int) -> bool:
        return True

    def reading_ahead(self, position: int, size: int) -> Callable[[], None]:
        return lambda: None

    def reading_once(self, position: int, size: int) -> Callable[[], bytes]:
        return lambda: self.pread(size, position)

    def close(self) -> None:
        pass


class SimulatedLock:
    """A lock of SimulatedDisk; a crash frees it."""

    def __init__(self, held: dict[str, SimulatedLock], path: str) -> None:
        self._held = held
        self._path = path
        held[path] = self

    def release(self) -> None:
        if self._held.get(self._path) is self:  # it may be lost, and another's since
            del self._held[self._path]


class SimulatedDisk:
    """Files and directories in memory."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.now_ms = 0  # what a file written now has as its time
        self._root = Directory()
        self._faults: list[_Fault] = []
        self._shut = False
        self._boots = 1
        self._locks: dict[str, SimulatedLock] = {}
        self._databases: dict[str, sqlite3.Connection] = {}

    # Faults

    def crash(self, seed: int) -> None:
        """Cut the power: what was not synced is kept, lost or torn, as the seed decides."""
        self._root = self._root.survivor(random.Random(seed))
        self._boots += 1
        self._locks = {}
        self._faults.clear()

    def kill(self) -> None:
        """Only the process dies: everything written is still there, and still not synced."""
        self._locks = {}
        self._faults.clear()

    def fail(
        self, operation: str, part: str, number: int, *, after: int = 0, times: int | None = None
    ) -> None:
        """Let an operation (read, write, truncate, sync, rename, unlink, open) raise OSError.

        Only on paths that contain `part`; the first `after` go well; then `times`, or for ever.
        """
        self._faults.append(_Fault(operation, part, number, after, times))

    def heal(self) -> None:
        self._faults.clear()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Let every operation fail for a while: what runs now belongs to a process that ended."""
        before, self._shut = self._shut, True
        try:
            yield
        finally:
            self._shut = before

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage a file on the device and in memory alike."""
        node = self._file(path)
        node.data[bit // 8] ^= 1 << bit % 8
        node.stable = bytes(node.data)
        node.pending.clear()

    def flip_synced_bit(self, path: str, bit: int) -> None:
        """Damage what is on the device; what was written since and not synced stays as it is."""
        node = self._file(path)
        stable = bytearray(node.stable)
        stable[bit // 8] ^= 1 << bit % 8
        node.stable = bytes(stable)
        node.data[bit // 8] ^= 1 << bit % 8

    def flip_unsynced_bit(
        self, path: str, chance: random.Random, places: Callable[[bytes], list[int]]
    ) -> bool:
        """Damage what was written to a file and not synced, as a power cut may; False if there is
        nothing. `places` gives the bytes of one write that may be damaged.
        """
        self._boots += 1
        node = self._file(path)
        writes = [n for n, (_, written) in enumerate(node.pending) if written and places(written)]
        if not writes:
            return False
        number = chance.choice(writes)
        position, written = node.pending[number]
        assert written is not None
        damaged = bytearray(written)
        at = chance.choice(places(written))
        damaged[at] ^= 1 << chance.randrange(8)
        node.pending[number] = position, bytes(damaged)
        node.data = bytearray(node.stable)
        for change in node.pending:
            apply(node.data, change)
        return True

    def lose_lock(self, path: str) -> None:
        """Let another process take a lock although its holder is alive and believes to have it."""
        self._locks.pop(path, None)

    def cut(self, path: str, size: int) -> None:
        """Lose the end of a file, on the device and in memory alike."""
        node = self._file(path)
        del node.data[size:]
        node.stable = bytes(node.data)
        node.pending.clear()

    # The interface of Disk

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self._may_fail("open", path)
        node = self._find(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None and create:
            node = self._file(path, create=True)
        return SimulatedFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def listdir(self, path: str) -> list[str]:
        return sorted(self._folder(path).names)

    def entries(self, path: str) -> list[Entry]:
        return [
            Entry(name, 0, True)
            if isinstance(node, Directory)
            else Entry(name, len(node.data), False)
            for name, node in sorted(self._folder(path).names.items())
        ]

    def read(self, path: str) -> bytes:
        self._may_fail("read", path)
        return bytes(self._file(path).data)

    def mkdir(self, path: str) -> None:
        self._may_change(path)
        at = self._root
        for name in _parts(path):
            if name not in at.names:
                at.change({name: Directory()})
            node = at.names[name]
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            at = node

    def rename(self, old: str, new: str) -> None:
        self._may_fail("rename", old)
        node = self._find(old)
        if node is None:
            raise _missing(old)
        (old_folder, old_name), (new_folder, new_name) = self._place(old), self._place(new)
        if old_folder is new_folder:
            old_folder.change({old_name: None, new_name: node})
        else:
            new_folder.change({new_name: node})
            old_folder.change({old_name: None})

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        self._may_fail("unlink", path)
        if self._find(path) is None:
            if missing_ok:
                return
            raise _missing(path)
        folder, name = self._place(path)
        folder.change({name: None})

    def rmtree(self, path: str) -> None:
        self._may_change(path)
        self._folder(path)
        folder, name = self._place(path)
        folder.change({name: None})

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        if sync:
            file.sync()
        self.rename(f"{path}.tmp", path)
        if sync:
            self.sync_directory(path.rpartition("/")[0])

    def write_original(self, path: str, data: bytes) -> None:
        self.write_atomically(path, data, sync=True)
        self._file(path).original = True

    def read_original(self, path: str) -> bytes | None:
        return self.read(path) if self._file(path).original else None

    def sync_directory(self, path: str) -> None:
        self._may_fail("sync", path)
        self._folder(path).sync()

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._may_change(path)
        self._file(path).modified_ms = modified_ms

    def lock(self, path: str) -> SimulatedLock:
        if path in self._locks:
            raise AlreadyLocked(errno.EAGAIN, "another broker holds the lock", path)
        self._file(path, create=True)
        return SimulatedLock(self._locks, path)

    def database(self, path: str) -> sqlite3.Connection:
        """SQLite's own durability is not simulated: what is committed survives a crash."""
        address = f"file:{id(self)}{path}?mode=memory&cache=shared"
        self._file(path, create=True)  # it is there, though its bytes are elsewhere
        if path not in self._databases:
            self._databases[path] = _connect(address)  # held, or the content would go with the last
        return _connect(address)

    def free_bytes(self, path: str) -> int:
        return self.total_bytes(path) - self._used(self._root)

    def total_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    def boot_id(self) -> str:
        return f"boot {self._boots}"

    # Inside

    def _may_fail(self, operation: str, path: str) -> None:
        self._may_change(path)
        for fault in self._faults:
            if fault.strikes(operation, path):
                kind = OutOfDescriptors if fault.number in NO_DESCRIPTOR else OSError
                raise kind(fault.number, os.strerror(fault.number), path)

    def _may_change(self, path: str) -> None:
        if self._shut:
            raise OSError(errno.EIO, "the process has ended", path)

    def _take(self, more_bytes: int, path: str) -> None:
        if self.capacity_bytes is not None and more_bytes > self.free_bytes(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _used(self, directory: Directory) -> int:
        return sum(
            self._used(node) if isinstance(node, Directory) else len(node.data)
            for node in directory.names.values()
        )

    def _find(self, path: str) -> Node | Directory | None:
        at: Node | Directory | None = self._root
        for name in _parts(path):
            if not isinstance(at, Directory):
                return None
            at = at.names.get(name)
        return at

    def _folder(self, path: str) -> Directory:
        found = self._find(path)
        if not isinstance(found, Directory):
            raise _missing(path)
        return found

    def _place(self, path: str) -> tuple[Directory, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _file(self, path: str, *, create: bool = False) -> Node:
        found = self._find(path)
        if found is None and create:
            folder, name = self._place(path)
            found = Node()
            found.modified_ms = self.now_ms
            folder.change({name: found})
        if not isinstance(found, Node):
            raise _missing(path)
        return found


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
