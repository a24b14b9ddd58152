"""DeleteRecords (KIP-107): move the start of a log up. Whole segments go later, by retention.

The answer waits until every live replica begins there: then no election brings the records back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import Context, Pending
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

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

# A partition, the leader epoch and the offset of its deletion, and the answer that waits for the
# followers.
Waiting = tuple["Partition", int, int, DeleteRecordsPartitionResult]

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse | Pending:
    """Every partition on its own (of one named twice the last offset counts)."""
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for each in topic.partitions:
            wanted.setdefault(topic.name, {})[each.partition_index] = each
    waiting: list[Waiting] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete(name, each, context, waiting) for each in parts.values()],
            )
            for name, parts in wanted.items()
        ]
    )
    return _park(response, waiting, request.timeout_ms, context) if waiting else response


def _park(
    response: DeleteRecordsResponse, waiting: list[Waiting], timeout_ms: int, context: Context
) -> Pending:
    """Answer once the live followers begin where their leader does, or when time is up."""

    def attempt(expired: bool) -> bool:
        still = []
        for partition, leader_epoch, offset, answer in waiting:
            error = _lost(partition, leader_epoch)
            low_watermark = -1 if error else _low_watermark(partition, context)
            if error or low_watermark >= offset:
                answer.error_code = error
                answer.low_watermark = low_watermark
            elif expired:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            else:
                still.append((partition, leader_epoch, offset, answer))
        waiting[:] = still
        if not still:
            pending.resolve(response)
        return not still

    purgatory = context.broker.purgatory
    pending: Pending = Pending()
    keys = [partition for partition, _, _, _ in waiting]
    operation = purgatory.park(keys, timeout_ms, attempt)
    pending.on_cancel(lambda: purgatory.cancel(operation))
    return pending


def _lost(partition: Partition, leader_epoch: int) -> ErrorCode:
    """Why a deletion is not this broker's to confirm any more."""
    error = partition.error_for_client()
    if not error and partition.leader_epoch != leader_epoch:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error


def _low_watermark(partition: Partition, context: Context) -> int:
    brokers = context.broker.image.brokers
    return partition.low_watermark(
        lambda node_id: node_id in brokers and not brokers[node_id].fenced
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
    topic: str, asked: DeleteRecordsPartition, context: Context, waiting: list[Waiting]
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
        partition.delete_records_before(offset)
    except OffsetOutOfRange:
        return _error(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    except OSError as problem:
        partition.go_offline(f"cannot delete records before {offset}", problem)
        return _error(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    low_watermark = _low_watermark(partition, context)
    answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
    if low_watermark < offset:
        waiting.append((partition, partition.leader_epoch, offset, answer))
    return answer
