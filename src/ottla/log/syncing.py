"""What a flush hands to another thread: files and directories that can be made to last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.seams.disk import Disk


class Syncable(Protocol):
    """A file or a directory that can be made to last; any thread may do it."""

    def sync(self) -> None: ...


class DirectoryEntry:
    """A directory among the files to sync: a new file lasts only once its name does."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_directory(self._path)
