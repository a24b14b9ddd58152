"""UnregisterBroker: the controller forgets a broker that does not come back."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    refusal = await context.broker.controller.unregister_broker(request.broker_id)
    if refusal is None:
        return UnregisterBrokerResponse(error_message=None)
    return UnregisterBrokerResponse(
        error_code=refusal.error_code, error_message=refusal.error_message
    )
