"""ListOffsets (KIP-79, KIP-734): the first offset, the last, the one at a time, the newest.

Bounded by what the asker may read: the last stable offset for read_committed, the high watermark
for other consumers, the log's end for a replica. A time after all records is answered with -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.context import Context
from ottla.broker.partitions import missing
from ottla.log.failures import CorruptSegment
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The first version in which each may be asked for.
SPECIAL_FROM = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
OFFSET_NOT_AVAILABLE_FROM = 5
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
CONSUMER = -1
ANY_REPLICA = -2  # Kafka's debugging consumer: asks about this replica, whoever leads


def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    """Every partition on its own; one named twice is refused."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
    asked: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for key in _keys(request):
        (twice if key in asked else asked).add(key)
    topics = []
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            key = (topic.name, each.partition_index)
            if key in twice:
                if key in asked:
                    asked.discard(key)
                    answers.append(_error(each, ErrorCode.INVALID_REQUEST))
                continue
            answers.append(_look_up(request, topic.name, each, context))
        if answers:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def failure(
    request: ListOffsetsRequest, error_code: ErrorCode, context: Context
) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_error(each, error_code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _keys(request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topics:
        for each in topic.partitions:
            yield topic.name, each.partition_index


def _error(asked: ListOffsetsPartition, error_code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error_code
    )


def _look_up(
    request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, context: Context
) -> ListOffsetsPartitionResponse:
    version, index, timestamp = context.api_version, asked.partition_index, asked.timestamp
    if timestamp < 0 and version < SPECIAL_FROM.get(timestamp, version + 1):
        return _error(asked, ErrorCode.UNSUPPORTED_VERSION)
    broker = context.broker
    partition = broker.partitions.get(topic, index)
    if partition is None:
        return _error(asked, missing(broker.image, topic, index, broker.node_id))
    error = partition.error_for_client(asked.current_leader_epoch)
    from_any = request.replica_id == ANY_REPLICA and error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error and not from_any:
        return _error(asked, error)
    from_consumer = request.replica_id == CONSUMER
    if not from_consumer:
        end_offset = partition.end_offset
    elif request.isolation_level == READ_COMMITTED:
        end_offset = partition.last_stable_offset
    else:
        end_offset = partition.high_watermark
    try:
        found = _find(partition, timestamp, end_offset)
    except CorruptSegment as problem:
        partition.log_damage(problem)
        return _error(asked, problem.error_code)
    except OSError as problem:
        partition.go_offline(f"cannot search for timestamp {timestamp}", problem)
        return _error(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    late = from_consumer and partition.high_watermark < partition.epoch_start_offset
    if late and (timestamp == LATEST or (found is None and timestamp not in (-2, -4))):
        # KIP-207: right after an election the high watermark may lag behind what was shown before.
        later = version >= OFFSET_NOT_AVAILABLE_FROM
        return _error(
            asked,
            ErrorCode.OFFSET_NOT_AVAILABLE if later else ErrorCode.LEADER_NOT_AVAILABLE,
        )
    if found is None:
        return _error(asked, ErrorCode.NONE)
    found_timestamp, offset, leader_epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found_timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _find(partition: Partition, timestamp: int, end_offset: int) -> tuple[int, int, int] | None:
    """Timestamp (-1 where it does not matter), offset and leader epoch (-1 when unknown)."""
    if timestamp == LATEST:
        return -1, end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start_offset = partition.log_start_offset
        return -1, start_offset, partition.epoch_for_offset(start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1  # nothing is tiered here
    if timestamp == MAX_TIMESTAMP:
        found = partition.max_timestamp()
    else:
        found = partition.offset_for_timestamp(timestamp, end_offset=end_offset)
    if found is None or found.offset >= end_offset:
        return None
    return found.timestamp, found.offset, found.leader_epoch
