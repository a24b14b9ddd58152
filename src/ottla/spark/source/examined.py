"""Which offsets a first query has parsed, and where among them bad records may be.

The query for bad records reads the same topic as the first query of its pipeline. `Examined` is
what the first query has reported, so that the second reads only the offsets that may hold a bad
record. It is passed through a file, from the driver to the process that plans micro-batches.

It only ever saves work: whatever is not in it is read. An offset counts as free of bad records when
the observed metrics of a micro-batch prove that every offset of its range was parsed, as many as
the range has and with the same sum. A plan that stops early (a limit), a task that ran twice, a
transaction marker or a compacted record do not add up, and the range is read again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.client.structs import TopicPartition

from .offsets import PartitionOffsets, decode, encode
from .planning import OffsetRange

# Bad records are reported as blocks of so many offsets: what one of them costs to parse again.
BLOCK_OFFSETS = 32
# A micro-batch with more such blocks is read again whole: its report stays small.
BLOCKS_MAX = 5_000
# More are kept for no source: then all that was reported so far is forgotten, so read.
SUSPECTS_MAX = 20_000


@dataclass(frozen=True)
class Seen:
    """The observed metrics of one micro-batch: how many records were parsed, the sum of their
    offsets, and the blocks with bad records as `topic:partition:block`; None: too many."""

    count: int
    offset_sum: int | None
    blocks: Sequence[str] | None


@dataclass
class Examined:
    """From `begin` to `end` all is free of bad records except `suspects`.

    `waits` is whether the second query stays behind the first.
    """

    begin: PartitionOffsets = field(default_factory=dict)
    end: PartitionOffsets = field(default_factory=dict)
    suspects: list[OffsetRange] = field(default_factory=list)
    waits: bool = False

    def add(
        self, start: Mapping[TopicPartition, int], end: PartitionOffsets, seen: Seen | None
    ) -> None:
        """One more micro-batch of the first query, from `start` to `end`."""
        ranges = [OffsetRange(each, start.get(each, 0), end[each]) for each in end]
        known = all(each in start for each in end)
        suspects = suspects_of(ranges, seen) if known else ranges
        for each in ranges:
            place, last = each.partition, self.end.get(each.partition)
            if last is None or each.start < last or each.end < each.start:
                self.begin[place] = min(each.start, each.end)
            elif each.start > last:
                self.suspects.append(OffsetRange(place, last, each.start))
            self.end[place] = each.end
        self.suspects += [each for each in suspects if each.size > 0]
        if len(self.suspects) > SUSPECTS_MAX:
            self.begin, self.suspects = dict(self.end), []
        self.waits = True

    def done(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The second query has finished what lies before these: it is not asked for again."""
        for each in self.begin:
            self.begin[each] = min(max(self.begin[each], offsets.get(each, 0)), self.end[each])
        self.suspects = [each for each in self.suspects if each.end > self.begin[each.partition]]

    def to_read(self, given: OffsetRange) -> list[OffsetRange]:
        """What of a range may hold bad records, in order, without overlaps."""
        place, start, end = given
        if place not in self.end:
            return [given]
        low, high = self.begin[place], self.end[place]
        found = [(start, min(end, low)), (max(start, high), end)]
        found += [
            (max(start, low, each.start), min(end, high, each.end))
            for each in self.suspects
            if each.partition == place
        ]
        return [OffsetRange(place, *each) for each in joined(found)]

    def admitted(self, known: PartitionOffsets, latest: PartitionOffsets) -> PartitionOffsets:
        """`latest`, but no further than the first query is."""
        if not self.waits:
            return latest
        return {
            each: min(offset, max(known.get(each, 0), self.end.get(each, 0)))
            for each, offset in latest.items()
            if each in known or each in self.end
        }

    def write(self, path: Path) -> None:
        """Replace the file at once: a reader finds the old one or this one."""
        new = path.with_suffix(".new")
        new.write_text(
            json.dumps(
                {
                    "begin": encode(self.begin),
                    "end": encode(self.end),
                    "suspects": [[*each.partition, each.start, each.end] for each in self.suspects],
                    "waits": self.waits,
                }
            )
        )
        os.replace(new, path)


def read_examined(path: Path) -> Examined:
    """What the file has; nothing, where it is missing or not whole."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found: Mapping[str, Any] = json.loads(path.read_text())
        suspects = [
            OffsetRange(TopicPartition(topic, partition), start, end)
            for topic, partition, start, end in found["suspects"]
        ]
        return Examined(
            decode(found["begin"]), decode(found["end"]), suspects, bool(found["waits"])
        )
    return Examined()


def suspects_of(ranges: Sequence[OffsetRange], seen: Seen | None) -> list[OffsetRange]:
    """What of a micro-batch may hold bad records."""
    whole = list(ranges)
    if seen is None or seen.blocks is None or any(each.size < 0 for each in ranges):
        return whole
    if seen.count != sum(each.size for each in ranges):
        return whole
    if seen.offset_sum != sum((each.start + each.end - 1) * each.size // 2 for each in ranges):
        return whole
    by_place = {each.partition: each for each in ranges}
    found = []
    for block in seen.blocks:
        topic, partition, number = block.rsplit(":", 2)
        given = by_place.get(TopicPartition(topic, int(partition)))
        if given is None:
            return whole
        start = max(given.start, int(number) * BLOCK_OFFSETS)
        end = min(given.end, (int(number) + 1) * BLOCK_OFFSETS)
        if start >= end:
            return whole
        found.append(OffsetRange(given.partition, start, end))
    return found


def joined(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in order, as few pairs as possible; empty ones are left out."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(each for each in pairs if each[0] < each[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
