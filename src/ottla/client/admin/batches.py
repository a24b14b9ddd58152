"""Batches as they lie in a partition, with what their headers say and what became of their
transactions: for tools that show a log as it is.

A consumer leaves out aborted records and markers; here nothing is left out. What is known of a
transaction follows from one answer: below the last stable offset each is decided, and the broker
names the aborted ones; above it, a marker further on in the answer decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.compression import Compression
from ottla.wire.control import ABORT, COMMIT, control_type
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import BatchHeader, batch_bounds, read_header, read_records

from ..consumer.fetched_batches import FetchedBatch, records_in
from ..errors import CorruptRecordException, KafkaError, error_for, raise_for
from ..structs import ConsumerRecord, TopicPartition
from .base import AdminBase, by_topic

if TYPE_CHECKING:
    from ottla.wire.api.fetch import FetchRequest, FetchResponse, PartitionData

FETCH_BYTES = 1 << 20
CHANNEL = "fetch"  # a connection of its own: answers are large, and others wait behind them
NAMES_VERSION_MAX = 12  # from 13 on, topics go by id
UNCOMMITTED, COMMITTED = 0, 1


class BatchState(StrEnum):
    """What became of the transaction that a batch belongs to."""

    NONE = "none"  # of no transaction
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"  # no marker of its end up to where was read


class ReadBatch:
    """One batch: its header, its bytes, and the state of its transaction."""

    __slots__ = ("data", "header", "partition", "state")

    def __init__(
        self, partition: TopicPartition, header: BatchHeader, data: memoryview, state: BatchState
    ) -> None:
        self.partition = partition
        self.header = header
        self.data = data
        self.state = state

    @property
    def next_offset(self) -> int:
        return self.header.last_offset + 1

    @property
    def compression(self) -> str:
        """The codec's name: none, gzip, snappy, lz4 or zstd."""
        try:
            return Compression(self.header.compression).name.lower()
        except ValueError:
            return f"codec {self.header.compression}"

    @property
    def marker(self) -> str | None:
        """`commit`, `abort` or `control` for a batch of the broker's; None for a client's."""
        if not self.header.is_control:
            return None
        return {COMMIT: "commit", ABORT: "abort"}.get(marker_type(self.data), "control")

    def records(self, first_offset: int = 0) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """Its records from an offset on, markers too; CorruptRecordException if they cannot be
        read."""
        fetched = FetchedBatch(self.header, self.data, self.header.size, 0)
        return fetched.records(self.partition, first_offset, None, None, check_crc=True)


class PartitionRead(NamedTuple):
    """What one partition has from an offset on; or the error that its leader answered."""

    batches: list[ReadBatch]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: KafkaError | None = None


class Batches(AdminBase):
    """The part of the admin that reads batches."""

    def read_batches(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        partition_bytes_max: int = FETCH_BYTES,
        bytes_max: int = FETCH_BYTES,
        max_wait_ms: int = 0,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, PartitionRead]:
        """From each partition's leader the next batches; the first comes whole, however large.

        With `max_wait_ms` the answer may wait for records; the states of transactions above the
        last stable offset are those at the time of the answer. Errors that may pass are retried.
        """
        if max_wait_ms:
            return self._read(
                offsets, UNCOMMITTED, partition_bytes_max, bytes_max, max_wait_ms, timeout_ms
            )
        found = self._read(offsets, COMMITTED, partition_bytes_max, bytes_max, 0, timeout_ms)
        above = {
            each: offsets[each]
            for each, read in found.items()
            if read.error is None and not read.batches and offsets[each] < read.high_watermark
        }
        if above:
            found |= self._read(above, UNCOMMITTED, partition_bytes_max, bytes_max, 0, timeout_ms)
        return found

    def _read(
        self,
        offsets: Mapping[TopicPartition, int],
        isolation_level: int,
        partition_bytes_max: int,
        bytes_max: int,
        max_wait_ms: int,
        timeout_ms: float | None,
    ) -> dict[TopicPartition, PartitionRead]:
        tried = 0

        def attempt(left_ms: float) -> dict[TopicPartition, PartitionRead]:
            nonlocal tried
            leaders = self._leaders(offsets, left_ms, refresh=tried > 0)
            tried += 1
            asked = [
                self._client.submit(
                    leader,
                    request_for(
                        {each: offsets[each] for each in theirs},
                        isolation_level, partition_bytes_max, bytes_max, max_wait_ms,
                    ),
                    timeout_ms=min(left_ms, max_wait_ms + self.config["request_timeout_ms"]),
                    channel=CHANNEL,
                    version_max=NAMES_VERSION_MAX,
                )
                for leader, theirs in leaders.items()
            ]  # fmt: skip
            found: dict[TopicPartition, PartitionRead] = {}
            for future in asked:
                found |= reads_in(
                    self._client.wait(future, left_ms), offsets, isolation_level == COMMITTED
                )
            for read in found.values():
                if read.error is not None and read.error.retriable:
                    raise read.error
            return found

        return self._client.retrying(attempt, timeout_ms)

    def _leaders(
        self, offsets: Iterable[TopicPartition], left_ms: float, *, refresh: bool
    ) -> dict[int, list[TopicPartition]]:
        """The partitions by their leaders, from what is known already where it is."""
        wanted = list(offsets)
        names = sorted({each.topic for each in wanted})
        if refresh or any(self._client.cluster.leader(*each) < 0 for each in wanted):
            self._client.metadata.track(names)
            self._client.wait(self._client.refresh(names), left_ms)
        cluster = self._client.cluster
        grouped: dict[int, list[TopicPartition]] = {}
        for each in wanted:
            topic, place = cluster.topics.get(each.topic), cluster.partition(*each)
            if topic is not None and topic.error_code:
                raise_for(topic.error_code, each.topic)
            if topic is None or place is None:
                raise_for(
                    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    f"there is no partition {each.topic}-{each.partition}",
                )
            elif place.leader < 0:
                raise_for(
                    int(ErrorCode.LEADER_NOT_AVAILABLE),
                    f"{each.topic}-{each.partition} has no leader now",
                )
            else:
                grouped.setdefault(place.leader, []).append(each)
        return grouped


