"""What runs in a task: a range of offsets as Arrow batches.

A task follows a plan that a broker answered for, so one that is away is waited for as long as
`brokerTimeout` says; one that answers, but not for this partition, `kafkaConsumer.pollTimeoutMs`.

Consumers are kept per worker process and used again, so that a small micro-batch does not pay for
connections; they are never shared with a process forked later, nor used by two tasks at a time.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
from pyspark.sql.datasource import InputPartition

from ottla.client import errors
from ottla.client.consumer.range_reader import RangeReader, nothing_came
from ottla.client.errors import KafkaError
from ottla.client.network.cluster_metadata import topic_trouble
from ottla.client.structs import TopicPartition

from .. import broker_wait
from ..broker_wait import BrokerWait, broker_away_named
from .options import SourceOptions

log = logging.getLogger("ottla.spark")

ROWS_MIN = 10_000  # in an Arrow batch, as spark.sql.execution.arrow.maxRecordsPerBatch
BYTES_MIN = 4 * 1024 * 1024  # or so many bytes of values
IDLE_READERS_MAX = 8  # consumers kept in one worker process
IDLE_S_MAX = 300.0  # as Spark's spark.kafka.consumer.cache.timeout
# Of ranges that one task reads in one go: another fetch costs as much as so many records.
GAP_OFFSETS_MAX = 5_000
OUT_OF_RANGE_TRIES_MAX = 5  # when the offset should be there
OUT_OF_RANGE_PAUSE_S = 0.2


class DataLoss(KafkaError):
    """Records that should be read are not there any more."""


@dataclass
class ReadRange(InputPartition):
    """The work of one task."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass
class ReadRanges(InputPartition):
    """Several small ranges of one partition, in order, as the work of one task."""

    ranges: tuple[ReadRange, ...]


