"""RenewDelegationToken and ExpireDelegationToken, which differ in their messages alone."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from ottla.broker.context import Context
from ottla.broker.forwarded_tokens import response_of, wanted_by
from ottla.broker.tokens import may_ask
from ottla.wire.api.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.wire.api.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.errors import ErrorCode

NO_TIME = -1  # Kafka's time of a request that is not allowed

Request = RenewDelegationTokenRequest | ExpireDelegationTokenRequest
ResponseT = TypeVar("ResponseT", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


def change(
    request: Request, context: Context, response: type[ResponseT]
) -> ResponseT | Awaitable[ResponseT]:
    """The time until which a token holds is another, for its owner and its renewers."""
    if not may_ask(context.peer, context.broker.settings):
        return response(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
        )
    return _change(request, context, response)


async def _change(request: Request, context: Context, response: type[ResponseT]) -> ResponseT:
    wanted = wanted_by(request, context.peer.principal)
    answer = response_of(wanted, await context.broker.controller.change_token(wanted))
    assert isinstance(answer, response)
    return answer
