"""Finding an offset by time: ListOffsets by timestamp, and by the largest one.

The time index leads to the batch; only that one batch is opened, compressed or not. Like every
index entry, one of the time index is used only if the batch that it names matches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.log.failures import CorruptSegment
from ottla.log.segment import LOG
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import read_records

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.log.time_index import TimestampOffset
    from ottla.wire.batch_header import BatchHeader
    from ottla.wire.records import Record


class FoundOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(
    segments: list[Segment], timestamp: int, *, start_offset: int, end_offset: int
) -> FoundOffset | None:
    """The first record at or after `timestamp`, from `start_offset` on and below `end_offset`."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.largest().timestamp < timestamp:
            continue
        found = _search(segment, timestamp, start_offset)
        if found is not None:
            return found if found.offset < end_offset else None
    return None


def max_timestamp(segments: list[Segment]) -> FoundOffset | None:
    """The first record that bears the largest timestamp of the log.

    Where no record has a time that is the first one, with timestamp -1, as in Kafka.
    """
    best = max(segments, key=lambda segment: segment.largest().timestamp)
    largest = best.largest()
    if not best.size_bytes:
        return None
    position = best.position_of(largest.offset) if largest.timestamp >= 0 else 0
    if position is None:
        return None
    batch = best.batch_at(position)
    for record in _records(best, batch):
        if record.timestamp == largest.timestamp:
            return FoundOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def _search(segment: Segment, timestamp: int, start_offset: int) -> FoundOffset | None:
    entry = segment.time_index.lookup(timestamp)
    if entry is not None and not _sound(segment, entry, timestamp):
        segment.rebuild_indexes("an entry of the time index does not match the log")
        entry = segment.time_index.lookup(timestamp)
    start = segment.position_of(
        max(entry.offset if entry else 0, start_offset, segment.base_offset)
    )
    if start is None:
        return None
    for batch in segment.batches(start):
        if batch.max_timestamp < timestamp:
            continue
        for record in _records(segment, batch):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def _sound(segment: Segment, entry: TimestampOffset, timestamp: int) -> bool:
    """Whether the batch at the entry's offset bears its timestamp."""
    if entry.timestamp > timestamp or entry.offset < segment.base_offset:
        return False
    position = segment.position_of(entry.offset)
    if position is None:
        return False
    batch = segment.batch_at(position)
    return batch.base_offset <= entry.offset and batch.max_timestamp == entry.timestamp


def _records(segment: Segment, batch: BatchHeader) -> list[Record]:
    data = segment.file.pread(batch.size, batch.position)
    try:
        return read_records(data)
    except MalformedMessage as problem:
        raise CorruptSegment(segment.path(LOG), batch.position, str(problem)) from problem
