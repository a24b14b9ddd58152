"""A pipeline as a stream: one query for each sink, one for bad records, each with its checkpoint.

The first query reports where bad records are, so that their query need not parse all of it again
(examining.py).

`start_stream` gives a `Run`, whose queries run in the session until they fail, end (catch-up) or
are stopped. A run owes its caller that no two runs share a checkpoint, that its queries begin at
the same offsets, and that their last offsets are committed to the groups when it ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from .bounds import Bound, Offsets, offsets_at, partitions_of, start_offsets
from .checkpoints import Home
from .declaring import BAD_RECORDS, Pipeline
from .examining import ReportListener, Reports, examinable, observed_once
from .existing import client_properties, make_targets, need_sources, topic_clients
from .inputs import Inputs, StreamInputs
from .outputs import records
from .problems import sentence
from .progress import Reading, bad_values_text, reading_of, tables_in
from .topics import Files, PipelineError, Sink, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("ottla.spark")
POLL_S = 0.1
# A query's planner is a Python process that Spark gives 10 seconds to call back; on a busy machine
# several at once do not make it, so they start one after another, and again if need be.
STARTS_MAX = 4
START_TIMEOUT_S = 120.0
# Spark decides by the text of a Python error whether a stop interrupted the batch, and its search
# overflows the stack on a long text: it gets the words it looks for, and no more.
INTERRUPTED = re.compile(r"InterruptedException|InterruptedIOException|ClosedByInterrupt")
STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling write: "
    "java.lang.InterruptedException"
)
STARTING = ("Initializing", "Starting")
TOO_SLOW = "failed to connect back"

# The number of a batch, the time of its progress, and whether the batch is done: the number comes
# before as well, while there is nothing to do.
Mark = tuple[int, str, bool]
NOTHING_SEEN: Mark = (-1, "", False)


def mark_of(progress: Mapping[str, Any]) -> Mark:
    done = "addBatch" in (progress.get("durationMs") or {})
    return int(progress["batchId"]), str(progress.get("timestamp")), done


def nothing_between(seen: Mark, last: Mark) -> bool:
    """Can no batch have been done between the two?"""
    return last[0] == seen[0] or (last[0] == seen[0] + 1 and seen[2])


class Run:
    """The queries of one pipeline that has been started."""

    def __init__(self, pipeline: Pipeline, home: Home, servers: str) -> None:
        self.pipeline = pipeline
        self.servers = servers
        self.home = home
        # Does it go on from a checkpoint?
        self.resumed = home.starts() is not None
        self.queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, Mark] = {}
        self._bad_values: dict[str, Mapping[str, Any]] = {}  # of tables, as last met
        self._over = False
        # What the first query reports to that of bad records, and who takes it.
        self.reports: Reports | None = None
        self._unlisten: Callable[[], None] | None = None
        # Starts the query for bad records when the others have ended.
        self.start_last: Callable[[], None] | None = None

    def failure(self) -> str | None:
        """What went wrong, as a sentence; None: nothing so far."""
        for query in self.queries.values():
            error = None if query.isActive else query.exception()
            if error is not None:
                return sentence(error, self.pipeline)
        return None

    def readings(self) -> list[Reading]:
        """The progress of the queries since the last call."""
        found = []
        for name, query in self.queries.items():
            for said in self._news(query, self._seen.get(name, NOTHING_SEEN)):
                self._seen[name] = mark_of(said)
                self._warn_of_tables(said)
                found.append(reading_of(self.pipeline.name, name, said))
        return found

    def _warn_of_tables(self, progress: Mapping[str, Any]) -> None:
        """Log the bad values of tables, when there are others than before."""
        for name, found in tables_in(progress.get("observedMetrics") or {}).items():
            if found["count"] and self._bad_values.get(name) != found:
                log.warning("%s", bad_values_text(self.pipeline.name, name, found))
            self._bad_values[name] = found

    @staticmethod
    def _news(query: StreamingQuery, seen: Mark) -> list[dict[str, Any]]:
        """What came after `seen`. To have all of the recent ones costs time: mostly it is one."""
        last = query.lastProgress
        if last is None:
            return []
        said = json.loads(last.json)
        if mark_of(said) <= seen:
            return []
        if nothing_between(seen, mark_of(said)):
            return [said]
        recent = [json.loads(each.json) for each in query.recentProgress]
        return [each for each in recent if mark_of(each) > seen]

    def active(self) -> bool:
        """Whether a query runs or is still to come; starts the one that waits for the others."""
        if any(each.isActive for each in self.queries.values()):
            return True
        start, self.start_last = self.start_last, None
        if start is None or self._over or self.failure() is not None:
            return False
        start()
        return True

    def listen(self, spark: SparkSession, reports: Reports, first: str) -> None:
        """Pass on what the first query reports, until the run ends."""
        listener = ReportListener(
            reports, query_name(self.pipeline, first), query_name(self.pipeline, BAD_RECORDS)
        )
        spark.streams.addListener(listener)
        self.reports = reports
        self._unlisten = lambda: spark.streams.removeListener(listener)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until all queries have ended, or one has failed; False: neither in that time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.failure() is None and self.active():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        # One that failed takes the others with it: half a pipeline is none.
        self.stop()
        return True

    def stop(self) -> None:
        """End the queries; the next start goes on after the last batch that each has finished."""
        for query in self.queries.values():
            # `failure` has the error of a query that has failed already.
            with contextlib.suppress(PySparkException):
                query.stop()
        self.close()

    def close(self) -> None:
        """Give the checkpoint back, with the groups at the offsets of the last batch."""
        if self._over:
            return
        self._over = True
        try:
            for name, query in self.queries.items():
                group = self.pipeline.group_of(name)
                commit_last(query, self.servers, group, client_properties(self.pipeline))
                last = query.lastProgress
                if last is not None:
                    self._warn_of_tables(json.loads(last.json))
        finally:
            self.home.release()
            if self.reports is not None:
                self.reports.close()
            if self._unlisten is not None:
                self._unlisten()


def start_stream(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    checkpoint: str,
    start: Bound = "earliest",
    catch_up: bool = False,
    trigger: str | None = None,
) -> Run:
    """Start all queries of a pipeline, or none."""
    from ..source import register
    from ..source.listener import clients

    register(spark)
    clients[bootstrap_servers] = client_properties(pipeline)
    home = Home(checkpoint, pipeline.name)
    home.take()
    run = Run(pipeline, home, bootstrap_servers)
    try:
        starts = prepare(pipeline, bootstrap_servers, home, start)
        home.keep_run(
            mode="catch-up" if catch_up else "live",
            bootstrap_servers=bootstrap_servers,
            file=pipeline.file,
            jvm_pid=jvm_pid(spark),
            groups={query: pipeline.group_of(query) for query in pipeline.queries},
        )
        with settings_of(spark, pipeline), sentences(pipeline):
            StreamInputs(spark, pipeline, bootstrap_servers, starts, "").warn_of_tables()
            starting = Starting(run, spark, starts, catch_up, trigger or pipeline.trigger)
            for query in pipeline.queries:
                if query == BAD_RECORDS and catch_up and run.reports is not None:
                    run.start_last = starting.bad_records_last
                else:
                    starting.start(query)
    except BaseException:
        run.stop()
        raise
    return run


class Starting:
    """Starts the queries of a run."""

    def __init__(
        self,
        run: Run,
        spark: SparkSession,
        starts: Mapping[str, Offsets | None],
        catch_up: bool,
        trigger: str | None,
    ) -> None:
        self.run = run
        self.spark = spark
        self.starts = starts
        self.catch_up = catch_up
        self.trigger = trigger

    def start(self, query: str) -> None:
        run, pipeline = self.run, self.run.pipeline
        first = not run.queries and BAD_RECORDS in pipeline.queries
        writer = (self.reporting(query) if first else None) or stream_writer(
            self.inputs(query), query
        )
        writer = writer.option("checkpointLocation", run.home.of(query))
        if self.catch_up:
            writer = writer.trigger(availableNow=True)
        elif self.trigger:
            writer = writer.trigger(processingTime=self.trigger)
        run.queries[query] = started(writer)

    def inputs(self, query: str, observed: Collection[str] = ()) -> StreamInputs:
        run = self.run
        return StreamInputs(
            self.spark,
            run.pipeline,
            run.servers,
            self.starts,
            run.pipeline.group_of(query),
            observed=observed,
            examined=run.reports.files if query == BAD_RECORDS and run.reports else None,
        )

    def reporting(self, query: str) -> DataStreamWriter | None:
        """The writer of the first query, which reports its bad records; None if it cannot."""
        pipeline = self.run.pipeline
        sources = examinable(pipeline)
        if not sources:
            return None
        inputs = self.inputs(query, sources)
        try:
            frame = pipeline.outputs(inputs.frames())[query]
            if observed_once(frame, sources) != set(sources):
                return None
            writer = frame_writer(frame, inputs, query)
        except PySparkException:
            return None  # what fails without the metrics too is raised then
        self.run.listen(
            self.spark,
            Reports(sources, first_offsets(self.run.servers, pipeline, self.starts)),
            query,
        )
        return writer

    def bad_records_last(self) -> None:
        """Start the query for bad records after the others have caught up."""
        run = self.run
        first = next(iter(run.queries.values()))
        if run.reports is not None:
            for each in first.recentProgress:  # the listener may not have come to the last
                run.reports.progress(json.loads(each.json))
        with settings_of(self.spark, run.pipeline), sentences(run.pipeline):
            self.start(BAD_RECORDS)


def first_offsets(
    servers: str, pipeline: Pipeline, starts: Mapping[str, Offsets | None]
) -> dict[str, Offsets]:
    """Where each source begins in a new checkpoint."""
    with topic_clients(servers, pipeline) as (_, consumer):
        return {
            name: starts.get(name)
            or offsets_at(consumer, partitions_of(consumer, source), "earliest")
            for name, source in pipeline.parsed.items()
        }


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query and see it past the start of its planner."""
    for _ in range(STARTS_MAX):
        query = writer.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while (
            query.isActive
            and str(query.status["message"]).startswith(STARTING)
            and time.monotonic() < deadline
        ):
            time.sleep(POLL_S)
        error = None if query.isActive else query.exception()
        if error is None or TOO_SLOW not in str(error):
            break
    return query


