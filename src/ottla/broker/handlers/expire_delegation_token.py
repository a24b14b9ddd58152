"""ExpireDelegationToken: a token ends earlier, for its owner and its renewers."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.forwarded_tokens import response_of, wanted_by
from ottla.broker.tokens import may_ask
from ottla.wire.api.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.wire.errors import ErrorCode

NO_TIME = -1  # Kafka's time of a request that is not allowed


def handle(
    request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse | Awaitable[ExpireDelegationTokenResponse]:
    if not may_ask(context.peer, context.broker.settings):
        return ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
        )
    return _expire(request, context)


async def _expire(
    request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse:
    wanted = wanted_by(request, context.peer.principal)
    response = response_of(wanted, await context.broker.controller.change_token(wanted))
    assert isinstance(response, ExpireDelegationTokenResponse)
    return response
