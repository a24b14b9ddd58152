"""From an offset to a range of a file."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from ottla.log.segment import Segment

base_offset_of = attrgetter("base_offset")


def segments_from(segments: list[Segment], offset: int) -> list[Segment]:
    """The segments that hold `offset` or anything after it."""
    return segments[max(bisect_right(segments, offset, key=base_offset_of) - 1, 0) :]


def read_range(
    segments: list[Segment], offset: int, bytes_max: int, limit: int, first_batch_whole: bool
) -> FileRange | None:
    """The bytes from the batch that holds `offset` on, within one segment and below `limit`."""
    at = len(segments) - 1
    if offset < segments[at].base_offset:
        at = max(bisect_right(segments, offset, key=base_offset_of) - 1, 0)
    while (position := segments[at].position_of(offset)) is None:
        at += 1  # compaction may have taken all that followed in this segment
        if at == len(segments) or segments[at].base_offset >= limit:
            return None
    segment = segments[at]
    end = segment.size_bytes
    if limit < segment.next_offset:
        stop = segment.position_of(limit)
        end = end if stop is None else stop
    else:
        segment.hint(segment.next_offset, end)
    size = end - position
    if size > bytes_max:
        first = segment.batch_at(position).size
        if first <= bytes_max:
            size = bytes_max
        elif first_batch_whole:
            size = first
        else:
            return None
    return FileRange(segment.file, position, size) if size > 0 else None
