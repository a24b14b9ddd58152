"""Delegation tokens (KIP-48): a login for a time, for whom one's own password is not to be given.

token = admin.create_delegation_token(renewers=["User:scheduler"])
Consumer(..., sasl_mechanism="SCRAM-SHA-512", sasl_plain_username=token.token_id,
         sasl_plain_password=token.password, sasl_token_auth=True)
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import IllegalArgumentError, UnsupportedVersionError, raise_for
from .base import AdminBase

USUAL = -1  # a period as the broker's options have it
NOW = -1  # a period after which a token expires


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Principals are written `User:alice`; times are milliseconds since the epoch."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str  # the owner's name where the broker is too old to tell
    renewers: Sequence[str]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int

    @property
    def password(self) -> str:
        """What logs in with the token's id."""
        return base64.b64encode(self.hmac).decode()


def principal_of(text: str) -> tuple[str, str]:
    """Kind and name of `User:alice`. Raises IllegalArgumentError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise IllegalArgumentError(f"{text!r} is no principal\nTry: User:{text or 'alice'}")
    return kind, name


def bytes_of(hmac: bytes | str) -> bytes:
    """Of a token's `hmac` or `password`. Raises IllegalArgumentError."""
    if not isinstance(hmac, str):
        return bytes(hmac)
    try:
        return base64.b64decode(hmac, validate=True)
    except (binascii.Error, ValueError):
        raise IllegalArgumentError("the HMAC of a token is bytes, or their Base64") from None


class Tokens(AdminBase):
    """The part of the admin that issues, renews, ends and shows delegation tokens."""

    def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """A token for who this client logs in as, or for another, which takes the right to it.

        None: it may live as long as the broker's `delegation.token.max.lifetime.ms`.
        """
        from ottla.wire.api.create_delegation_token import (
            CreatableRenewers,
            CreateDelegationTokenRequest,
        )

        wanted = [principal_of(each) for each in renewers]
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type=a, principal_name=b) for a, b in wanted],
            max_lifetime_ms=USUAL if max_lifetime_ms is None else max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = principal_of(owner)
        answer = self._ask(request, check=lambda got: raise_for(got.error_code))
        found = f"{answer.principal_type}:{answer.principal_name}"
        if owner is not None and found != owner:
            # Before version 3 requests have no place for it (KIP-373), and the token is one's own.
            raise UnsupportedVersionError(
                f"the broker is too old to create tokens for another: it made one for {found}"
            )
        asked = answer.token_requester_principal_type
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            found,
            f"{asked}:{answer.token_requester_principal_name}" if asked else found,
            [f"{kind}:{name}" for kind, name in wanted],
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    def renew_delegation_token(self, hmac: bytes | str, renew_period_ms: int | None = None) -> int:
        """When the token expires then: after the period, or the broker's usual one."""
        from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest

        request = RenewDelegationTokenRequest(
            hmac=bytes_of(hmac),
            renew_period_ms=USUAL if renew_period_ms is None else renew_period_ms,
        )
        answer = self._ask(request, check=lambda got: raise_for(got.error_code))
        return answer.expiry_timestamp_ms

    def expire_delegation_token(
        self, hmac: bytes | str, expiry_period_ms: int | None = None
    ) -> int:
        """When the token expires then: after the period; None, or a negative one: now."""
        from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest

        request = ExpireDelegationTokenRequest(
            hmac=bytes_of(hmac),
            expiry_time_period_ms=NOW if expiry_period_ms is None else expiry_period_ms,
        )
        answer = self._ask(request, check=lambda got: raise_for(got.error_code))
        return answer.expiry_timestamp_ms

    def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """The tokens that concern one of these principals, or anybody, as far as one may see them:
        one's own (as owner, renewer or who asked for it), and those that one has the right to."""
        from ottla.wire.api.describe_delegation_token import (
            DescribeDelegationTokenOwner,
            DescribeDelegationTokenRequest,
        )

        request = DescribeDelegationTokenRequest(owners=None)
        if owners is not None:
            request.owners = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(principal_of, owners)
            ]
        answer = self._ask(request, check=lambda got: raise_for(got.error_code))
        found = []
        for each in answer.tokens:
            owner = f"{each.principal_type}:{each.principal_name}"
            asked = each.token_requester_principal_type
            found.append(
                DelegationToken(
                    each.token_id,
                    bytes(each.hmac),
                    owner,
                    f"{asked}:{each.token_requester_principal_name}" if asked else owner,
                    [f"{one.principal_type}:{one.principal_name}" for one in each.renewers],
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                )
            )
        return found