class IdleReaders:
    """Consumers of this process that are not in use."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.idle: list[tuple[float, tuple[Any, ...], RangeReader]] = []

    def take(self, options: SourceOptions, partition: TopicPartition) -> RangeReader:
        """One made with these options, best one that read this partition before; or a new one."""
        if self.pid != os.getpid():
            self.pid, self.idle = os.getpid(), []
        key = tuple(sorted(options.client.items()))
        fitting = [each for each in self.idle if each[1] == key]
        best = [each for each in fitting if each[2].partition == partition] or fitting
        if best:
            self.idle.remove(best[-1])
            return best[-1][2]
        timeout = {"bootstrap.timeout.ms": str(options.broker_timeout_ms)}
        with broker_away_named(options.client):
            return RangeReader({**options.client, **timeout})

    def give(self, options: SourceOptions, reader: RangeReader) -> None:
        """Keep it for the next; the oldest are closed."""
        now = time.monotonic()
        self.idle.append((now, tuple(sorted(options.client.items())), reader))
        while len(self.idle) > IDLE_READERS_MAX or self.idle[0][0] + IDLE_S_MAX < now:
            self.idle.pop(0)[2].close()


idle_readers = IdleReaders()


def read_ranges(options: SourceOptions, work: ReadRanges) -> Iterator[Any]:
    """The records of several ranges as Arrow batches. Ranges that are near each other are read in
    one go and the records between them dropped."""
    for group in near(work.ranges):
        first, last = group[0], group[-1]
        span = ReadRange(first.topic, first.partition, first.start, last.end)
        for batch in read_range(options, span, group if len(group) > 1 else ()):
            if batch.num_rows:
                yield batch


def near(ranges: Sequence[ReadRange]) -> list[list[ReadRange]]:
    """Groups of ranges with less than GAP_OFFSETS_MAX between one and the next."""
    groups: list[list[ReadRange]] = []
    for each in ranges:
        if groups and each.start - groups[-1][-1].end < GAP_OFFSETS_MAX:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def read_range(
    options: SourceOptions, work: ReadRange, only: Sequence[ReadRange] = ()
) -> Iterator[Any]:
    """The records of a range as Arrow batches; of those in `only`, if there are any."""
    if work.start >= work.end:
        return
    partition = TopicPartition(work.topic, work.partition)
    reader = idle_readers.take(options, partition)
    stall = Stall(reader, options, partition, work.end)
    try:
        start: int | None = work.start
        losses = 0
        lost = False
        while start is not None and start < work.end:
            try:
                if lost:
                    start, lost = after_loss(reader, options, partition, work.end, losses), False
                    continue
                yield from batches(reader, options, partition, start, work.end, stall, only)
                start = None
            except (errors.OffsetOutOfRangeError, errors.LogTruncationError):
                # A topic made anew since this consumer last read it is not a loss by itself: the
                # range was planned on what is there now.
                losses, lost = losses + 1, True
            except (errors.KafkaTimeoutError, errors.KafkaConnectionError) as problem:
                stall.wait(problem)
                start = max(start or work.start, reached(reader, partition))
            except TopicGone:
                report_loss(options, f"topic {partition.topic!r} is gone, with offsets to be read")
                start = None
    except BaseException:
        reader.close()
        raise
    idle_readers.give(options, reader)


class TopicGone(KafkaError):
    """The topic of a task is not there any more."""


class Stall:
    """Decides how long a task waits while nothing comes of its partition."""

    def __init__(
        self, reader: RangeReader, options: SourceOptions, partition: TopicPartition, end: int
    ) -> None:
        self.reader = reader
        self.options = options
        self.partition = partition
        self.end = end
        self.since = time.monotonic()  # of the last progress, or of the broker's return

    def progress(self) -> None:
        self.since = time.monotonic()

    def at(self, offset: int) -> None:
        """Nothing came at this offset."""
        self.wait(nothing_came(self.partition, offset, self.end, self.options.poll_timeout_ms))

    def wait(self, problem: KafkaError) -> None:
        """Return when there is more reason to wait; else raise the problem, or TopicGone.

        Time in which no broker answered does not count for `pollTimeoutMs`.
        """
        wait = BrokerWait(self.reader.client, self.options.broker_timeout_ms)
        cluster = wait.cluster()
        now = time.monotonic()
        if wait.was_away:
            self.since = now
        elif now - self.since >= self.options.poll_timeout_ms / 1000:
            trouble = topic_trouble(
                self.partition.topic, cluster.topics.get(self.partition.topic), auto_create=False
            )
            if trouble is not None and trouble[0] == errors.UnknownTopicOrPartitionError.errno:
                raise TopicGone from None
            raise problem


def batches(
    reader: RangeReader,
    options: SourceOptions,
    partition: TopicPartition,
    start: int,
    end: int,
    stall: Stall,
    only: Sequence[ReadRange],
) -> Iterator[Any]:
    step_ms = min(options.poll_timeout_ms, broker_wait.AWAY_AFTER_S * 1000)
    for columns in reader.read(
        partition, start, end,
        rows=ROWS_MIN, value_bytes=BYTES_MIN, timeout_ms=step_ms, stalled=stall.at,
    ):  # fmt: skip
        try:
            found = columns.to_arrow(columns=options.columns, unit="us")
        except pyarrow.ArrowInvalid as problem:
            raise KafkaError(
                f"{columns!r}: {problem}. Spark's times have microseconds; a producer that writes "
                "them where Kafka has milliseconds goes beyond its range\n"
                "Try: columns without timestamp"
            ) from None
        yield narrowed(found, columns.offsets, only) if only else found
        stall.progress()


def narrowed(batch: Any, offsets: Sequence[int], only: Sequence[ReadRange]) -> Any:
    """The rows of an Arrow batch whose offsets lie in the ranges; both are in order."""
    slices = []
    for each in only[bisect_right(only, offsets[0], key=lambda wanted: wanted.end) :]:
        if each.start > offsets[-1]:
            break
        begin = bisect_left(offsets, each.start)
        slices.append(batch.slice(begin, bisect_left(offsets, each.end) - begin))
    return pyarrow.concat_batches(slices) if slices else batch.slice(0, 0)


def reached(reader: RangeReader, partition: TopicPartition) -> int:
    """The offset that the reader has come to; 0 where it has not begun."""
    position = reader.position(partition) if reader.partition == partition else None
    return 0 if position is None else position


def after_loss(
    reader: RangeReader, options: SourceOptions, partition: TopicPartition, end: int, tries: int
) -> int | None:
    """Where to go on when there is nothing at the position; None: nowhere before the end."""
    position = reader.position(partition)
    assert position is not None
    earliest = reader.consumer.beginning_offsets([partition])[partition]
    latest = reader.consumer.end_offsets([partition])[partition]
    if earliest <= position < latest and tries < OUT_OF_RANGE_TRIES_MAX:
        time.sleep(OUT_OF_RANGE_PAUSE_S)  # a new leader may know less for a moment
        return position
    report_loss(
        options,
        f"offsets {position} to {end} of {partition.topic}-{partition.partition} were to be read, "
        f"and it has {earliest} to {latest}",
    )
    return earliest if position < earliest < end else None


def report_loss(options: SourceOptions, what: str) -> None:
    """Raise, or log a warning, according to `failOnDataLoss`."""
    if options.fail_on_data_loss:
        raise DataLoss(
            f"data may have been lost: {what}. Retention took it, or its topic was deleted, before "
            "it was read\n"
            "Try: failOnDataLoss false, to go on with what is there"
        )
    log.warning("data may have been lost: %s (failOnDataLoss is false: going on)", what)
