"""Forward: an admin request that another broker received, for the controller."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.forward import ForwardRequest, ForwardResponse
from ottla.wire.errors import ErrorCode


def handle(request: ForwardRequest, context: Context) -> ForwardResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.answer(service.carry_out(request))
