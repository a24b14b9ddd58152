"""ControlledShutdown: a broker wants to stop, and others shall lead what it leads."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: ControlledShutdownRequest, context: Context
) -> ControlledShutdownResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.answer(service.controlled_shutdown(request))
