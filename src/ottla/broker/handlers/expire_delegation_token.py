"""ExpireDelegationToken: a token ends earlier, for its owner and its renewers."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.token_changes import change
from ottla.wire.api.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse | Awaitable[ExpireDelegationTokenResponse]:
    return change(request, context, ExpireDelegationTokenResponse)
