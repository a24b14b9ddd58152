"""AllocateProducerIds (KIP-730): a block of producer ids for a broker."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: AllocateProducerIdsRequest, context: Context
) -> AllocateProducerIdsResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.answer(service.allocate_producer_ids(request))
