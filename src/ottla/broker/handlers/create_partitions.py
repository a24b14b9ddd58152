"""CreatePartitions: more partitions for topics that are there; each topic has its own answer."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarding import new_partitions, partitions_response
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.errors import ErrorCode


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    if request.timeout_ms <= 0:
        return failure(request, ErrorCode.REQUEST_TIMED_OUT, context)  # its time is over already
    wanted = [new_partitions(topic) for topic in request.topics]
    outcomes = await context.broker.controller.create_partitions(wanted, request.validate_only)
    return partitions_response(outcomes)


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
