"""UnregisterBroker: the controller forgets a broker that does not come back.

Of a live broker it is refused: its partitions would have no replica there, while it serves them.
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.errors import ErrorCode


async def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    known = context.broker.image.brokers.get(request.broker_id)
    if known is not None and known.active:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {request.broker_id} is live: stop it first",
        )
    refusal = await context.broker.controller.unregister_broker(request.broker_id)
    if refusal is None:
        return UnregisterBrokerResponse(error_message=None)
    return UnregisterBrokerResponse(
        error_code=refusal.error_code, error_message=refusal.error_message
    )