def request_for(
    offsets: Mapping[TopicPartition, int],
    isolation_level: int,
    partition_bytes_max: int,
    bytes_max: int,
    max_wait_ms: int,
) -> FetchRequest:
    from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic

    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=isolation_level,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offsets[TopicPartition(topic, index)],
                        partition_max_bytes=partition_bytes_max,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )


def reads_in(
    answer: FetchResponse, offsets: Mapping[TopicPartition, int], committed: bool
) -> dict[TopicPartition, PartitionRead]:
    raise_for(answer.error_code)
    found = {}
    for topic in answer.responses:
        for data in topic.partitions:
            partition = TopicPartition(topic.topic, data.partition_index)
            found[partition] = read_in(data, partition, offsets[partition], committed)
    return found


def read_in(
    data: PartitionData, partition: TopicPartition, offset: int, committed: bool
) -> PartitionRead:
    """One partition's part of an answer."""
    batches: list[ReadBatch] = []
    error: KafkaError | None = None
    name = f"{partition.topic}-{partition.partition}"
    if data.error_code:
        error = error_for(data.error_code, f"{name} at offset {offset}")
    else:
        try:
            batches = inspected(data, partition, offset, committed)
        except MalformedMessage as problem:
            error = CorruptRecordException(f"{name} at offset {offset}: {problem}")
    return PartitionRead(
        batches,
        batches[-1].next_offset if batches else offset,
        data.log_start_offset,
        data.high_watermark,
        data.last_stable_offset,
        error,
    )


def inspected(
    data: PartitionData, partition: TopicPartition, offset: int, committed: bool
) -> list[ReadBatch]:
    """The batches of an answer from `offset` on, each with the state of its transaction."""
    records = records_in(data)
    aborted = data.aborted_transactions or () if committed else ()
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    active: set[int] = set()
    found: list[ReadBatch] = []
    undecided: dict[int, list[ReadBatch]] = {}  # of each producer, above the last stable offset
    for start, end in batch_bounds(records):
        header = read_header(records, start)
        while waiting and waiting[-1].first_offset <= header.last_offset:
            active.add(waiting.pop().producer_id)
        batch = ReadBatch(partition, header, records[start:end], BatchState.NONE)
        if header.is_control:
            kind = marker_type(batch.data)
            if kind == ABORT:
                active.discard(header.producer_id)
            decided = {ABORT: BatchState.ABORTED, COMMIT: BatchState.COMMITTED}.get(kind)
            if decided is not None:
                for each in undecided.pop(header.producer_id, ()):
                    each.state = decided
        elif header.is_transactional and committed:
            gone = header.producer_id in active
            batch.state = BatchState.ABORTED if gone else BatchState.COMMITTED
        elif header.is_transactional:
            batch.state = BatchState.OPEN
            undecided.setdefault(header.producer_id, []).append(batch)
        if header.last_offset >= offset:
            found.append(batch)
    return found


def marker_type(batch: memoryview) -> int:
    """The type in a control batch; -1 if it holds no record."""
    records = read_records(batch)
    return control_type(records[0].key) if records else -1
