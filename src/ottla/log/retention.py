"""Which old segments are deleted: by age, by size, by the log's start. Decisions only.

Always a run of the oldest segments, never one from the middle, never an empty last one, and nothing
at or above the high watermark, so the log start can never pass what consumers may read. If the last
segment goes too, the log rolls first: there is always one to append to.

Age is counted from a segment's largest timestamp, as Kafka does: one record from the future keeps
its whole segment and all after it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.settings import LogConfig


class SegmentFacts(NamedTuple):
    """What retention needs of a segment; the timestamp costs a read of its index."""

    base_offset: int
    size_bytes: int
    largest_timestamp: Callable[[], int]


class Breach(NamedTuple):
    """How many of the oldest segments go, and why."""

    segments: int
    reason: str


def facts_of(segment: "Segment", modified_ms: "Callable[[Segment], int]") -> SegmentFacts:
    """A segment without any timestamp is as old as its file (Kafka's largestTimestamp)."""

    def largest_timestamp() -> int:
        timestamp = segment.largest().timestamp
        return timestamp if timestamp >= 0 else modified_ms(segment)

    return SegmentFacts(segment.base_offset, segment.size_bytes, largest_timestamp)


def breaches(
    segments: Sequence[SegmentFacts],
    config: "LogConfig",
    *,
    now_ms: int,
    log_start_offset: int,
    end_offset: int,
    high_watermark: int,
) -> Breach | None:
    """How many may go now, and by which rule the last of them; None when all stay."""
    allowed = deletable_count(segments, end_offset=end_offset, high_watermark=high_watermark)
    best = Breach(below_log_start(segments[: allowed + 1], log_start_offset), "log start offset")
    if config.delete:
        if config.retention_bytes >= 0:
            by_size = min(over_size(segments, config.retention_bytes), allowed)
            if by_size > best.segments:
                best = Breach(by_size, f"retention.bytes={config.retention_bytes}")
        if config.retention_ms >= 0:
            # Age is asked of what the others leave: a young segment shields the old ones behind
            # it only while it stays itself.
            by_age = over_age(segments[best.segments : allowed], now_ms - config.retention_ms)
            if by_age > 0:
                best = Breach(best.segments + by_age, f"retention.ms={config.retention_ms}")
    return best if best.segments > 0 else None


def deletable_count(
    segments: Sequence[SegmentFacts], *, end_offset: int, high_watermark: int
) -> int:
    """How many of the oldest segments lie wholly below the high watermark and may go at all."""
    count = 0
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        upper_bound = end_offset if last else segments[number + 1].base_offset
        if upper_bound > high_watermark or (last and segment.size_bytes == 0):
            break
        count += 1
    return count


def below_log_start(segments: Sequence[SegmentFacts], log_start_offset: int) -> int:
    """Segments followed by one that begins at or below the log's start."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    return count


def over_size(segments: Sequence[SegmentFacts], retention_bytes: int) -> int:
    """The oldest segments that can go while at least `retention_bytes` remain."""
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    if excess < 0:
        return 0
    count = 0
    for segment in segments:
        excess -= segment.size_bytes
        if excess < 0:
            break
        count += 1
    return count


def over_age(segments: Sequence[SegmentFacts], oldest_kept_ms: int) -> int:
    """The oldest segments whose largest timestamp is before the limit."""
    count = 0
    for segment in segments:
        if segment.largest_timestamp() >= oldest_kept_ms:
            break
        count += 1
    return count
