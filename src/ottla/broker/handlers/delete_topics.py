"""DeleteTopics, by name and (since version 6) by id (KIP-516)."""

from __future__ import annotations

from ottla.broker.client_quotas import mutation_quota
from ottla.broker.context import Context
from ottla.broker.forwarding import deletions_response
from ottla.cluster.requests import DeletionOutcome, TopicRef
from ottla.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.wire.errors import ErrorCode

IDS_FROM = 6
QUOTA_ERROR_FROM = 5
DELETION_DISABLED_FROM = 3


async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """Answered once the topics are gone from the image; their files are removed later."""
    if not context.broker.settings.flag("delete.topic.enable"):
        known = context.api_version >= DELETION_DISABLED_FROM
        error = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        return failure(request, error, context)
    if request.timeout_ms <= 0:
        return failure(request, ErrorCode.REQUEST_TIMED_OUT, context)  # its time is over already
    topics = _topics(request, context)
    quota = mutation_quota(context, QUOTA_ERROR_FROM)
    if quota is None:
        return deletions_response(await context.broker.controller.delete_topics(topics))
    image = context.broker.image
    refused: dict[TopicRef, DeletionOutcome] = {}
    for ref in topics:
        name = ref.name if ref.name is not None else image.topic_name(ref.id)
        topic = image.topic(name) if name is not None else None
        if topic is not None and ref not in refused and not quota.take(len(topic.partitions)):
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            refused[ref] = DeletionOutcome(ref.name, ref.id, error)
    left = [ref for ref in topics if ref not in refused]
    outcomes = await context.broker.controller.delete_topics(left) if left else []
    quota.done()
    return deletions_response([*outcomes, *refused.values()])


def failure(
    request: DeleteTopicsRequest, error_code: ErrorCode, context: Context
) -> DeleteTopicsResponse:
    """The same error for every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.id,
                error_code=error_code,
                error_message=None,
            )
            for topic in _topics(request, context)
        ]
    )


def _topics(request: DeleteTopicsRequest, context: Context) -> list[TopicRef]:
    if context.api_version >= IDS_FROM:
        return [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicRef(name) for name in request.topic_names]
