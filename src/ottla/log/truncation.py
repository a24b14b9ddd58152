"""What must be done before a log is cut back, so that nothing on the disk contradicts the cut.

- The log is not compacted meanwhile, and the cleaner's checkpoint is lowered: what comes after the
  cut has not been cleaned, at whatever offsets. Nor does a copy take its place (moves.py).
- The recovery point in its checkpoint is lowered: a power cut could otherwise leave other bytes
  where the checkpoint says that all is synced.
- If asked for, the bytes to be cut are kept beside the log in a `.corrupt` file (set_aside.py),
  synced before anything is cut.

    async with truncation_prepared(manager, log, offset) as cut:
        log.truncate_to(offset)
        cut.done = True
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ottla.log import checkpoints
from ottla.log.reading import segments_from
from ottla.log.segment import LOG
from ottla.log.set_aside import COPY_BYTES, free_suffix

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.manager import LogManager
    from ottla.seams.disk import Disk, File

logger = logging.getLogger("ottla.log")


class Cut:
    """A truncation under way; whoever carries it out sets `done`."""

    __slots__ = ("done", "kept_bytes", "path")

    def __init__(self) -> None:
        self.done = False
        self.path = ""  # of the bytes set aside
        self.kept_bytes = 0


def needs_preparation(manager: LogManager, log: Log, offset: int) -> bool:
    """Whether a cut at `offset` may not simply be made."""
    cleaner = manager.cleaner
    return (
        log.recovery_point > offset
        or cleaner.is_cleaning(log)
        or cleaner.offsets.get((log.topic, log.partition), 0) > offset
    )


@asynccontextmanager
async def truncation_prepared(
    manager: LogManager, log: Log, offset: int, *, set_aside: bool = False
) -> AsyncIterator[Cut]:
    """Prepare a cut of `log` at `offset`; what was set aside for one that is not made is removed.

    Raises OSError when it cannot be prepared: then nothing may be cut.
    """
    cut = Cut()
    key = (log.topic, log.partition)
    names = [checkpoints.RECOVERY_POINTS, checkpoints.CLEANER_OFFSETS]
    with manager.moves.held(log):
        await manager.cleaner.pause(log)
        try:
            if set_aside:
                await _set_aside(manager, log, offset, cut)
            manager.cleaner.truncated(key, offset)
            while log.recovery_point > offset:
                log.lower_recovery_point(offset)
                await manager.checkpointer.write([manager.data_dir_of(log)], names)
            yield cut
            if cut.done and cut.path:
                log.set_aside_bytes += cut.kept_bytes
                logger.error(
                    "%s: %d bytes cut at offset %d are kept in %s",
                    log.name, cut.kept_bytes, offset, cut.path,
                )  # fmt: skip
        finally:
            manager.cleaner.resume(log)
            if cut.path and not cut.done:
                _remove(manager.disk, cut.path)


def _remove(disk: Disk, path: str) -> None:
    try:
        disk.unlink(path, missing_ok=True)
    except OSError as error:
        logger.warning("%s is not needed, and cannot be removed: %s", path, error)


async def _set_aside(manager: LogManager, log: Log, offset: int, cut: Cut) -> None:
    """Copy all batches from the one that holds `offset` on into one file, in slices."""
    disk = manager.disk
    path = f"{log.directory}/{offset:020d}{LOG}"
    path += free_suffix(disk, path)
    cut.path = path
    copy = disk.open(path, create=True)
    for segment in segments_from(log.segments, offset):
        start = segment.position_of(offset) if offset > segment.base_offset else 0
        if start is not None and segment.size_bytes > start:
            cut.kept_bytes += await _copy(segment.file, start, segment.size_bytes, copy)
    await manager.background.thread(copy.sync)
    await manager.background.thread(disk.sync_directory, log.directory)
    copy.close()


async def _copy(file: File, start: int, end: int, copy: File) -> int:
    for at in range(start, end, COPY_BYTES):
        copy.append(file.pread(min(COPY_BYTES, end - at), at))
        await asyncio.sleep(0)
    return end - start
