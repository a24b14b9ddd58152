"""ReadShareGroupStateSummary: where share partitions begin, for who does not lead them."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.share_state import answer_each
from ottla.coordinator.effects import Effects
from ottla.coordinator.share_state import SharePartitionKey
from ottla.coordinator.share_state_shard import ShareStateShard
from ottla.wire.api.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: ReadShareGroupStateSummaryRequest, context: Context
) -> ReadShareGroupStateSummaryResponse | Pending:
    answer: ReadShareGroupStateSummaryResponse | Pending = answer_each(
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
    state = shard.summary(key, asked.leader_epoch)
    if isinstance(state, ErrorCode):
        return failed(asked, state)
    return PartitionResult(
        partition=asked.partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
    )


def failed(asked: PartitionData, error: ErrorCode) -> PartitionResult:
    return PartitionResult(partition=asked.partition, error_code=error, error_message=error.message)


def respond(
    results: list[tuple[bytes, list[PartitionResult]]],
) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=each) for topic_id, each in results
        ]
    )


def failure(
    request: ReadShareGroupStateSummaryRequest, error_code: ErrorCode, context: Context
) -> ReadShareGroupStateSummaryResponse:
    """The same error for every partition."""
    return respond(
        [
            (topic.topic_id, [failed(each, error_code) for each in topic.partitions])
            for topic in request.topics
        ]
    )
