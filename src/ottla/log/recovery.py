"""Opening a log: what a clean stop left is believed, what a crash left is checked batch by batch.

After a clean stop only names and sizes are looked at, and the headers behind the last index
entry. After a crash every batch from the recovery point on is checked: length, magic, checksum,
offsets going up. The log is cut at the first that fails, later segments go, and a line says how
much. Indexes, leader epochs and producer state beyond the recovery point are made anew from the
same walk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.checksum import crc32c
from ottla.log.log import Log
from ottla.log.segment import LOG, SNAPSHOT, BatchAt, Segment
from ottla.log.swap import offset_of, tidy_files

if TYPE_CHECKING:
    from ottla.seams.disk import Disk
    from ottla.settings import LogConfig

logger = logging.getLogger("ottla.log")


def create_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    now_ms: int,
    jitter_ms: int = 0,
) -> Log:
    """A new, empty log. Only the directory is made; its files come with the first append."""
    disk.mkdir(directory)
    return Log(
        disk,
        directory,
        topic,
        partition,
        topic_id,
        config,
        segments=[Segment(disk, directory, 0, created_ms=now_ms)],
        log_start_offset=0,
        recovery_point=0,
        snapshots=[],
        jitter_ms=jitter_ms,
    )


def load_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int,
    jitter_ms: int = 0,
) -> Log:
    """Open a log that is on disk; after a crash (`clean` false) check it from the recovery point
    on.
    """
    segments, snapshots = _find_files(disk, directory, now_ms)
    if not clean:
        segments = _recover(segments, recovery_point, f"{topic}-{partition}")
    else:
        _find_end(segments[-1])
    end_offset = segments[-1].next_offset
    return Log(
        disk,
        directory,
        topic,
        partition,
        topic_id,
        config,
        segments=segments,
        log_start_offset=min(max(log_start_offset, segments[0].base_offset), end_offset),
        recovery_point=min(recovery_point, end_offset) if not clean else end_offset,
        snapshots=[at for at in snapshots if at <= end_offset],
        jitter_ms=jitter_ms,
    )


def _find_files(disk: Disk, directory: str, now_ms: int) -> tuple[list[Segment], list[int]]:
    """The segments by their names, and the offsets of the producer snapshots."""
    entries = disk.entries(directory)
    names = tidy_files(disk, directory, [entry.name for entry in entries])
    if len(names) != len(entries):
        entries = disk.entries(directory)
    sizes = {entry.name: entry.size for entry in entries}
    bases = sorted(offset_of(name) or 0 for name in names if name.endswith(LOG))
    snapshots = sorted(offset_of(name) or 0 for name in names if name.endswith(SNAPSHOT))
    segments = []
    for base_offset, next_base in zip(bases, [*bases[1:], None], strict=True):
        size = sizes[f"{base_offset:020d}{LOG}"]
        segments.append(
            Segment(
                disk,
                directory,
                base_offset,
                size_bytes=size,
                next_offset=next_base,
                created_ms=now_ms,
            )
        )
    return segments or [Segment(disk, directory, 0, created_ms=now_ms)], snapshots


def _find_end(segment: Segment) -> None:
    """Walk over the headers behind the last index entry to the end of the last segment."""
    if not segment.size_bytes:
        return
    last_indexed = segment.index.last() if segment.size_bytes > 4096 else None
    for batch in segment.batches(last_indexed[1] if last_indexed else 0):
        segment.next_offset = batch.last_offset + 1


def _recover(segments: list[Segment], recovery_point: int, name: str) -> list[Segment]:
    kept = []
    for at, segment in enumerate(segments):
        kept.append(segment)
        if segment is not segments[-1] and segment.next_offset <= recovery_point:
            continue
        whole = _check(segment)
        if not whole:
            for later in segments[at + 1 :]:
                later.delete()
            logger.warning("%s: cut at offset %d", name, segment.next_offset)
            break
    return kept


def _check(segment: Segment) -> bool:
    """Cut the segment after its last valid batch; says whether nothing had to go."""
    position = 0
    next_offset = segment.base_offset
    for batch in segment.batches():
        if batch.base_offset < next_offset or not _valid(segment, batch):
            break
        position = batch.position + batch.size
        next_offset = batch.last_offset + 1
    whole = position == segment.size_bytes
    segment.next_offset = next_offset
    if not whole:
        segment.cut(position)
    return whole


def _valid(segment: Segment, batch: BatchAt) -> bool:
    if batch.magic != 2:
        return False
    data = bytearray(segment.file.pread(batch.size, batch.position))
    return len(data) == batch.size and bool(crc32c(memoryview(data), 21) == batch.crc)
