"""AlterPartitionReassignments (KIP-455): the controller moves partitions to other replicas."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarded_reassignments import alter_response, refused, wanted_by
from ottla.cluster.requests import Refusal
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.errors import ErrorCode


async def handle(
    request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """A result for each partition, once what can be begun or cancelled is."""
    if not request.topics:
        return AlterPartitionReassignmentsResponse()  # Kafka's controller is not asked
    allowed = request.allow_replication_factor_change
    outcomes = await context.broker.controller.alter_reassignments(wanted_by(request), allowed)
    if isinstance(outcomes, Refusal):
        return refused(request, outcomes)
    return alter_response(outcomes, allowed, [topic.name for topic in request.topics])


def failure(
    request: AlterPartitionReassignmentsRequest, error_code: ErrorCode, context: Context
) -> AlterPartitionReassignmentsResponse:
    """The same error for the request and every partition."""
    return refused(request, Refusal(error_code, error_code.message))
