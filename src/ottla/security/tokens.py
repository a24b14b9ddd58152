"""Delegation tokens (KIP-48): who one is for, how long it holds, and what it is proven by. Pure.

A token logs in by SCRAM: its id is the name, and its HMAC in Base64 the password. The HMAC is made
of the id and a key that all brokers have in their options: nobody keeps it.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.security.principal import Principal

HMAC_NAME = "sha512"
USER = "User"  # the kind of principal that may own and renew tokens by itself
INT64_MAX = 2**63 - 1
NAME_BYTES_MAX = 32_767  # of any string in Kafka's messages, and so in the feed


class Token(NamedTuple):
    """Times are milliseconds since the epoch."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int  # unless it is renewed
    max_ms: int  # renewed or not

    def concerns(self, principal: Principal) -> bool:
        """Whether the principal may see it without further rights."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def concerns_any(self, principals: frozenset[Principal]) -> bool:
        return (
            self.owner in principals
            or self.requester in principals
            or not principals.isdisjoint(self.renewers)
        )

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether the principal may renew it and let it expire; who only asked for it may not."""
        return principal == self.owner or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        return now_ms > min(self.expires_ms, self.max_ms)


Tokens = Mapping[str, Token]  # by id
NO_TOKENS: Tokens = {}


class TokenOptions(NamedTuple):
    """What a broker's options say about tokens; without a key there are none."""

    secret_key: str = ""
    lifetime_ms_max: int = 7 * 24 * 3_600_000
    expiry_ms: int = 24 * 3_600_000
    check_interval_ms: int = 3_600_000

    @property
    def enabled(self) -> bool:
        return bool(self.secret_key)

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self.secret_key.encode(), token_id.encode(), HMAC_NAME)

    def password_of(self, token_id: str) -> str:
        return base64.b64encode(self.hmac_of(token_id)).decode()

    def __repr__(self) -> str:
        return "TokenOptions([hidden])"


def is_too_long(principal: Principal) -> bool:
    """Whether no message could carry it: what a client sends that is not UTF-8 grows when it is
    read, as each such byte becomes the three of U+FFFD."""
    return len(principal.name.encode("utf-8", "replace")) > NAME_BYTES_MAX


def issued(
    options: TokenOptions,
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    lifetime_ms: int,
    now_ms: int,
) -> Token:
    """A new token; `lifetime_ms` of 0 or less: the longest that the options allow."""
    most_ms = options.lifetime_ms_max
    max_ms = later(now_ms, min(most_ms, lifetime_ms) if lifetime_ms > 0 else most_ms)
    expires_ms = min(max_ms, later(now_ms, options.expiry_ms))
    return Token(token_id, owner, requester, tuple(renewers), now_ms, expires_ms, max_ms)


def renewed(options: TokenOptions, token: Token, period_ms: int, now_ms: int) -> Token:
    """It holds for the period from now, or for that of the options if that is 0 or less."""
    period_ms = min(options.expiry_ms, period_ms) if period_ms > 0 else options.expiry_ms
    return token._replace(expires_ms=min(token.max_ms, later(now_ms, period_ms)))


def expiring(token: Token, period_ms: int, now_ms: int) -> Token | None:
    """It holds for the period from now; None: no longer, which a negative period asks for."""
    if period_ms < 0:
        return None
    return token._replace(expires_ms=min(token.max_ms, later(now_ms, period_ms)))


def later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)


def shown(
    tokens: Tokens,
    asks: Principal,
    owners: Sequence[Principal] | None,
    may_see: Callable[[Token], bool],
) -> list[Token]:
    """The tokens that `asks` may see; `owners` leaves those that concern one of them.

    `may_see` is asked about tokens that do not concern who asks.
    """
    wanted = None if owners is None else frozenset(owners)  # a request may name a million
    return [
        each
        for each in tokens.values()
        if (wanted is None or each.concerns_any(wanted)) and (each.concerns(asks) or may_see(each))
    ]


class TokenTable:
    """Finds the token that an HMAC proves; the HMAC of each is made once."""

    def __init__(self, options: TokenOptions) -> None:
        self.options = options
        self._tokens: Tokens = NO_TOKENS
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def find(self, tokens: Tokens, given: bytes) -> Token | None:
        if tokens is not self._tokens:
            self._follow(tokens)
        # Of equal bytes: how long a search takes tells nothing about bytes that are not equal, for
        # Python draws what it hashes them with.
        found = self._ids.get(given)
        return None if found is None else tokens[found]

    def _follow(self, tokens: Tokens) -> None:
        for gone in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(gone)]
        for new in tokens.keys() - self._hmacs.keys():
            made = self._hmacs[new] = self.options.hmac_of(new)
            self._ids[made] = new
        self._tokens = tokens
