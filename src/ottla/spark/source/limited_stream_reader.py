"""The stream's reader where Spark offers a start and a limit to it: Spark 4.2 and newer.

Where the start can mean `latest`, which is another place every time, the first offset is only the
note (`{"startingOffsets": "latest"}`): the first micro-batch goes from there to the offsets found
and has no rows, and from then on they are in the checkpoint.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .examined import read_examined
from .offsets import PartitionOffsets, StreamOffset, decode, encode
from .options import SourceOptions
from .planning import limited, waiting
from .stream_reader import StreamReader, may_mean_latest, no_offsets_yet


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow, in micro-batches of the size that the options allow."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._only_now = False  # Trigger.AvailableNow
        self._target: PartitionOffsets | None = None  # its end
        self._batch_at = -math.inf  # when a batch was last allowed, for maxTriggerDelay

    def initialOffset(self) -> StreamOffset:
        """Where a query without a checkpoint begins."""
        starting = self.settings.starting
        note = {starting.option: starting.text}
        if may_mean_latest(self.settings):
            return note
        return {**encode(self.lookup.final(self.lookup.resolved(starting))), **note}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A sign that there is a limit; `latestOffset` goes by the options, which may have two."""
        if self.settings.max_offsets is not None:
            return ReadMaxRows(self.settings.max_offsets)
        if self.settings.min_offsets is not None:
            return ReadMinRows(self.settings.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end at the first `latestOffset`."""
        self._only_now = True

    def latestOffset(self, start: StreamOffset | None = None, limit: Any = None) -> StreamOffset:
        """How far the next micro-batch goes; `start` again if there is nothing for one."""
        assert start is not None
        if no_offsets_yet(start):
            self._latest = self.lookup.latest()
            return encode(self.lookup.final(self.lookup.resolved(self.settings.starting)))
        known = decode(start)
        latest = self._last(known)
        self._latest = latest
        if self.settings.examined is not None and not self._only_now:
            latest = read_examined(Path(self.settings.examined)).admitted(known, latest)
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
            if self.settings.secured:
                found["secured"] = "true"
        return found

    def _last(self, known: PartitionOffsets) -> PartitionOffsets:
        if not self._only_now:
            return self.lookup.latest(known)
        if self._target is None:
            self._target = self.lookup.latest(known)
        return self._target

    def _admitted(
        self, start: PartitionOffsets, latest: PartitionOffsets, limit: ReadLimit
    ) -> PartitionOffsets:
        settings = self.settings
        if isinstance(limit, ReadAllAvailable):
            return latest  # Trigger.Once wants all, whatever the options say
        new = latest.keys() - start.keys()
        begin = {**(self.lookup.earliest(new) if new else {}), **start}
        if settings.min_offsets is not None and not self._only_now:
            now = time.monotonic()
            late = now - self._batch_at >= settings.max_trigger_delay_ms / 1000
            if not late and waiting(begin, latest) < settings.min_offsets:
                return start
            self._batch_at = now
        if settings.max_offsets is None:
            return latest
        return limited(settings.max_offsets, begin, latest)
