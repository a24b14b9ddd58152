"""Taking records away from a log: old segments at the front, a tail that diverged, all of it.

Called by retention, DeleteRecords, compaction and (later) followers. Deleted segments leave the
list at once and are renamed to `.deleted`; their files go when the caller calls `Segment.delete`,
after `file.delete.delay.ms`, so that a fetch under way reads on. A crash in between leaves
`.deleted` files, which the next load removes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.segment import DELETED, SNAPSHOT, Segment

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger("ottla.log")


def delete_oldest(log: Log, count: int, *, now_ms: int) -> list[Segment]:
    """Take the `count` oldest segments out; the caller deletes their files later."""
    if count <= 0:
        return []
    if count >= len(log.segments):
        log.roll(now_ms=now_ms)
        count = min(count, len(log.segments) - 1)
    removed = log.segments[:count]
    log.segments = log.segments[count:]
    for segment in removed:
        segment.change_suffix(DELETED)
    _drop_snapshots(log, below=log.segments[0].base_offset)
    if log.segments[0].base_offset > log.log_start_offset:
        raise_log_start(log, log.segments[0].base_offset)
    return removed


def raise_log_start(log: Log, offset: int) -> int:
    """Records below `offset` are gone for readers; answers the log's start."""
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        log.producers.forget_completed_below(offset)
        if log.on_change is not None:
            log.on_change()
    return log.log_start_offset


def truncate_to(log: Log, offset: int, *, now_ms: int) -> int:
    """Cut the log back so that it ends at `offset` (or at the batch's start); the bytes removed."""
    if offset >= log.end_offset:
        return 0
    if offset < log.segments[0].base_offset:
        return truncate_fully(log, offset, now_ms=now_ms)
    removed_bytes = 0
    while log.segments[-1].base_offset > offset:
        segment = log.segments.pop()
        removed_bytes += segment.size_bytes
        segment.change_suffix(DELETED)
        segment.delete()
    active = log.segments[-1]
    removed_bytes += active.truncate_to(offset)
    _ends_at(log, active.next_offset)
    return removed_bytes


def truncate_fully(log: Log, offset: int, *, now_ms: int) -> int:
    """Drop everything and begin again, empty, at `offset`; the bytes removed."""
    removed_bytes = log.size_bytes
    for segment in reversed(log.segments):
        segment.change_suffix(DELETED)
        segment.delete()
    for snapshot in list(log.snapshots):
        _remove_snapshot(log, snapshot)
    log.segments = [Segment.create(log.disk, log.directory, offset, now_ms=now_ms)]
    log.log_start_offset = offset
    _ends_at(log, offset)
    return removed_bytes


def _ends_at(log: Log, offset: int) -> None:
    log.end_offset = offset
    log.recovery_point = min(log.recovery_point, offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    log.epochs.truncate_from_end(offset)
    if log.epochs.dirty:
        log.epochs.write(sync=False)
    for snapshot in [at for at in log.snapshots if at > offset]:
        _remove_snapshot(log, snapshot)
    log.reload_producers()


def _drop_snapshots(log: Log, *, below: int) -> None:
    """A snapshot before the first segment is of no use to a recovery, which starts there."""
    for snapshot in [at for at in log.snapshots if at < below]:
        _remove_snapshot(log, snapshot)


def _remove_snapshot(log: Log, offset: int) -> None:
    log.snapshots.remove(offset)
    log.disk.unlink(f"{log.directory}/{offset:020d}{SNAPSHOT}", missing_ok=True)
