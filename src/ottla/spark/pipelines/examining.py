"""The first query of a pipeline parses each record once; the query for bad records reads the rest.

The frames of the first query observe which offsets they parsed and where bad records are. A
listener passes that on, in a file for each source, to the query for bad records, which reads only
the offsets that may hold one. That query has its checkpoint and its ledger as before, and reads
whatever the files do not clear, so a crash, a lost event or an unusual plan costs work and loses
nothing (source/examined.py has the proof).
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..owned_directory import OwnedDirectory
from ..source.examined import Examined, Seen
from ..source.offsets import PartitionOffsets, decode
from ..versions import offers_limits
from .bounds import Offsets
from .progress import SEEN
from .topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from .declaring import Pipeline

log = logging.getLogger("ottla.spark")
PREFIX = "ottla-examined-"


def examinable(pipeline: Pipeline) -> dict[str, Topic]:
    """The sources that the first query can report on: those whose topics no other source has, so
    that offsets belong to one schema. Spark before 4.2 offers no limits to a Python source."""
    if not offers_limits():
        return {}
    topics = [each for each in pipeline.sources.values() if isinstance(each, Topic)]
    if any(each.pattern is not None for each in topics):
        return {}
    times = Counter(name for each in topics for name in set(each.names))
    return {
        source: each
        for source, each in pipeline.parsed.items()
        if all(times[name] == 1 for name in each.names)
    }


def observed_once(frame: DataFrame, sources: Collection[str]) -> set[str]:
    """The sources whose metric is in the plan exactly once: a plan that takes a source twice, as in
    a join with itself, reads it twice, and a plan that does not take it reports nothing."""
    plan = str(frame._jdf.queryExecution().analyzed().toString())
    return {each for each in sources if plan.count(f"CollectMetrics {SEEN}{each},") == 1}


class Reports:
    """What the first query has reported of some sources, and the files that pass it on.

    `begins` has where each source begins in a new checkpoint. Calls come from the listener's thread
    and from the run's.
    """

    def __init__(self, sources: Mapping[str, Topic], begins: Mapping[str, Offsets]) -> None:
        self.sources = sources
        self.begins = begins
        self.directory = OwnedDirectory(PREFIX)
        self.files = {name: self.directory.path / f"{n}.json" for n, name in enumerate(sources)}
        self.examined = {name: Examined(waits=True) for name in sources}
        self.last_batch = -1
        self.closed = False
        self._lock = threading.Lock()
        self._write()

    def progress(self, found: Mapping[str, Any]) -> None:
        """A progress of the first query, as JSON gives it."""
        with self._lock:
            if int(found["batchId"]) <= self.last_batch:
                return
            if "addBatch" not in (found.get("durationMs") or {}):
                return
            self.last_batch = int(found["batchId"])
            metrics = found.get("observedMetrics") or {}
            for name, source in self.sources.items():
                places = source_places(found.get("sources") or (), source)
                if places is None:
                    self.examined[name] = Examined()
                    continue
                start, end = places
                begin = self.begins.get(name, {}) if start is None else start
                self.examined[name].add(begin, end, seen_of(metrics.get(SEEN + name)))
            self._write()

    def done(self, found: Mapping[str, Any]) -> None:
        """A progress of the query for bad records."""
        with self._lock:
            for name, source in self.sources.items():
                places = source_places(found.get("sources") or (), source)
                if places is not None:
                    self.examined[name].done(places[1])

    def idle(self) -> None:
        """The first query has nothing to do. If it has reported nothing yet, the other need not
        wait: there may be records left that an earlier run did not come to."""
        with self._lock:
            for each in self.examined.values():
                each.waits = each.waits and bool(each.end)
            self._write()

    def give_up(self) -> None:
        """Let the query for bad records read everything."""
        with self._lock:
            self.examined = {name: Examined() for name in self.sources}
            self._write()

    def close(self) -> None:
        """Remove the files; events that come later change nothing."""
        with self._lock:
            self.closed = True
        self.directory.remove()

    def _write(self) -> None:
        if self.closed:
            return
        for name, each in self.examined.items():
            each.write(self.files[name])


class ReportListener(StreamingQueryListener):
    """Takes the progress of a run's first query, and of its query for bad records.

    Spark calls `onQueryStarted` before `start` returns. The ids that it has tell these queries from
    those of the same names in an earlier run, whose last events may still come.
    """

    def __init__(self, reports: Reports, first: str, second: str) -> None:
        self.reports = reports
        self.first = first
        self.second = second
        self.names: dict[str, str] = {}  # by the id of a query's run

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember which run of a query is meant."""
        if event.name in (self.first, self.second):
            self.names[str(event.runId)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is done."""
        name = self.names.get(str(event.progress.runId))
        if name is None:
            return
        try:
            found = json.loads(event.progress.json)
            if name == self.first:
                self.reports.progress(found)
            else:
                self.reports.done(found)
        except Exception as problem:
            log.warning("bad records are looked for in everything from here on: %s", problem)
            self.reports.give_up()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new for some time."""
        if self.names.get(str(event.runId)) == self.first:
            self.reports.idle()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The run sees to that."""


def source_places(
    sources: Collection[Mapping[str, Any]], source: Topic
) -> tuple[PartitionOffsets | None, PartitionOffsets] | None:
    """Start and end of a source in a progress; None where it is not there exactly once. The first
    micro-batch of a checkpoint has no start."""
    fitting = []
    for each in sources:
        end = topic_offsets(each.get("endOffset"))
        if end and {place.topic for place in end} <= set(source.names):
            start = topic_offsets(each.get("startOffset"))
            fitting.append((start or None, end))
    return fitting[0] if len(fitting) == 1 else None


def topic_offsets(offset: Any) -> PartitionOffsets:
    """The offsets of a topic; none of another kind of source, whose offsets look otherwise."""
    try:
        return decode(offset)
    except (ValueError, AttributeError, TypeError):
        return {}


def seen_of(metric: Any) -> Seen | None:
    """The observed metric of a source; None where it is missing or not whole."""
    if not isinstance(metric, Mapping) or metric.get("count") is None:
        return None
    blocks, offset_sum = metric.get("blocks"), metric.get("offset_sum")
    return Seen(
        int(metric["count"]),
        None if offset_sum is None else int(offset_sum),
        None if blocks is None else [str(each) for each in blocks],
    )
