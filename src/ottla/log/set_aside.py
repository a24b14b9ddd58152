"""What recovery cuts from a log is kept in `.corrupt` files beside it, never unlinked.

So is what a follower must cut below its high watermark (truncation.py).

A segment keeps its name: `00000000000000000120.log` becomes `00000000000000000120.log.corrupt`,
its indexes likewise. The bytes cut from the end of a segment that stays go into a file named after
the offset at which the log was cut. If a name is taken, by an earlier recovery, a number is put
before `.corrupt`. Kafka ignores these files, retention and compaction leave them alone, and
deleting the topic removes them with the folder; an operator who has read them may delete them.

Not kept: zeros, which a power cut leaves where a write did not arrive, and a batch that ends before
its own length says (an append torn by a crash), unless the bytes contain a whole batch.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from ottla.log.segment import CORRUPT, LOG, Segment
from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
)
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

COPY_BYTES = 1024 * 1024  # copied at once
SEARCH_BYTES_MAX = 16 * 1024 * 1024  # a longer tail is more than one torn append, and is kept
_length = struct.Struct(">i").unpack_from
_crc = struct.Struct(">I").unpack_from


def set_aside_segment(disk: Disk, segment: Segment) -> int:
    """Renames a segment's files; returns the bytes of its log. An empty one is deleted instead.

    The caller syncs the directory.
    """
    if not segment.size_bytes:
        segment.delete()
        return 0
    segment.change_suffix(free_suffix(disk, segment.path(LOG)))
    segment.close()
    return segment.size_bytes


def set_aside_tail(disk: Disk, segment: Segment, position: int, end: int, offset: int) -> int:
    """Copies the bytes from `position` to `end` of a segment's log file, if they are worth it.

    Returns the bytes kept. The copy is synced; the caller syncs the directory, and only then
    shortens the segment.
    """
    if not _worth_keeping(segment, position, end):
        return 0
    path = f"{segment.directory}/{offset:020d}{LOG}"
    path += free_suffix(disk, path)
    copy = disk.open(path, create=True)
    try:
        for start in range(position, end, COPY_BYTES):
            copy.append(segment.file.pread(min(COPY_BYTES, end - start), start))
        copy.sync()
    except OSError:  # a full disk, say: the log cannot be opened then, and nothing is lost
        disk.unlink(path, missing_ok=True)
        raise
    copy.close()
    return end - position


def free_suffix(disk: Disk, path: str) -> str:
    """`.corrupt`, or the first `.1.corrupt`, `.2.corrupt` … under which `path` is free."""
    if not disk.exists(path + CORRUPT):
        return CORRUPT
    numbered = (f".{number}{CORRUPT}" for number in itertools.count(1))
    return next(suffix for suffix in numbered if not disk.exists(path + suffix))


def _worth_keeping(segment: Segment, position: int, end: int) -> bool:
    if end - position > SEARCH_BYTES_MAX:
        starts = range(position, end, COPY_BYTES)
        return any(any(segment.file.pread(min(COPY_BYTES, end - at), at)) for at in starts)
    data = segment.file.pread(end - position, position)
    if not any(data) or len(data) < HEADER_BYTES:
        return False
    length = _length(data, LENGTH_POSITION)[0]
    torn = data[MAGIC_POSITION] == MAGIC and length + BATCH_OVERHEAD > len(data)
    return not torn or _has_whole_batch(data)


def _has_whole_batch(data: bytes) -> bool:
    """Whether the bytes contain a batch with a right checksum."""
    magic_at = data.find(MAGIC, MAGIC_POSITION)
    while magic_at >= 0:
        start = magic_at - MAGIC_POSITION
        size = _length(data, start + LENGTH_POSITION)[0] + BATCH_OVERHEAD
        if HEADER_BYTES <= size <= len(data) - start:
            batch = memoryview(data)[start : start + size]
            if crc32c(batch, ATTRIBUTES_POSITION) == _crc(batch, CRC_POSITION)[0]:
                return True
        magic_at = data.find(MAGIC, magic_at + 1)
    return False
