"""Simulated machines that share a directory, as the processes of one host or a network mount do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.seams.simulated.disk import SimulatedDisk, SimulatedLock

if TYPE_CHECKING:
    import sqlite3

    from ottla.seams.simulated.disk_nodes import Directory, Node


class SharingDisk(SimulatedDisk):
    """A machine's own disk, with all below `at` on a disk that others have too.

    What happens to this machine happens to its own files only; its locks on shared files end with
    its process.
    """

    def __init__(self, shared: SimulatedDisk, at: str) -> None:
        super().__init__()
        self._shared = shared
        self._at = at
        self._held: list[SimulatedLock] = []

    def replacement(self) -> SharingDisk:
        """An empty disk for the same machine."""
        return SharingDisk(self._shared, self._at)

    def crash(self, seed: int) -> None:
        super().crash(seed)
        self._release()

    def kill(self) -> None:
        super().kill()
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for lock in held:
            lock.release()

    def mkdir(self, path: str) -> None:
        if self._is_shared(path):
            self._may_change(path)
            self._shared.mkdir(path)
        else:
            super().mkdir(path)

    def lock(self, path: str) -> SimulatedLock:
        if not self._is_shared(path):
            return super().lock(path)
        lock = self._shared.lock(path)
        self._held.append(lock)
        return lock

    def lose_lock(self, path: str) -> None:
        if self._is_shared(path):
            self._shared.lose_lock(path)
        else:
            super().lose_lock(path)

    def database(self, path: str) -> sqlite3.Connection:
        return self._shared.database(path) if self._is_shared(path) else super().database(path)

    def _is_shared(self, path: str) -> bool:
        return path == self._at or path.startswith(f"{self._at}/")

    def _find(self, path: str) -> Node | Directory | None:
        return self._shared._find(path) if self._is_shared(path) else super()._find(path)
