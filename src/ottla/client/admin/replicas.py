"""Replicas one by one: what each broker's copy of a partition holds, whoever leads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.batch_header import ATTRIBUTES_POSITION
from ottla.wire.checksum import crc32c
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import batch_bounds, read_header

from ..errors import KafkaError
from ..structs import TopicPartition
from .base import AdminBase
from .records import ANY_REPLICA

if TYPE_CHECKING:
    from ottla.wire.api.fetch import FetchRequest, FetchResponse

NAMES_VERSION_MAX = 12  # later versions know topics by their ids
FETCH_BYTES = 1 << 20


class ReplicaBatch(NamedTuple):
    """One batch of a replica; the checksum is that of its bytes, whatever its header says."""

    base_offset: int
    last_offset: int
    checksum: int


class ReplicaRead(NamedTuple):
    """What one replica has from an offset on, up to its high watermark."""

    error_code: int
    log_start_offset: int
    high_watermark: int
    batches: list[ReplicaBatch]


Offsets = Mapping[TopicPartition, int]
Reads = dict[TopicPartition, ReplicaRead]


class Replicas(AdminBase):
    """The part of the admin that reads replicas, those of followers too (KIP-392)."""

    def read_replicas(
        self,
        offsets: Mapping[int, Offsets],
        *,
        partition_bytes_max: int = FETCH_BYTES,
        max_wait_ms: int = 0,
    ) -> dict[int, Reads | KafkaError]:
        """From each broker the next batches of its partitions; or why it cannot be asked."""
        asked = {
            broker_id: self._client.submit(
                broker_id,
                request_for(wanted, partition_bytes_max, max_wait_ms),
                timeout_ms=max_wait_ms + self.config["request_timeout_ms"],
                version_max=NAMES_VERSION_MAX,
            )
            for broker_id, wanted in offsets.items()
        }
        found: dict[int, Reads | KafkaError] = {}
        for broker_id, future in asked.items():
            try:
                found[broker_id] = reads_in(self._client.wait(future))
            except KafkaError as error:
                found[broker_id] = error
        return found


def request_for(wanted: Offsets, partition_bytes_max: int, max_wait_ms: int) -> FetchRequest:
    from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic

    topics: dict[str, FetchTopic] = {}
    for each, offset in wanted.items():
        topic = topics.setdefault(each.topic, FetchTopic(topic=each.topic))
        topic.partitions.append(
            FetchPartition(
                partition=each.partition,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes_max,
            )
        )
    return FetchRequest(
        replica_id=ANY_REPLICA,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=list(topics.values()),
    )


def reads_in(answer: FetchResponse) -> Reads:
    found = {}
    for topic in answer.responses:
        for data in topic.partitions:
            code, batches = data.error_code, []
            records = memoryview(b"") if data.records is None else data.records
            assert isinstance(records, memoryview)
            try:
                for start, end in batch_bounds(records):
                    header = read_header(records, start)
                    covered = crc32c(records[start:end], ATTRIBUTES_POSITION)
                    batches.append(ReplicaBatch(header.base_offset, header.last_offset, covered))
            except MalformedMessage:
                code = int(ErrorCode.CORRUPT_MESSAGE)
            found[TopicPartition(topic.topic, data.partition_index)] = ReplicaRead(
                code, data.log_start_offset, data.high_watermark, batches
            )
    return found
