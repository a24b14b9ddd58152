"""The sink as Spark sees it: tasks stage rows, the driver commits them in one transaction.

`write` runs in a task's Python worker, `commit` and `abort` in another process on the driver, on
another copy of the object: all that passes between them is the parcel. Spark's commit coordinator
sees to it that `commit` gets exactly one parcel per task, whatever was tried again or twice.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.client.errors import KafkaError

from ..broker_wait import broker_away_named
from ..versions import DataSourceStreamArrowWriter
from .connections import partition_count
from .faultpoints import reach
from .options import SinkOptions, read_options
from .parcels import Origin, Parcel, ParcelWriter, discard
from .rows import Layout, Piece, RowEncoder, SinkError, layout
from .staging import Notes, Staging, clear, folder, prepare, read_notes, write_notes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("ottla.spark")

NAME = "ottla-spark-"


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For writeStream. Complete mode comes as `overwrite`, and is appended like all else."""
    return StreamSink(Sink(read_options(options), schema))


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """For write: append only."""
    if overwrite:
        raise SinkError(
            "a topic cannot be overwritten, only appended to\n"
            'Try: .mode("append"); to empty a topic first: ottla topic delete, then create'
        )
    return BatchSink(Sink(read_options(options), schema))


class Sink:
    """What both kinds share: the task's work, made ready on the driver."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.layout: Layout = layout(schema, options.topic)
        self.staging: Staging | None = None
        self.partition_counts: dict[str, int] = {}

    def prepare(self) -> None:
        """On the driver, before tasks start: look up what each task would else look up itself."""
        if self.staging is None:
            self.staging = prepare(self.options.staging_root)
            if self.layout.topic is not None:
                self.partition_counts[self.layout.topic] = self._first_count(self.layout.topic)

    def _first_count(self, topic: str) -> int:
        """A later batch of a query waits for a broker that is away, as its tasks do; the others may
        have a wrong address."""
        if not self.options.batch:
            return partition_count(self.options.properties, topic)
        with broker_away_named(self.options.properties):
            return partition_count(self.options.patient, topic)

    def write(self, rows: Iterator[pa.RecordBatch], name: str | None) -> Parcel:
        """In a task: encode the rows and stage them."""
        context = TaskContext.get()
        assert context is not None
        assert self.staging is not None
        origin = origin_of(context, name, self.options)
        encoder = RowEncoder(
            self.layout,
            self._partition_count,
            compression=self.options.compression,
            batch_bytes=self.options.batch_bytes,
            spread_from=origin.task + max(origin.batch, 0),
        )
        reach("task.begun")
        with broker_away_named(self.options.properties):
            return self._staged(rows, encoder, origin)

    def _staged(
        self, rows: Iterator[pa.RecordBatch], encoder: RowEncoder, origin: Origin
    ) -> Parcel:
        assert self.staging is not None
        if not self.options.exactly_once:
            return self._deliver(rows, encoder, origin)
        writer = ParcelWriter(origin, self.options.carrier, self.staging, self.options.patient)
        try:
            for piece in encoded(rows, encoder):
                writer.add(piece)
            return writer.finish()
        except BaseException:
            writer.discard()
            raise

    def _deliver(
        self, rows: Iterator[pa.RecordBatch], encoder: RowEncoder, origin: Origin
    ) -> Parcel:
        """At least once: straight to the topics, and nothing left to commit."""
        from .connections import plain_producer, send_all, settled

        producer = plain_producer(self.options.patient)
        settled(producer, send_all(producer, encoded(rows, encoder)))
        return Parcel(origin)

    def _partition_count(self, topic: str) -> int:
        count = self.partition_counts.get(topic)
        return partition_count(self.options.patient, topic) if count is None else count

    def commit(self, parcels: Sequence[Parcel], batch: int | None) -> None:
        """On the driver: one transaction for all of them."""
        from .committing import PROCESS, Order, commit, forget

        origin = parcels[0].origin
        directory = folder(self.options.staging_root)
        notes = None if directory is None else read_notes(directory, origin.sink)
        order = Order(
            name=origin.sink,
            properties=self.options.patient,
            batch=batch,
            run=origin.run,
            follows=follows(notes, origin.run, batch),
            accept=self.options.accept,
            topic=self.layout.topic,
            retry_s=self.options.retry_s,
            broker_timeout_s=self.options.broker_timeout_ms / 1000,
        )
        if notes is not None and notes.process != PROCESS:
            forget(order)  # another process has used the name since
        with broker_away_named(self.options.properties):
            commit(order, parcels)
        if batch is None:
            forget(order)
        elif directory is not None:
            write_notes(directory, origin.sink, Notes(origin.run, batch, PROCESS))
        if directory is not None:
            clear(directory, origin.sink, batch)
        self.clear_topic(parcels, last=batch is None)

    def clear_topic(self, parcels: Sequence[Parcel], *, last: bool) -> None:
        """Empty the staging topic, if there is one; delete it after a sink's last write."""
        staged = [parcel for parcel in parcels if parcel.staging_topic is not None]
        if not staged:
            return
        from .staging_topic import delete, empty

        try:
            if last and staged[0].staging_topic is not None:
                delete(self.options.properties, staged[0].staging_topic)
            else:
                empty(self.options.properties, staged)
        except KafkaError as problem:  # its retention will do it
            log.warning("%s is not emptied: %s", staged[0].staging_topic, problem)


