"""Delegation tokens in Kafka's messages: what is asked for, and what came of it. Pure.

Who asks is no part of the messages: it travels beside them, in `ForwardRequest.principal`.
"""

from __future__ import annotations

from ottla.cluster.requests import (
    NewToken,
    TokenExpiry,
    TokenOutcome,
    TokenRenewal,
    TokenRequest,
)
from ottla.security.principal import Principal
from ottla.security.tokens import Token
from ottla.wire.api.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.api.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.wire.api.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.errors import ErrorCode

AnyRequest = (
    CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest
)
AnyResponse = (
    CreateDelegationTokenResponse | RenewDelegationTokenResponse | ExpireDelegationTokenResponse
)


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Whom the token is for: who asks for it unless another is named (KIP-373).

    Raises ValueError where the other has no kind.
    """
    if not request.owner_principal_name:
        return requester
    if request.owner_principal_type is None:
        raise ValueError("an owner's name without its kind")
    return Principal(request.owner_principal_type, request.owner_principal_name)


def new_token(request: CreateDelegationTokenRequest, requester: Principal) -> NewToken:
    renewers = tuple(
        Principal(each.principal_type, each.principal_name) for each in request.renewers
    )
    return NewToken(owner_of(request, requester), requester, renewers, request.max_lifetime_ms)


def wanted_by(request: AnyRequest, requester: Principal) -> TokenRequest:
    match request:
        case CreateDelegationTokenRequest():
            return new_token(request, requester)
        case RenewDelegationTokenRequest():
            return TokenRenewal(requester, bytes(request.hmac), request.renew_period_ms)
        case ExpireDelegationTokenRequest():
            return TokenExpiry(requester, bytes(request.hmac), request.expiry_time_period_ms)


def request_of(wanted: TokenRequest) -> AnyRequest:
    match wanted:
        case NewToken():
            return CreateDelegationTokenRequest(
                owner_principal_type=wanted.owner.kind,
                owner_principal_name=wanted.owner.name,
                renewers=[
                    CreatableRenewers(principal_type=each.kind, principal_name=each.name)
                    for each in wanted.renewers
                ],
                max_lifetime_ms=wanted.lifetime_ms,
            )
        case TokenRenewal():
            return RenewDelegationTokenRequest(hmac=wanted.hmac, renew_period_ms=wanted.period_ms)
        case TokenExpiry():
            return ExpireDelegationTokenRequest(
                hmac=wanted.hmac, expiry_time_period_ms=wanted.period_ms
            )


def response_of(wanted: TokenRequest, outcome: TokenOutcome) -> AnyResponse:
    code, token = outcome.error_code, outcome.token
    if isinstance(wanted, NewToken):
        response = CreateDelegationTokenResponse(
            error_code=code,
            principal_type=wanted.owner.kind,
            principal_name=wanted.owner.name,
            token_requester_principal_type=wanted.requester.kind,
            token_requester_principal_name=wanted.requester.name,
        )
        if token is not None:
            response.issue_timestamp_ms = token.issued_ms
            response.expiry_timestamp_ms = token.expires_ms
            response.max_timestamp_ms = token.max_ms
            response.token_id = token.id
            response.hmac = outcome.hmac
        return response
    expires_ms = 0 if token is None else token.expires_ms
    if isinstance(wanted, TokenRenewal):
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)


def outcome_of(wanted: TokenRequest, response: AnyResponse) -> TokenOutcome:
    """The token as far as the response shows it: what its own response needs."""
    code = ErrorCode(response.error_code)
    if code:
        return TokenOutcome(code)
    if isinstance(response, CreateDelegationTokenResponse) and isinstance(wanted, NewToken):
        token = Token(
            response.token_id,
            wanted.owner,
            wanted.requester,
            tuple(wanted.renewers),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )
        return TokenOutcome(token=token, hmac=bytes(response.hmac))
    expires_ms, who = response.expiry_timestamp_ms, wanted.requester
    return TokenOutcome(token=Token("", who, who, (), 0, expires_ms, expires_ms))
