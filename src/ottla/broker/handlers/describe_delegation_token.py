"""DescribeDelegationToken: the tokens that concern who asks, and those that it may see besides."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.tokens import may_ask, token_options
from ottla.security.acls import Operation, ResourceType
from ottla.security.principal import Principal
from ottla.security.tokens import Token, TokenOptions, shown
from ottla.wire.api.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """As this broker knows them; `owners` of null: those of everybody."""
    broker, rights = context.broker, context.rights
    if not may_ask(context.peer, broker.settings):
        return DescribeDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )
    options = token_options(broker.settings)
    if not options.enabled:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]

    def may_see(token: Token) -> bool:
        return rights is None or (
            rights.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
            or rights.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        )

    found = shown(broker.image.tokens, context.peer.principal, owners, may_see)
    return DescribeDelegationTokenResponse(tokens=[described(options, each) for each in found])


def described(options: TokenOptions, token: Token) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=options.hmac_of(token.id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )
