"""RegisterBroker: a broker that has started registers with the controller."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.register_broker import RegisterBrokerRequest, RegisterBrokerResponse
from ottla.wire.errors import ErrorCode


def handle(request: RegisterBrokerRequest, context: Context) -> RegisterBrokerResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return RegisterBrokerResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.answer(service.register_broker(request))
