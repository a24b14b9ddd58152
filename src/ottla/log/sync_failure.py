"""A sync of a log has failed: a note in its folder, and what the next process does about it.

Linux takes pages that it could not write for clean: the page cache has what was written, the device
has not, and a later sync writes none of it and succeeds. That outlives the process. So the log
leaves a note, and when it is loaded next, everything that no earlier sync vouches for is written
again as it was read, so that the next sync means it.

The note need not be synced itself: it is gone only when the power was, and then the page cache is
gone as well. Kafka, which halts after such an error, trusts what it reads after the restart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.reading import segments_from
from ottla.log.segment import CORRUPT, DELETED
from ottla.log.swap import offset_of
from ottla.seams.disk import OutOfDescriptors

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

SYNC_FAILURE = "sync-failure"
COPY_BYTES = 1024 * 1024  # written at once
LEFT_ALONE = (CORRUPT, DELETED)  # never read again


def note(disk: Disk, directory: str, error: OSError) -> bool:
    """Leave the note in a partition's folder, and return True, if this error is a failed sync.

    Where no descriptor was free nothing was synced, so nothing was taken for clean.
    """
    if isinstance(error, OutOfDescriptors):
        return False
    try:
        disk.open(f"{directory}/{SYNC_FAILURE}", create=True).close()
    except FileNotFoundError:
        pass  # the folder was deleted meanwhile
    except OSError as problem:
        logger.error(
            "%s: that a sync has failed cannot be noted, a later one may vouch for what is not on "
            "the device: %s",
            directory,
            problem,
        )
    return True


def write_again(disk: Disk, directory: str, segments: list[Segment], recovery_point: int) -> None:
    """Write again what the device may lack of a folder with the note, and remove the note.

    Segments that end below the recovery point were synced before.
    """
    first_offset = segments_from(segments, recovery_point)[0].base_offset
    logger.warning(
        "%s: a sync has failed before the last stop: what no other has covered, from segment %d "
        "on, is written again",
        directory,
        first_offset,
    )
    for name, _, is_directory in disk.entries(directory):
        offset = offset_of(name)
        covered = offset is not None and offset < first_offset
        if not (covered or is_directory or name.endswith((SYNC_FAILURE, *LEFT_ALONE))):
            _write_again(disk, f"{directory}/{name}")
    disk.unlink(f"{directory}/{SYNC_FAILURE}", missing_ok=True)


def _write_again(disk: Disk, path: str) -> None:
    file = disk.open(path)
    position = 0
    while data := file.pread(COPY_BYTES, position):
        file.pwrite(data, position)
        position += len(data)
    file.close()
