"""ReadShareGroupState: the leader of a share partition begins with the state that is known."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.share_state import answer_each
from ottla.coordinator.effects import Effects
from ottla.coordinator.packed_batches import pack
from ottla.coordinator.share_state import SharePartitionKey
from ottla.coordinator.share_state_shard import ShareStateShard
from ottla.wire.api.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.rows import Rows


def handle(
    request: ReadShareGroupStateRequest, context: Context
) -> ReadShareGroupStateResponse | Pending:
    answer: ReadShareGroupStateResponse | Pending = answer_each(
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
    state = shard.read(key, asked.leader_epoch, effects, now_ms)
    if isinstance(state, ErrorCode):
        return failed(asked, state)
    return PartitionResult(
        partition=asked.partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=Rows(StateBatch, pack(state.batches)),
    )


def failed(asked: PartitionData, error: ErrorCode) -> PartitionResult:
    return PartitionResult(partition=asked.partition, error_code=error, error_message=error.message)


def respond(results: list[tuple[bytes, list[PartitionResult]]]) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=[ReadStateResult(topic_id=topic_id, partitions=each) for topic_id, each in results]
    )


def failure(
    request: ReadShareGroupStateRequest, error_code: ErrorCode, context: Context
) -> ReadShareGroupStateResponse:
    """The same error for every partition."""
    return respond(
        [
            (topic.topic_id, [failed(each, error_code) for each in topic.partitions])
            for topic in request.topics
        ]
    )
