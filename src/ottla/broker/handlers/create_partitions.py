"""CreatePartitions: more partitions for topics that are there; each topic has its own answer."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.cluster.requests import NewPartitions
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.errors import ErrorCode


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    if request.timeout_ms <= 0:
        return failure(request, ErrorCode.REQUEST_TIMED_OUT, context)  # its time is over already
    wanted = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [each.broker_ids for each in topic.assignments],
        )
        for topic in request.topics
    ]
    outcomes = await context.broker.controller.create_partitions(wanted, request.validate_only)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=outcome.name,
                error_code=outcome.error_code,
                error_message=outcome.error_message,
            )
            for outcome in outcomes
        ]
    )


def failure(
    request: CreatePartitionsRequest, error_code: ErrorCode, context: Context
) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error_code)
            for topic in request.topics
        ]
    )
