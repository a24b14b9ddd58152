"""`spark.readStream.format("ottla")`: topics as an endless table, read micro-batch by micro-batch.

Spark runs one of these in a process of the driver's for the whole query, and another in each task
for `read`. Its offsets are those of offsets.py.

Spark asks for the first offset again when it repeats a first micro-batch, and a Python source has
no place in the checkpoint to keep it. So the first offset has a note with the option that it comes
from. Where that can mean `latest`, which is another place every time, there is only the note
(`{"startingOffsets": "latest"}`): the first micro-batch goes from there to the offsets found and
has no rows, and from then on they are in the checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .asking import Asking
from .group_commits import GroupCommits
from .offsets import PartitionOffsets, StreamOffset, decode, encode, notes
from .option_values import LATEST
from .options import SourceOptions
from .planning import between, limited, split, waiting
from .reading import ReadRange, read_range, report_loss


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow."""

    def __init__(self, options: SourceOptions) -> None:
        self.settings = options
        self._asking: Asking | None = None
        self._latest: PartitionOffsets | None = None  # as last asked for
        self._commits = GroupCommits()
        self._only_now = False  # Trigger.AvailableNow
        self._target: PartitionOffsets | None = None  # its end
        self._batch_at = -math.inf  # when a batch was last allowed, for maxTriggerDelay

    @property
    def asking(self) -> Asking:
        if self._asking is None:
            self._asking = Asking(self.settings)
        return self._asking

    # Where it is

    def initialOffset(self) -> StreamOffset:
        """Where a query without a checkpoint begins."""
        starting = self.settings.starting
        note = {starting.option: starting.text}
        if may_mean_latest(self.settings):
            return note
        return {**encode(self.asking.final(self.asking.resolved(starting))), **note}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A sign that there is a limit; `latestOffset` goes by the options, which may have two."""
        if self.settings.max_offsets is not None:
            return ReadMaxRows(self.settings.max_offsets)
        if self.settings.min_offsets is not None:
            return ReadMinRows(self.settings.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there at the first question, and no more."""
        self._only_now = True

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """How far the next micro-batch goes; `start` again if there is nothing for one."""
        if no_offsets_yet(start):
            self._latest = self.asking.latest()
            return encode(self.asking.final(self.asking.resolved(self.settings.starting)))
        known = decode(start)
        latest = self._end(known)
        self._latest = latest
        end = self._admitted(known, latest, limit)
        return start if end == known else encode(end)

    def reportLatestOffset(self) -> StreamOffset | None:
        """The ends of the topics, for the lag in `lastProgress`."""
        if self._latest is None:
            return None
        found = encode(self._latest)
        if self.settings.commit_group is not None:
            found["commitGroup"] = self.settings.commit_group
            found["kafka.bootstrap.servers"] = self.settings.servers
        return found

    def _end(self, known: PartitionOffsets) -> PartitionOffsets:
        if not self._only_now:
            return self.asking.latest(known)
        if self._target is None:
            self._target = self.asking.latest(known)
        return self._target

    def _admitted(
        self, start: PartitionOffsets, latest: PartitionOffsets, limit: ReadLimit
    ) -> PartitionOffsets:
        settings = self.settings
        if isinstance(limit, ReadAllAvailable):
            return latest  # Trigger.Once wants all, whatever the options say
        new = latest.keys() - start.keys()
        begin = {**(self.asking.earliest(new) if new else {}), **start}
        if settings.min_offsets is not None and not self._only_now:
            now = time.monotonic()
            late = now - self._batch_at >= settings.max_trigger_delay_ms / 1000
            if not late and waiting(begin, latest) < settings.min_offsets:
                return start
            self._batch_at = now
        if settings.max_offsets is None:
            return latest
        return limited(settings.max_offsets, begin, latest)

    # What it reads

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        if no_offsets_yet(start):
            return []
        first, last = decode(start), decode(end)
        if notes(start):  # asked for anew: what was made after the batch was planned is not in it
            first = {each: offset for each, offset in first.items() if each in last}
        new = last.keys() - first.keys()
        ranges, losses = between(first, last, self.asking.earliest(new) if new else {})
        for each in losses:
            report_loss(self.settings, each)
        tasks = split(
            ranges,
            partitions_min=self.settings.min_partitions,
            records_max=self.settings.max_records_per_partition,
        )
        return [ReadRange(*each.partition, each.start, each.end) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task: the records of one range."""
        assert isinstance(partition, ReadRange)
        return read_range(self.settings, partition)

    def commit(self, end: StreamOffset) -> None:
        """Spark is done with everything before `end`: where nobody listens to the query, this is
        what commits it to the group."""
        if self.settings.commit_group is not None:
            self._commits.commit(self.settings.servers, self.settings.commit_group, decode(end))

    def stop(self) -> None:
        """The query is over."""
        if self._asking is not None:
            self._asking.close()
        self._commits.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # To a task goes what `read` needs.
        return StreamReader, (self.settings,)


def may_mean_latest(options: SourceOptions) -> bool:
    """Whether a query starts where some topic ends at that moment."""
    starting = options.starting
    if starting.timestamp is not None or starting.timestamps is not None:
        return options.latest_if_no_match
    return starting.everywhere == LATEST or LATEST in (starting.offsets or {}).values()


def no_offsets_yet(offset: StreamOffset) -> bool:
    """Whether this is a note alone."""
    return bool(notes(offset)) and not any(isinstance(each, dict) for each in offset.values())
