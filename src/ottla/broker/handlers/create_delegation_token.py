"""CreateDelegationToken: a token for who asks, or for another whose tokens it may create."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.forwarded_tokens import new_token, owner_of, response_of
from ottla.broker.tokens import may_ask
from ottla.cluster import token_writes
from ottla.cluster.requests import NewToken, TokenOutcome
from ottla.security.acls import Operation, ResourceType
from ottla.security.principal import ANONYMOUS, Principal
from ottla.security.tokens import USER
from ottla.wire.api.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse | Awaitable[CreateDelegationTokenResponse]:
    requester, rights = context.peer.principal, context.rights
    try:
        owner = owner_of(request, requester)
    except ValueError:
        return failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
    if not may_ask(context.peer, context.broker.settings):
        return refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not (
        rights is None or rights.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
    ):
        return refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    if any(each.principal_type != USER for each in request.renewers):
        return refused(ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester)
    wanted = new_token(request, requester)
    error = token_writes.wrong_with(wanted)
    if error:
        # What is too long for a message is too long for the answer.
        return failure(request, error, context)
    return _create(wanted, context)


async def _create(wanted: NewToken, context: Context) -> CreateDelegationTokenResponse:
    response = response_of(wanted, await context.broker.controller.change_token(wanted))
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def refused(
    error_code: ErrorCode, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    response = response_of(NewToken(owner, requester), TokenOutcome(error_code))
    assert isinstance(response, CreateDelegationTokenResponse)
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
    return response


def failure(
    request: CreateDelegationTokenRequest, error_code: ErrorCode, context: Context
) -> CreateDelegationTokenResponse:
    """Without names, as in Kafka."""
    return refused(error_code, ANONYMOUS, ANONYMOUS)
