"""RenewDelegationToken: a token holds longer, for its owner and its renewers."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.token_changes import change
from ottla.wire.api.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(
    request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse | Awaitable[RenewDelegationTokenResponse]:
    return change(request, context, RenewDelegationTokenResponse)
