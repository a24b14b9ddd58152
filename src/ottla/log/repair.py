"""Putting sound bytes in the place of damaged ones, in a segment that is in use.

The batches of another replica are the same bytes at the same offsets, so nothing else of the
segment changes; only one that lacks its end gets it back. What was there is kept beside the log
first, in a `.corrupt` file (set_aside.py). A crash in between leaves what is damaged damaged, to be
found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.checkpoints import COMPACTION_METADATA
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


def may_grow(log: Log, damage: Damage) -> bool:
    """Whether more bytes can take the place of the damaged ones: a segment was cut while the broker
    did not run, or the one behind it is gone, so this is the end of its file.
    """
    at_end = damage.end_position == damage.segment.size_bytes
    return at_end and damage.segment is not log.active and not may_have_gaps(log)


def may_have_gaps(log: Log) -> bool:
    """Whether the log is compacted, or was."""
    return log.config.compact or log.disk.exists(f"{log.directory}/{COMPACTION_METADATA}")


async def keep_damaged(logs: LogManager, log: Log, damage: Damage) -> None:
    """Copy the damaged bytes to a file beside the log, synced. Raises OSError, and leaves none."""
    if not damage.size:
        return
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
    segment = damage.segment
    file = segment.file
    if not is_current(log, damage):
        return False
    file.pwrite(data, damage.position)
    if damage.position + len(data) > segment.size_bytes:
        segment.size_bytes = damage.position + len(data)
        segment.largest_timestamp = None  # to be looked up again
    await logs.background.thread(file.sync)
    return True
