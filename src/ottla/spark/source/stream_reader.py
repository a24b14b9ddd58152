"""`spark.readStream.format("ottla")`: topics as an endless table, read micro-batch by micro-batch.

Spark keeps one reader in a process of the driver's for the whole query, and makes another in each
task for `read`. Its offsets are those of offsets.py.

Spark calls `initialOffset` again when it repeats a first micro-batch, and a Python source has
no place in the checkpoint to keep it. So the first offset has a note with the option that it comes
from; `partitions` knows by it that the start was looked up anew.

This module has what every Spark from 4.0 offers: a micro-batch takes all there is. Since 4.2 Spark
passes the start and a limit to `latestOffset`: `LimitedStreamReader` in limited_stream_reader.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ottla.client.structs import TopicPartition

from ..versions import offers_limits
from .examined import read_examined
from .group_commits import GroupCommits
from .offset_lookup import OffsetLookup
from .offsets import PartitionOffsets, StreamOffset, decode, encode, notes
from .option_values import LATEST
from .options import SourceOptions
from .planning import OffsetRange, between, split
from .reading import ReadRange, ReadRanges, read_range, read_ranges, report_loss

log = logging.getLogger("ottla.spark")

TOGETHER_OFFSETS_MAX = 10_000  # of a range that shares its task with others


class StreamReader(DataSourceStreamReader):
    """Reads topics as they grow; a micro-batch takes all that is there (Spark 4.0 and 4.1)."""

    def __init__(self, options: SourceOptions) -> None:
        self.settings = options
        self._lookup: OffsetLookup | None = None
        self._latest: PartitionOffsets | None = None  # as last looked up
        self._end: PartitionOffsets = {}  # of the last micro-batch that was planned
        self._commits = GroupCommits()

    @property
    def lookup(self) -> OffsetLookup:
        if self._lookup is None:
            self._lookup = OffsetLookup(self.settings)
        return self._lookup

    # Offsets

    def initialOffset(self) -> StreamOffset:
        """Where a query without a checkpoint begins, with the note.

        These versions of Spark call `latestOffset` before `initialOffset`. A start
        at `latest` is therefore that end: the first micro-batch has no rows of such partitions, and
        its end in the checkpoint is where they begin.
        """
        starting = self.settings.starting
        found = self.lookup.resolved(starting)
        if self._latest is not None:
            ends = {each: self._latest.get(each, 0) for each in found if found[each] == LATEST}
            found = {**found, **ends}
        return {**encode(self.lookup.final(found)), starting.option: starting.text}

    def latestOffset(self, start: StreamOffset | None = None, limit: Any = None) -> StreamOffset:
        """The ends of all partitions. Spark 4.0 and 4.1 pass no arguments."""
        self._latest = self.lookup.latest(self._end)
        return encode(self._latest)

    # Tasks

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        if no_offsets_yet(start):
            return []
        first, last = decode(start), decode(end)
        self._end = last
        if notes(start):  # looked up anew: what was made after the batch was planned is not in it
            first = {each: offset for each, offset in first.items() if each in last}
            if may_mean_latest(self.settings):
                first = {each: min(offset, last[each]) for each, offset in first.items()}
        new = last.keys() - first.keys()
        ranges, losses = between(first, last, self.lookup.earliest(new) if new else {})
        for each in losses:
            report_loss(self.settings, each)
        if self.settings.examined is not None:
            return self._unexamined(ranges, Path(self.settings.examined))
        return [read_task(each) for each in self._split(ranges)]

    def _split(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        return split(
            ranges,
            partitions_min=self.settings.min_partitions,
            records_max=self.settings.max_records_per_partition,
        )

    def _unexamined(self, ranges: Sequence[OffsetRange], path: Path) -> list[InputPartition]:
        """The tasks for what another query has not cleared; the small ranges of a partition are
        one task."""
        examined = read_examined(path)
        left = [each for given in ranges for each in examined.to_read(given)]
        small: dict[TopicPartition, list[ReadRange]] = {}
        for each in left:
            if each.size <= TOGETHER_OFFSETS_MAX:
                small.setdefault(each.partition, []).append(read_task(each))
        large = [each for each in left if each.size > TOGETHER_OFFSETS_MAX]
        return [
            *(read_task(each) for each in self._split(large)),
            *(ReadRanges(tuple(each)) for each in small.values()),
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task: the records of its ranges."""
        if isinstance(partition, ReadRanges):
            yield from read_ranges(self.settings, partition)
        else:
            assert isinstance(partition, ReadRange)
            yield from read_range(self.settings, partition)

    def commit(self, end: StreamOffset) -> None:
        """Spark is done with everything before `end`. In a session without our listener this is
        what commits it to the group."""
        settings = self.settings
        if settings.commit_group is not None:
            self._commits.commit(
                settings.servers, settings.commit_group, decode(end), settings.client
            )

    def stop(self) -> None:
        """The query is over."""
        if self._lookup is not None:
            self._lookup.close()
        self._commits.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A task needs only what `read` needs.
        return type(self), (self.settings,)


def stream_reader(options: SourceOptions) -> StreamReader:
    """The reader that makes the most of the installed Spark."""
    if offers_limits():
        from .limited_stream_reader import LimitedStreamReader

        return LimitedStreamReader(options)
    if options.max_offsets is not None or options.min_offsets is not None:
        log.warning(
            "maxOffsetsPerTrigger and minOffsetsPerTrigger are not applied: this version of "
            "Spark has no limits for a Python source (4.2 has); a micro-batch takes all there is"
        )
    return StreamReader(options)


def read_task(given: OffsetRange) -> ReadRange:
    return ReadRange(*given.partition, given.start, given.end)


def may_mean_latest(options: SourceOptions) -> bool:
    """Whether a query starts where some topic ends at that moment."""
    starting = options.starting
    if starting.timestamp is not None or starting.timestamps is not None:
        return options.latest_if_no_match
    return starting.everywhere == LATEST or LATEST in (starting.offsets or {}).values()


def no_offsets_yet(offset: StreamOffset) -> bool:
    """Whether this is a note alone."""
    return bool(notes(offset)) and not any(isinstance(each, dict) for each in offset.values())
