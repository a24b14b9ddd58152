"""Which offsets a batch reads, in how many tasks: decisions without I/O.

The arithmetic is that of Spark's connector: a limit is shared out in proportion to what waits, a
range is cut for `maxRecordsPerPartition`, then the largest for `minPartitions`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.structs import TopicPartition

from .offsets import PartitionOffsets, names

OFFSET_MAX = (1 << 63) - 1


class OffsetRange(NamedTuple):
    """Offsets of one partition, the end excluded."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records at most: a compacted or transactional log has fewer."""
        return self.end - self.start


def limited(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> PartitionOffsets:
    """The end when at most about `limit` offsets may be read, shared out in proportion.

    A partition with little waiting still gets one, so a few more than `limit` are possible. What is
    in `end` alone stays as it is.
    """
    sizes = {
        each: offset - start[each]
        for each, offset in end.items()
        if each in start and offset > start[each]
    }
    total = sum(sizes.values())
    if not total:
        return dict(end)
    found = dict(end)
    for each, size in sizes.items():
        share = limit * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        found[each] = min(end[each], start[each] + whole)
    return found


def waiting(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are to read."""
    return sum(max(0, offset - start.get(each, 0)) for each, offset in end.items())


def split(
    ranges: Sequence[OffsetRange],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
) -> list[OffsetRange]:
    """One range for each task; empty ranges are left out."""
    found = [each for each in ranges if each.size > 0]
    if records_max is not None:
        found = [
            piece for each in found for piece in divided(each, math.ceil(each.size / records_max))
        ]
    if partitions_min is None or partitions_min <= len(found):
        return found
    total = sum(each.size for each in found)
    # Ranges that stay whole are left out of the proportions of the others.
    whole = [each for each in found if part_count(each.size, total, partitions_min) == 1]
    rest = total - sum(each.size for each in whole)
    whole_partitions = {each.partition for each in whole}
    parts_min = max(partitions_min - len(whole), 1)
    return [
        piece
        for each in found
        for piece in divided(
            each,
            1 if each.partition in whole_partitions else part_count(each.size, rest, parts_min),
        )
    ]


def part_count(size: int, total: int, parts_min: int) -> int:
    """How many of `parts_min` tasks a range deserves, halves rounded up."""
    return max(math.floor(size / total * parts_min + 0.5), 1)


def divided(given: OffsetRange, parts: int) -> list[OffsetRange]:
    """A range in so many pieces of about the same size, none empty."""
    found = []
    start, left = given.start, given.size
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        if size:
            found.append(OffsetRange(given.partition, start, start + size))
            start += size
    return found


def between(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest_of_new: Mapping[TopicPartition, int],
) -> tuple[list[OffsetRange], list[str]]:
    """The ranges of a micro-batch, and a sentence for everything that may have been lost.

    `earliest_of_new` has the first offsets of the partitions that are in `end` alone.
    """
    losses = []
    new = {each for each in end if each not in start}
    if missing := new - earliest_of_new.keys():
        losses.append(f"partitions {names(missing)} are gone before their first record was read")
    losses.extend(
        f"partition {each.topic}-{each.partition} is new and begins at offset "
        f"{earliest_of_new[each]} instead of 0"
        for each in sorted(new & earliest_of_new.keys())
        if earliest_of_new[each]
    )
    if gone := start.keys() - end.keys():
        losses.append(f"partitions {names(gone)} are gone")
    ranges = []
    for each in sorted(end):
        if each in missing:
            continue
        begin = start[each] if each in start else earliest_of_new[each]
        if end[each] < begin:
            losses.append(
                f"partition {each.topic}-{each.partition} went from offset {begin} back to "
                f"{end[each]}: either the starting offset lies behind its end, or the topic was "
                "deleted and made anew"
            )
        ranges.append(OffsetRange(each, begin, end[each]))
    return ranges, losses
