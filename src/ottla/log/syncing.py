"""What a flush hands to another thread: files and directories that can be made to last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.log.checkpoints import PARTITION_METADATA
from ottla.log.epochs import CHECKPOINT
from ottla.log.reading import segments_from
from ottla.log.segment import SNAPSHOT

if TYPE_CHECKING:
    from ottla.log.log import Log
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


def to_sync(log: Log, *, indexes: bool) -> list[Syncable]:
    """All that must last before the recovery point may move to the log's end.

    Of the active segment the log file, and the aborted transactions if there are any: what
    recovery makes anew behind the recovery point may be lost. What lies before it must stand, so
    full segments go with all their files, and the leader epochs with them. `indexes`: everything.
    """
    found: list[Syncable] = []
    names_changed = False
    active = log.active
    for segment in segments_from(log.segments, log.recovery_point):
        if segment.unsynced_name and not segment.size_bytes and segment.base_offset == 0:
            continue  # its file comes with the first batch
        names_changed |= segment.unsynced_name
        if indexes or segment is not active:
            segment.write_out_indexes()
            found.extend(segment.files())
            names_changed = True
        else:
            found.append(segment.file)
            found.extend(segment.transaction_files())
    if log.unsynced_epoch_offset is not None:
        found.append(log.disk.open(f"{log.directory}/{CHECKPOINT}"))
        names_changed = True
    if indexes and log.snapshots:
        found.append(log.disk.open(f"{log.directory}/{log.snapshots[-1]:020d}{SNAPSHOT}"))
        names_changed = True
    if log.unsynced_folder:
        # Whose records these are must last with them, or a later topic of the same name gets them.
        metadata = f"{log.directory}/{PARTITION_METADATA}"
        if log.disk.exists(metadata):
            found.append(log.disk.open(metadata))
            names_changed = True
    if names_changed:
        found.append(DirectoryEntry(log.disk, log.directory))
    if log.unsynced_folder:
        found.append(DirectoryEntry(log.disk, log.directory.rpartition("/")[0]))
    return found


def synced(log: Log, end_offset: int) -> None:
    """What `to_sync` gave when the log ended at `end_offset` lasts now.

    Syncs may overlap, so a mark goes only when its cause is older than this one's beginning: the
    segment or the epoch had a batch below `end_offset` then.
    """
    for segment in segments_from(log.segments, log.recovery_point):
        if segment.base_offset < end_offset:
            segment.unsynced_name = False
    if log.unsynced_epoch_offset is not None and log.unsynced_epoch_offset < end_offset:
        log.unsynced_epoch_offset = None
    if end_offset > 0:
        log.unsynced_folder = False
    log.recovery_point = max(log.recovery_point, min(end_offset, log.end_offset))
