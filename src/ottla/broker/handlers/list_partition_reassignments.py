"""ListPartitionReassignments (KIP-455): what is under way, as the controller knows it."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarded_reassignments import list_response, listed_by
from ottla.cluster.requests import OngoingReassignment, Refusal
from ottla.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.errors import ErrorCode


async def handle(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    """The partitions asked for that are being reassigned; those that are not are left out."""
    ongoing = await context.broker.controller.list_reassignments(listed_by(request))
    return list_response((), ongoing) if isinstance(ongoing, Refusal) else list_response(ongoing)


def failure(
    request: ListPartitionReassignmentsRequest, error_code: ErrorCode, context: Context
) -> ListPartitionReassignmentsResponse:
    """One error for the request; what it asks for is named, as Kafka does it."""
    asked = [
        OngoingReassignment(topic.name, index, (), (), ())
        for topic in request.topics or ()
        for index in topic.partition_indexes
    ]
    return list_response(asked, Refusal(error_code, error_code.message))
