"""DeleteShareGroupState: the group coordinator has a share partition forgotten."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.share_state import answer_each
from ottla.coordinator.effects import Effects
from ottla.coordinator.share_state import SharePartitionKey
from ottla.coordinator.share_state_shard import ShareStateShard
from ottla.wire.api.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: DeleteShareGroupStateRequest, context: Context
) -> DeleteShareGroupStateResponse | Pending:
    answer: DeleteShareGroupStateResponse | Pending = answer_each(
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
    return result(asked, shard.delete(key, effects))


def failed(asked: PartitionData, error: ErrorCode) -> PartitionResult:
    return result(asked, error)


def result(asked: PartitionData, error: ErrorCode) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=error,
        error_message=error.message if error else None,
    )


def respond(results: list[tuple[bytes, list[PartitionResult]]]) -> DeleteShareGroupStateResponse:
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(topic_id=topic_id, partitions=each) for topic_id, each in results
        ]
    )


def failure(
    request: DeleteShareGroupStateRequest, error_code: ErrorCode, context: Context
) -> DeleteShareGroupStateResponse:
    """The same error for every partition."""
    return respond(
        [
            (topic.topic_id, [failed(each, error_code) for each in topic.partitions])
            for topic in request.topics
        ]
    )
