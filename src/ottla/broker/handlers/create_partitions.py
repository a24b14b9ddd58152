"""CreatePartitions: more partitions for topics that are there; each topic has its own answer."""

from __future__ import annotations

from ottla.broker.client_quotas import mutation_quota
from ottla.broker.context import Context
from ottla.broker.forwarding import new_partitions, partitions_response
from ottla.cluster.requests import NewPartitions, PartitionsOutcome
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.errors import ErrorCode

QUOTA_ERROR_FROM = 3


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    if request.timeout_ms <= 0:
        return failure(request, ErrorCode.REQUEST_TIMED_OUT, context)  # its time is over already
    wanted = [new_partitions(topic) for topic in request.topics]
    controller = context.broker.controller
    quota = mutation_quota(context, QUOTA_ERROR_FROM)
    if quota is None:
        outcomes = await controller.create_partitions(wanted, request.validate_only)
        return partitions_response(outcomes)
    # First what there is to be said against them: what cannot be created costs nothing.
    found = {each.name: each for each in await controller.create_partitions(wanted, True)}
    names = list(found)
    left: list[NewPartitions] = []
    for each in wanted:
        topic = context.broker.image.topic(each.name)
        if topic is None or found[each.name].error_code != ErrorCode.NONE:
            continue
        if quota.take(each.count - len(topic.partitions)):
            left.append(each)
        else:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            found[each.name] = PartitionsOutcome(each.name, error)
    if left and not request.validate_only:
        found |= {each.name: each for each in await controller.create_partitions(left, False)}
    quota.done()
    return partitions_response([found[name] for name in names])


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
