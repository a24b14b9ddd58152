"""RenewDelegationToken: a token holds longer, for its owner and its renewers."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.forwarded_tokens import response_of, wanted_by
from ottla.broker.tokens import may_ask
from ottla.wire.api.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.errors import ErrorCode

NO_TIME = -1  # Kafka's time of a request that is not allowed


def handle(
    request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse | Awaitable[RenewDelegationTokenResponse]:
    if not may_ask(context.peer, context.broker.settings):
        return RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
        )
    return _renew(request, context)


async def _renew(
    request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse:
    wanted = wanted_by(request, context.peer.principal)
    response = response_of(wanted, await context.broker.controller.change_token(wanted))
    assert isinstance(response, RenewDelegationTokenResponse)
    return response
