"""`spark.read.format("ottla")`: what is stored between two places, read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .asking import Asking
from .options import SourceOptions
from .planning import OffsetRange, split
from .reading import ReadRange, read_range, report_loss


class BatchReader(DataSourceReader):
    """Reads a stretch of topics."""

    def __init__(self, options: SourceOptions) -> None:
        self.settings = options

    def partitions(self) -> list[InputPartition]:
        """One for each task; at least one, so that a query over nothing has its columns."""
        settings = self.settings
        asking = Asking(settings)
        try:
            ranges = self.ranges(asking)
        finally:
            asking.close()
        tasks = split(
            ranges,
            partitions_min=settings.min_partitions,
            records_max=settings.max_records_per_partition,
        )
        return [ReadRange(*each.partition, each.start, each.end) for each in tasks] or [
            ReadRange("", 0, 0, 0)
        ]

    def ranges(self, asking: Asking) -> list[OffsetRange]:
        """What is to be read, as the options say it and the brokers have it."""
        settings = self.settings
        start = asking.final(asking.resolved(settings.starting))
        end = asking.final(asking.resolved(settings.ending))
        earliest, latest = asking.earliest(), asking.latest()
        found = []
        for each in sorted(start.keys() & end.keys() & latest.keys()):
            begin, until = start[each], end[each]
            name = f"{each.topic}-{each.partition}"
            if begin > until and not (begin > latest[each] or until < earliest[each]):
                raise ValueError(
                    f"{settings.starting.option} ({begin}) lies behind {settings.ending.option} "
                    f"({until}) for {name}"
                )
            if until > latest[each] or begin < earliest[each] or begin > latest[each]:
                report_loss(
                    settings,
                    f"offsets {begin} to {until} of {name} were asked for, and it has "
                    f"{earliest[each]} to {latest[each]}",
                )
            found.append(OffsetRange(each, max(begin, earliest[each]), min(until, latest[each])))
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task: the records of one range."""
        assert isinstance(partition, ReadRange)
        return read_range(self.settings, partition)
