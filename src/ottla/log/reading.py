"""From an offset to a range of a file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.wire.batch_header import HEADER_BYTES

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.log.transaction_index import AbortedTransaction
    from ottla.wire.out import FileRange

base_offset_of = attrgetter("base_offset")
last_offset_of = attrgetter("last_offset")


def segments_from(segments: list[Segment], offset: int) -> list[Segment]:
    """The segments that hold `offset` or anything after it."""
    return segments[max(bisect_right(segments, offset, key=base_offset_of) - 1, 0) :]


def read_range(
    segments: list[Segment], offset: int, bytes_max: int, limit: int, first_batch_whole: bool
) -> FileRange | None:
    """The bytes from the batch that holds `offset` on, within one segment and below `limit`.

    None when there are none. A range without bytes: the first batch is larger than `bytes_max`.
    """
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
            return segment.lend(position, 0)
    return segment.lend(position, size) if size > 0 else None


def offset_behind(segments: list[Segment], offset: int, found: FileRange) -> int:
    """An offset that nothing in `found`, which was read from `offset` on, reaches."""
    for segment in segments_from(segments, offset):
        if segment.file is found.file:
            entry = segment.index.behind(found.position + found.size)
            if entry is not None and entry[1] + HEADER_BYTES <= segment.size_bytes:
                # An index may be damaged; a batch is what it says it is.
                batch = segment.batch_at(entry[1])
                if batch.last_offset == entry[0]:
                    return batch.last_offset
            return segment.next_offset
    return segments[-1].next_offset


def extend_to_batch_end(
    segments: list[Segment], offset: int, found: FileRange, bytes_max: int
) -> None:
    """Let `found`, which was read from `offset` on and cut inside a batch, end with one.

    By the next entry of the index: a little more than the batch, at most `bytes_max` in all.
    """
    for segment in segments_from(segments, offset):
        if segment.file is found.file:
            entry = segment.index.behind(found.position + found.size)
            end = segment.size_bytes if entry is None else entry[1]
            found.size = min(max(end - found.position, found.size), bytes_max)
            return


def aborted_between(segments: list[Segment], start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions with records from `start` up to `end`.

    One is noted in the segment that has its marker, which may be a later one: the search goes on
    until an entry says that everything below `end` was decided when it was made.
    """
    found = []
    for segment in segments_from(segments, start):
        entries = segment.transaction_index.all()
        for at in range(bisect_left(entries, start, key=last_offset_of), len(entries)):
            aborted = entries[at]
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return found
    return found
