"""Putting sound bytes in the place of damaged ones, in a segment that is in use.

The batches of another replica are the same bytes at the same offsets, so nothing else of the
segment changes. What was there is kept beside the log first, in a `.corrupt` file (set_aside.py). A
crash in between leaves what is damaged damaged, to be found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.segment import LOG
from ottla.log.set_aside import free_suffix

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.manager import LogManager
    from ottla.log.scrubbing import Damage


def is_current(log: Log, damage: Damage) -> bool:
    """Whether the damaged bytes are still a part of the log."""
    segment = damage.segment
    return (
        log.offline is None
        and segment.size_bytes >= damage.end_position
        and any(each is segment for each in log.segments)
        and log.log_start_offset < damage.next_offset
    )


async def keep_damaged(logs: LogManager, log: Log, damage: Damage) -> None:
    """Copy the damaged bytes to a file beside the log, synced. Raises OSError, and leaves none."""
    disk, thread = logs.disk, logs.background.thread
    path = f"{log.directory}/{damage.first_offset:020d}{LOG}"
    path += free_suffix(disk, path)
    copy = disk.open(path, create=True)
    try:
        copy.append(damage.segment.file.pread(damage.size, damage.position))
        await thread(copy.sync)
        await thread(disk.sync_directory, log.directory)
    except OSError:
        disk.unlink(path, missing_ok=True)
        raise
    finally:
        copy.close()


async def put_in_place(logs: LogManager, log: Log, damage: Damage, data: bytes) -> bool:
    """Write `data` over the damaged bytes; False if these are no longer there. Raises OSError."""
    file = damage.segment.file
    if not is_current(log, damage):
        return False
    file.pwrite(data, damage.position)
    await logs.background.thread(file.sync)
    return True