def prepare(
    pipeline: Pipeline, servers: str, home: Home, start: Bound
) -> Mapping[str, Offsets | None]:
    """Topics that must be there are; where a new checkpoint begins is looked up and kept."""
    with topic_clients(servers, pipeline) as (admin, consumer):
        need_sources(pipeline, consumer)
        make_targets(pipeline, admin)
        starts = home.starts()
        if starts is None:
            starts = {
                name: start_offsets(consumer, source, start)
                for name, source in pipeline.sources.items()
                if isinstance(source, Topic)
            }
            home.keep_starts(starts)
    return starts


def stream_writer(inputs: Inputs, query: str) -> DataStreamWriter:
    """The writer of one query, up to its trigger and checkpoint."""
    pipeline = inputs.pipeline
    if query == BAD_RECORDS:
        assert pipeline.bad_records is not None
        return to_topic(
            inputs.bad_records().writeStream, pipeline.bad_records, inputs.servers
        ).queryName(query_name(pipeline, query))
    return frame_writer(pipeline.outputs(inputs.frames())[query], inputs, query)


def frame_writer(frame: DataFrame, inputs: Inputs, query: str) -> DataStreamWriter:
    """The writer of what the pipeline's function made for a sink."""
    pipeline = inputs.pipeline
    sink = pipeline.sinks[query]
    return sink_writer(frame, pipeline, query, sink, inputs.servers).queryName(
        query_name(pipeline, query)
    )


