"""`spark.read.format("ottla")`: what is stored between two places, read once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .filters import Pushed
from .offset_lookup import OffsetLookup
from .option_values import LATEST
from .options import OptionError, SourceOptions
from .planning import OffsetRange, split
from .reading import ReadRange, read_range, report_loss

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

# The module of the one process that may get a reader with `pushFilters`.
PUSHDOWN_WORKER = "data_source_pushdown_filters.py"
NOTHING = ReadRange("", 0, 0, 0)


class BatchReader(DataSourceReader):
    """Reads a stretch of topics."""

    def __init__(self, options: SourceOptions) -> None:
        self.settings = options
        self.pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """One for each task; at least one, for Spark would make one of its own."""
        lookup = OffsetLookup(self.settings)
        try:
            ranges = self._narrowed(lookup, self._ranges(lookup))
        finally:
            lookup.close()
        tasks = split(
            ranges,
            partitions_min=self.settings.min_partitions,
            records_max=self.settings.max_records_per_partition,
        )
        return [ReadRange(*each.partition, each.start, each.end) for each in tasks] or [NOTHING]

    def _ranges(self, lookup: OffsetLookup) -> list[OffsetRange]:
        """The ranges to read: what the options name, within what the brokers have."""
        settings = self.settings
        start = lookup.resolved(settings.starting)
        end = lookup.resolved(settings.ending)
        earliest, latest = lookup.earliest(), lookup.latest()
        found = []
        for each in sorted(start.keys() & end.keys() & earliest.keys() & latest.keys()):
            low, high = earliest[each], latest[each]
            begin = low if start[each] < 0 else start[each]
            if start[each] == LATEST:
                begin = high
            until = high if end[each] < 0 else end[each]
            name = f"{each.topic}-{each.partition}"
            if not low <= begin <= high or until > high:
                report_loss(
                    settings,
                    f"offsets {begin} to {until} of {name} are asked for, and it has {low} to "
                    f"{high}",
                )
            elif begin > until:
                raise OptionError(
                    f"{settings.starting.option} ({begin}) lies behind {settings.ending.option} "
                    f"({until}) for {name}"
                )
            found.append(OffsetRange(each, max(begin, low), min(until, high)))
        return found

    def _narrowed(self, lookup: OffsetLookup, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """What the filters leave of it."""
        found = [each for each in self.pushed.applied(ranges) if each.size > 0]
        if self.pushed.timestamp_ms is None:
            return found
        first = lookup.find(dict.fromkeys((e.partition for e in found), self.pushed.timestamp_ms))
        return [
            each._replace(start=max(each.start, first[each.partition]))
            for each in found
            if first[each.partition] != LATEST
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task: the records of one range."""
        assert isinstance(partition, ReadRange)
        return read_range(self.settings, partition)


class FilteringBatchReader(BatchReader):
    """The same, with filters: Spark takes it only where pushing them is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters; gives back those that Spark has to apply."""
        return self.pushed.push(filters)


def batch_reader(options: SourceOptions) -> BatchReader:
    """The reader for the process that this runs in.

    In a session without `spark.sql.python.filterPushdown.enabled` (the default) Spark refuses a
    reader that has `pushFilters`. It pushes filters in a worker of its own, which only runs where
    that is switched on: no other process gets the filtering one.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(PUSHDOWN_WORKER):
        frame = frame.f_back
    return BatchReader(options) if frame is None else FilteringBatchReader(options)
