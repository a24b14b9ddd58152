"""WriteShareGroupState: the leader of a share partition writes what has changed."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.share_state import answer_each
from ottla.coordinator.effects import Effects
from ottla.coordinator.packed_batches import PackedBatches
from ottla.coordinator.share_state import SharePartitionKey, ShareState
from ottla.coordinator.share_state_shard import ShareStateShard
from ottla.wire.api.write_share_group_state import (
    PartitionData,
    PartitionResult,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.rows import row_bytes


def handle(
    request: WriteShareGroupStateRequest, context: Context
) -> WriteShareGroupStateResponse | Pending:
    answer: WriteShareGroupStateResponse | Pending = answer_each(
        request.group_id, request.topics, context, decide, failed, respond
    )
    return answer


def decide(
    shard: ShareStateShard,
    key: SharePartitionKey,
    asked: PartitionData,
    effects: Effects,
    now_ms: int,
) -> PartitionResult:
    change = ShareState(
        snapshot_epoch=0,
        state_epoch=asked.state_epoch,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        complete_count=asked.delivery_complete_count,
        packed=PackedBatches.of(row_bytes(asked.state_batches, StateBatch)),
        created_ms=now_ms,
        written_ms=now_ms,
    )
    return result(asked, shard.write(key, change, effects, now_ms))


def failed(asked: PartitionData, error: ErrorCode) -> PartitionResult:
    return result(asked, error)


def result(asked: PartitionData, error: ErrorCode) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=error,
        error_message=error.message if error else None,
    )


def respond(results: list[tuple[bytes, list[PartitionResult]]]) -> WriteShareGroupStateResponse:
    return WriteShareGroupStateResponse(
        results=[WriteStateResult(topic_id=topic_id, partitions=each) for topic_id, each in results]
    )


def failure(
    request: WriteShareGroupStateRequest, error_code: ErrorCode, context: Context
) -> WriteShareGroupStateResponse:
    """The same error for every partition."""
    return respond(
        [
            (topic.topic_id, [failed(each, error_code) for each in topic.partitions])
            for topic in request.topics
        ]
    )
