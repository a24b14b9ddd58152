"""The check of a segment after a crash: every batch behind the recovery point, byte for byte.

Below the recovery point the files were synced; there the walk starts at the last index entry that
the log confirms and reads headers only, so a lost or torn index is made anew without reading the
data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from ottla.log.header import HEADER_BYTES, MAGIC, BatchAt
from ottla.log.segment import Segment
from ottla.log.time_index import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_BYTES = 1024 * 1024  # read at once
CRC_FROM = 21


class Findings:
    """What the checked batches tell beyond their being sound."""

    __slots__ = ("epochs", "from_start", "producers")

    def __init__(self) -> None:
        self.epochs: list[tuple[int, int]] = []  # leader epoch and its first offset seen
        self.producers = False  # whether any batch has a producer id
        self.from_start = True  # whether the walk saw every batch of the log


def check_segment(
    segment: Segment,
    recovery_point: int,
    findings: Findings,
    index_interval_bytes: int,
    *,
    dense: bool,
) -> str | None:
    """Cut the segment after its last valid batch; says what was wrong with the next, if anything.

    `dense`: above the recovery point offsets follow each other without gaps. The base offset lies
    outside the checksum, so only its neighbours can tell that it is wrong.
    """
    segment.unsynced_name = True  # who knows
    if not segment.size_bytes:
        segment.next_offset = segment.base_offset
        return None
    start = _start(segment, recovery_point)
    if start or segment.base_offset:
        findings.from_start = False
    size_bytes = segment.size_bytes
    segment.next_offset = segment.base_offset
    segment.size_bytes = end = start
    segment.bytes_since_index = 0
    largest = segment.time_index.last() if start else None
    segment.largest_timestamp = largest.timestamp if largest else NO_TIMESTAMP
    segment.largest_timestamp_offset = largest.offset if largest else -1
    expected = -1 if start else segment.base_offset
    problem = None
    for batch, data in _walk(segment, start, size_bytes):
        problem = _problem(batch, data, expected, recovery_point, dense=dense)
        if problem is not None:
            break
        _note(segment, batch, findings, index_interval_bytes)
        end = batch.position + batch.size
        expected = batch.last_offset + 1
    else:
        if end < size_bytes:
            problem = f"no whole batch in the last {size_bytes - end} bytes"
    if problem is not None:
        segment.cut(end)
    segment.size_bytes = end
    segment.file.close()  # many logs are checked in a row, few of them are used soon
    return problem


def _start(segment: Segment, recovery_point: int) -> int:
    """Where to begin: at the last index entry below the recovery point that the log confirms."""
    segment.transaction_index.truncate_to(recovery_point)  # the rest comes back with the producers
    segment.index.strip_zeros()
    segment.time_index.strip_zeros()
    entry = segment.confirmed(recovery_point - 1)
    if entry is None:
        segment.index.reset()
        segment.time_index.reset()
        return 0
    segment.index.truncate_to(entry[0] + 1)
    segment.time_index.truncate_to(entry[0] + 1)
    return entry[1]


def _walk(segment: Segment, position: int, end: int) -> Iterator[tuple[BatchAt, bytes]]:
    """Batches with all their bytes, up to the first that cannot be a whole one."""
    file = segment.file
    data = b""
    start = position
    while position + HEADER_BYTES <= end:
        at = position - start
        if at + HEADER_BYTES > len(data):
            data = file.pread(min(CHECK_BYTES, end - position), position)
            start, at = position, 0
            if len(data) < HEADER_BYTES:
                return
        batch = BatchAt(data, at, position)
        if batch.size < HEADER_BYTES or position + batch.size > end:
            return
        if at + batch.size > len(data):
            data = file.pread(max(batch.size, min(CHECK_BYTES, end - position)), position)
            start, at = position, 0
            if len(data) < batch.size:
                return
        yield batch, data[at : at + batch.size]
        position += batch.size


def _problem(
    batch: BatchAt, data: bytes, expected: int, recovery_point: int, *, dense: bool
) -> str | None:
    if batch.magic != MAGIC:
        return f"magic {batch.magic} at byte {batch.position}"
    if batch.last_offset < batch.base_offset:
        return f"offsets {batch.base_offset} to {batch.last_offset} at byte {batch.position}"
    if expected >= 0 and (
        batch.base_offset < expected
        or (dense and batch.base_offset > max(expected, recovery_point))
    ):
        return f"offset {batch.base_offset} at byte {batch.position} where {expected} should be"
    if batch.last_offset >= recovery_point:
        found = crc32c(data[CRC_FROM:])
        if found != batch.crc:
            return f"checksum {found:#010x}, not {batch.crc:#010x}, at byte {batch.position}"
    return None


def _note(segment: Segment, batch: BatchAt, findings: Findings, index_interval_bytes: int) -> None:
    if not findings.epochs or batch.leader_epoch > findings.epochs[-1][0]:
        findings.epochs.append((batch.leader_epoch, batch.base_offset))
    if batch.producer_id >= 0:
        findings.producers = True
    segment.note(
        batch.position, batch.size, batch.last_offset, batch.max_timestamp, index_interval_bytes
    )
