"""Tokens that nobody has signed: for development, as Kafka's unsecured handlers have them.

Anybody can write one. A broker takes them only where its options name the unsecured handler.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from ottla.security.oauth.claims import (
    BadToken,
    Valid,
    object_of,
    part,
    parts_of,
    scopes_in,
    seconds_in,
    text_in,
)

VALIDATOR = "unsecuredValidator"
LOGIN = "unsecuredLogin"
STRING_CLAIM, NUMBER_CLAIM, LIST_CLAIM = (
    f"{LOGIN}{each}Claim_" for each in ("String", "Number", "List")
)
LIFETIME_S = 3_600


class UnsignedTokens:
    """Checks tokens of the algorithm none, by the options of a line of JAAS."""

    def __init__(self, options: Mapping[str, str], now_s: Callable[[], float]) -> None:
        """Raises ValueError for options that are not understood."""
        self._now_s = now_s
        self._name_claim = options.get(VALIDATOR + "PrincipalClaimName") or "sub"
        self._scope_claim = options.get(VALIDATOR + "ScopeClaimName") or "scope"
        self._required = (options.get(VALIDATOR + "RequiredScope") or "").split()
        skew = options.get(VALIDATOR + "AllowableClockSkewMs") or "0"
        if not skew.isdigit():
            raise ValueError(f"{VALIDATOR}AllowableClockSkewMs must be a number of milliseconds")
        self._skew_s = int(skew) / 1000

    def validate(self, token: str) -> Valid:
        header, payload, signature = parts_of(token)
        if object_of(part(header)).get("alg") != "none" or signature:
            raise BadToken("the token is signed, and this broker takes only unsigned ones")
        claims = object_of(part(payload))
        name = text_in(claims, self._name_claim)
        now_s = self._now_s()
        expires_s = seconds_in(claims, "exp")
        if expires_s is None:
            raise BadToken("the claim exp is missing")
        if expires_s <= now_s - self._skew_s:
            raise BadToken("the token has expired")
        issued_s = seconds_in(claims, "iat")
        # In whole milliseconds, as the clock has them: the token may be of this very moment.
        if issued_s is not None and int(issued_s * 1000) > round((now_s + self._skew_s) * 1000):
            raise BadToken("the token was issued in the future")
        if issued_s is not None and issued_s >= expires_s:
            raise BadToken("the token expires before it was issued")
        if not set(self._required) <= set(scopes_in(claims, self._scope_claim)):
            scope = " ".join(self._required)
            raise BadToken("the token has not the scope needed", "insufficient_scope", scope)
        return Valid(name, int(expires_s * 1000))


def unsigned_token(options: Mapping[str, str], now_s: float) -> tuple[str, float]:
    """A token with the claims of a line of JAAS, and when it expires. Raises ValueError."""
    name_claim = options.get(LOGIN + "PrincipalClaimName") or "sub"
    lifetime = options.get(LOGIN + "LifetimeSeconds") or str(LIFETIME_S)
    if not lifetime.isdigit():
        raise ValueError(f"{LOGIN}LifetimeSeconds must be a number of seconds")
    expires_s = now_s + int(lifetime)
    # Brokers count whole milliseconds, and a fraction more would lie in the future.
    claims: dict[str, object] = {"iat": int(now_s * 1000) / 1000, "exp": expires_s}
    for key, value in options.items():
        if key.startswith(STRING_CLAIM):
            claims[key.removeprefix(STRING_CLAIM)] = value
        elif key.startswith(NUMBER_CLAIM):
            claims[key.removeprefix(NUMBER_CLAIM)] = float(value)
        elif key.startswith(LIST_CLAIM) and value:
            # The first sign parts the items, as in "|one|two".
            claims[key.removeprefix(LIST_CLAIM)] = value[1:].split(value[0])
    if name_claim not in claims:
        raise ValueError(f"{STRING_CLAIM}{name_claim} is missing: who logs in")
    header, payload = (encoded(each) for each in ({"alg": "none"}, claims))
    return f"{header}.{payload}.", expires_s


def encoded(value: object) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