def sink_writer(
    frame: DataFrame, pipeline: Pipeline, query: str, sink: Sink, servers: str
) -> DataStreamWriter:
    if not frame.isStreaming:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: what goes to {query!r} is not a stream; "
            "does it come from a table alone?"
        )
    if isinstance(sink, Files):
        writer = frame.writeStream.format(sink.format).option("path", sink.location)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        return writer.options(**sink.options)
    rows = records(frame, sink, f"pipeline {pipeline.name!r}: sink {query!r}")
    if pipeline.mode == "update":
        # Spark takes no Python sink in this mode; by hand it is the same transaction.
        return rows.writeStream.outputMode("update").foreachBatch(updater(sink, servers))
    return to_topic(rows.writeStream.outputMode(pipeline.mode), sink, servers)


def to_topic(writer: DataStreamWriter, sink: Topic, servers: str) -> DataStreamWriter:
    writer = writer.format("ottla").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", sink.label).options(**sink.options)


def updater(sink: Topic, servers: str) -> Any:
    from ..sink.writing import write

    options: dict[str, Any] = dict(sink.options)

    def send(rows: DataFrame, batch_id: int) -> None:
        try:
            write(rows, bootstrap_servers=servers, topic=sink.label, batch=batch_id, **options)
        except Exception as error:
            if INTERRUPTED.search(str(error)):
                raise RuntimeError(STOPPED) from None
            raise

    return send


def jvm_pid(spark: SparkSession) -> int | None:
    """The JVM's process, if it is ours."""
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def query_name(pipeline: Pipeline, query: str) -> str:
    return pipeline.name if len(pipeline.queries) == 1 else f"{pipeline.name}/{query}"


def commit_last(query: StreamingQuery, servers: str, group: str, client: Mapping[str, str]) -> None:
    """Commit the end of the last batch now: the listener may not have come to it yet."""
    from ..source.listener import commit_progress

    progress = query.lastProgress
    if progress is not None:
        commit_progress(progress, servers=servers, group=group, client=client)


@contextlib.contextmanager
def settings_of(spark: SparkSession, pipeline: Pipeline) -> Iterator[None]:
    """The session with the pipeline's options; a query keeps what it was started with."""
    wanted = {
        name: value for name, value in pipeline.options.items() if spark.conf.isModifiable(name)
    }
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextlib.contextmanager
def sentences(pipeline: Pipeline) -> Iterator[None]:
    """Spark's errors about a plan, as the pipeline's."""
    try:
        yield
    except PySparkException as error:
        raise PipelineError(sentence(error, pipeline)) from error
