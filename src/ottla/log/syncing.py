"""What a flush hands to another thread: files and directories that can be made to last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.seams.disk import Disk


class Syncable(Protocol):
    """A file or a directory that can be made to last; any thread may do it."""

    def sync(self) -> None: ...


class FlushMark(NamedTuple):
    """How far a flush reaches: the log's end when it began, and its truncations until then.

    A sync that began before a truncation must not vouch for what was written after it.
    """

    end_offset: int
    truncations: int


class DirectoryEntry:
    """A directory among the files to sync: a new file lasts only once its name does."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_directory(self._path)


def sync_all(files: Sequence[Sequence[Syncable]]) -> list[OSError | None]:
    """On a thread: syncs each log's files; one that fails leaves the others alone."""
    failures: list[OSError | None] = []
    for of_one_log in files:
        failure: OSError | None = None
        try:
            for file in of_one_log:
                file.sync()
        except OSError as error:
            failure = error
        failures.append(failure)
    return failures
