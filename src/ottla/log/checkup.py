"""The check of a segment after a crash: every batch behind the recovery point, byte for byte.

Below the recovery point the files were synced; there the walk starts at the last index entry that
the log confirms and reads headers only, so a lost or torn index is made anew without reading the
data.

Gaps between offsets. The base offset lies outside the checksum, so only the neighbours of a batch
can tell that it is wrong: a flipped bit makes it jump ahead of the batch that follows. A gap behind
which the offsets go on is compaction's work, for the bytes of a segment are written in order and no
crash takes some from the middle. Batches that hold fewer records than offsets, or a delete horizon,
are compaction's work too. `Findings.compacted` says whether any was met, or was known before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from ottla.log.segment import Segment
from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    DELETE_HORIZON,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHECK_BYTES = 1024 * 1024  # read at once

WholeBatch = tuple[BatchHeader, bytes]


class Findings:
    """What the checked batches tell beyond their being sound."""

    __slots__ = ("compacted", "epochs", "from_start", "producers")

    def __init__(self, *, compacted: bool = False) -> None:
        self.compacted = compacted  # whether gaps between offsets are compaction's work
        self.epochs: list[tuple[int, int]] = []  # leader epoch and its first offset seen
        self.producers = False  # whether any batch has a producer id
        self.from_start = True  # whether the walk saw every batch of the log


def check_segment(
    segment: Segment,
    recovery_point: int,
    findings: Findings,
    index_interval_bytes: int,
    *,
    next_base_offset: int | None,
) -> str | None:
    """Find where the valid batches of a segment end; returns what is wrong with the next, if any.

    `segment.size_bytes` and `next_offset` are set to that end and the indexes made to match. The
    log file is left as it is: the caller keeps what lies behind the end, and then shortens it.
    `next_base_offset`: where the next segment begins.
    """
    segment.unsynced_name = True  # it is not known which names were synced before the crash
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
    walk = _walk(segment, start, size_bytes)
    current = next(walk, None)
    while current is not None:
        batch, data = current
        following = next(walk, None)
        problem = _problem(batch, data, expected, recovery_point)
        if problem is None and batch.base_offset > expected >= 0:
            at_end = batch.position + batch.size == size_bytes
            after = next_base_offset if at_end else None
            problem = _gap_problem(batch, expected, recovery_point, following, after, findings)
        if problem is not None:
            break
        _note(segment, batch, findings, index_interval_bytes)
        end = batch.position + batch.size
        expected = batch.last_offset + 1
        current = following
    if problem is None and end < size_bytes:
        problem = f"no whole batch in the last {size_bytes - end} bytes"
    segment.size_bytes = end
    segment.file.close()  # many logs are checked in a row, few of them are used soon
    return problem


def shows_compaction(segments: Iterable[Segment]) -> bool:
    """Whether any of these segments holds what only compaction leaves behind.

    Reads headers, and the whole of a batch only to confirm what its header says.
    """
    for segment in segments:
        expected = segment.base_offset
        behind_gap: BatchHeader | None = None
        for batch in segment.batches(strict=False):
            if (
                behind_gap is not None
                and batch.base_offset > behind_gap.last_offset
                and _is_sound(segment, behind_gap)
                and _is_sound(segment, batch)
            ):
                return True
            if _is_compacted(batch) and _is_sound(segment, batch):
                return True
            behind_gap = batch if batch.base_offset > expected else None
            expected = batch.last_offset + 1
    return False


def _is_compacted(batch: BatchHeader) -> bool:
    records_gone = batch.record_count <= batch.last_offset_delta
    return records_gone or bool(batch.attributes & DELETE_HORIZON)


def _is_sound(segment: Segment, batch: BatchHeader) -> bool:
    return _checksum_is_right(batch, segment.file.pread(batch.size, batch.position))


def _checksum_is_right(batch: BatchHeader, data: bytes) -> bool:
    return bool(crc32c(data[ATTRIBUTES_POSITION:]) == batch.crc)


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


def _walk(segment: Segment, position: int, end: int) -> Iterator[WholeBatch]:
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
        batch = BatchHeader(data, at, position)
        if batch.size < HEADER_BYTES or position + batch.size > end:
            return
        if at + batch.size > len(data):
            data = file.pread(max(batch.size, min(CHECK_BYTES, end - position)), position)
            start, at = position, 0
            if len(data) < batch.size:
                return
        yield batch, data[at : at + batch.size]
        position += batch.size


def _problem(batch: BatchHeader, data: bytes, expected: int, recovery_point: int) -> str | None:
    if batch.magic != MAGIC:
        return f"magic {batch.magic} at byte {batch.position}"
    if batch.last_offset < batch.base_offset:
        return f"offsets {batch.base_offset} to {batch.last_offset} at byte {batch.position}"
    if batch.base_offset < expected:
        return _misplaced(batch, expected)
    if batch.last_offset >= recovery_point:
        found = crc32c(data[ATTRIBUTES_POSITION:])
        if found != batch.crc:
            return f"checksum {found:#010x}, not {batch.crc:#010x}, at byte {batch.position}"
    return None


def _gap_problem(
    batch: BatchHeader,
    expected: int,
    recovery_point: int,
    following: WholeBatch | None,
    next_base_offset: int | None,
    findings: Findings,
) -> str | None:
    """Why a batch behind a gap is damaged; None when the gap is compaction's work, or synced."""
    if following is not None:
        if findings.compacted and following[0].base_offset > batch.last_offset:
            return None
        # Only a batch that is whole itself can tell about the one before it.
        goes_on_at = following[0].base_offset if _checksum_is_right(*following) else None
    else:
        goes_on_at = next_base_offset
    if goes_on_at is not None:
        if goes_on_at <= batch.last_offset:
            return _misplaced(batch, expected)
        findings.compacted = True
    if findings.compacted or batch.base_offset <= recovery_point:
        return None
    return _misplaced(batch, expected)


def _misplaced(batch: BatchHeader, expected: int) -> str:
    return f"offset {batch.base_offset} at byte {batch.position} where {expected} should be"


def _note(
    segment: Segment, batch: BatchHeader, findings: Findings, index_interval_bytes: int
) -> None:
    if not findings.epochs or batch.leader_epoch > findings.epochs[-1][0]:
        findings.epochs.append((batch.leader_epoch, batch.base_offset))
    if batch.producer_id >= 0:
        findings.producers = True
    if _is_compacted(batch):
        findings.compacted = True
    segment.note(
        batch.position, batch.size, batch.last_offset, batch.max_timestamp, index_interval_bytes
    )