class StreamSink(DataSourceStreamArrowWriter):
    """Micro-batches of a query, each exactly once."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def __getstate__(self) -> dict[str, Any]:
        """Only what goes to tasks is pickled, so this is where they are made ready."""
        self.sink.prepare()
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator, None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reach("commit.begun")
        parcels = [each for each in messages if isinstance(each, Parcel)]
        if parcels and self.sink.options.exactly_once:
            self.sink.commit(parcels, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard what was staged. What a commit has done stands, and is in the ledger."""
        throw_away(messages)


class BatchSink(DataSourceArrowWriter):
    """One write of a DataFrame: all of it or nothing."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.name = sink.options.name or f"{NAME}write-{uuid.uuid4()}"
        sink.prepare()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator, self.name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        reach("commit.begun")
        parcels = [each for each in messages if isinstance(each, Parcel)]
        if parcels and self.sink.options.exactly_once:
            self.sink.commit(parcels, self.sink.options.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        throw_away(messages)
        self.sink.clear_topic([each for each in messages if isinstance(each, Parcel)], last=True)


def encoded(rows: Iterator[pa.RecordBatch], encoder: RowEncoder) -> Iterator[Piece]:
    for batch in rows:
        yield from encoder.add(batch)
    yield from encoder.finish()


def origin_of(context: TaskContext, name: str | None, options: SinkOptions) -> Origin:
    """The identity of this task; Spark passes query and batch as local properties."""
    batch = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty("sql.streaming.queryId")
    if name is None:
        if not query or batch is None:
            raise SinkError(
                "this task does not know its query and batch: continuous processing is not for "
                "this sink\nTry: .trigger(processingTime=…) or availableNow"
            )
        name = options.name or f"{NAME}{query}"
    return Origin(
        sink=name,
        run=context.getLocalProperty("spark.jobGroup.id") or "",
        batch=int(batch) if options.batch is None and batch else options.batch or 0,
        task=context.partitionId(),
        attempt=context.taskAttemptId(),
    )


def follows(notes: Notes | None, run: str, batch: int | None) -> bool:
    """Whether this run of the query has finished an earlier batch."""
    if notes is None or batch is None or not run:
        return False
    return notes.run == run and notes.batch < batch


def throw_away(messages: list[WriterCommitMessage | None]) -> None:
    for message in messages:
        if isinstance(message, Parcel):
            discard(message)
