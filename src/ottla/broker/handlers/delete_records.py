"""DeleteRecords (KIP-107): move the start of a log up. Whole segments go later, by retention."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.partitions import missing
from ottla.cluster.names import INTERNAL
from ottla.log.log import OffsetOutOfRange
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.errors import ErrorCode

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """Every partition on its own (of one named twice the last offset counts).

    With one replica there is no follower to wait for.
    """
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for each in topic.partitions:
            wanted.setdefault(topic.name, {})[each.partition_index] = each
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[_delete(name, each, context) for each in parts.values()]
            )
            for name, parts in wanted.items()
        ]
    )


def failure(
    request: DeleteRecordsRequest, error_code: ErrorCode, context: Context
) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_error(each, error_code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _error(asked: DeleteRecordsPartition, error_code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index,
        low_watermark=NO_LOW_WATERMARK,
        error_code=error_code,
    )


def _delete(
    topic: str, asked: DeleteRecordsPartition, context: Context
) -> DeleteRecordsPartitionResult:
    broker = context.broker
    index = asked.partition_index
    partition = broker.partitions.get(topic, index)
    if partition is None:
        return _error(asked, missing(broker.image, topic, index, broker.node_id))
    if topic in INTERNAL:
        return _error(asked, ErrorCode.INVALID_TOPIC_EXCEPTION)
    error = partition.error_for_client()
    if error:
        return _error(asked, error)
    if not partition.config.delete:
        return _error(asked, ErrorCode.POLICY_VIOLATION)
    offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= partition.high_watermark:
        return _error(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        low_watermark = partition.delete_records_before(offset)
    except OffsetOutOfRange:
        return _error(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    except OSError as problem:
        partition.go_offline(f"cannot delete records before {offset}", problem)
        return _error(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
