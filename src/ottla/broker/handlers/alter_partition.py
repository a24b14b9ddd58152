"""AlterPartition (KIP-497): the ISRs that a leader proposes to the controller."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.errors import ErrorCode


def handle(request: AlterPartitionRequest, context: Context) -> AlterPartitionResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.answer(service.alter_partition(request, context.api_version))
