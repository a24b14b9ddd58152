"""Tokens that their issuer has signed (RFC 7519), checked by its public keys (RFC 7517).

Kafka's rules: a signature by one of the keys, `exp` and `iat` there, the issuer and one of the
audiences that are expected, and the clock of the issuer a little off at most. Signatures of shared
secrets are not taken: who may check could also sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ottla.security.oauth.claims import (
    BadToken,
    Claims,
    Valid,
    object_of,
    part,
    parts_of,
    scopes_in,
    seconds_in,
    text_in,
)

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "Ed25519",
)  # fmt: skip
KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}  # by the algorithm's first letters
KEYS_MAX = 1_000  # of one issuer
HEADER_BYTES_MAX = 8_192  # some carry a chain of certificates


class UnknownKey(BadToken):
    """The token names a key that is not among those known: they may have changed."""


class Expected(NamedTuple):
    """What must be in a token, besides a signature."""

    audiences: tuple[str, ...] = ()  # one of them; empty: any
    issuer: str | None = None
    name_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: float = 30.0


class Keys:
    """The public keys of an issuer."""

    def __init__(self, found: Iterable[Any]) -> None:
        self._keys = list(found)

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, kid: object, algorithm: str) -> list[Any]:
        """Those that may have signed: the one that is named, or any where none is. Raises
        UnknownKey."""
        kind = KEY_TYPES[algorithm[:2]]
        fit = [
            each
            for each in self._keys
            if each.key_type == kind and (kid is None or each.kid == kid) and signs(each, algorithm)
        ]
        if not fit:
            raise UnknownKey("the token names a key that is not among the issuer's")
        return fit


def signs(key: Any, algorithm: str) -> bool:
    use, own = key.get("use"), key.get("alg")
    return use in (None, "sig") and own in (None, algorithm)


def read_keys(data: bytes) -> Keys:
    """The keys of a JWKS document that signatures can be checked by. Raises ValueError."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        listed = object_of(data).get("keys")
    except BadToken:
        raise ValueError("it is not JSON") from None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ValueError("it has no list of keys")
    keys = []
    for each in listed:
        # A key of an unknown type or for other uses is not for us (RFC 7517, section 5).
        if isinstance(each, dict) and each.get("kty") in KEY_TYPES.values():
            try:
                keys.append(import_key(each))
            except (JoseError, ValueError, KeyError, TypeError):
                continue
    if not keys:
        raise ValueError("none of its keys is one to check signatures by")
    return Keys(keys)


class SignedTokens:
    """Checks tokens by the keys that are known at the time."""

    def __init__(
        self,
        keys: Callable[[], Keys],
        expected: Expected,
        now_s: Callable[[], float],
        on_unknown: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_unknown` is called when a token names a key that is not there."""
        self._on_unknown = on_unknown
        self._keys = keys
        self._expected = expected
        self._now_s = now_s

    def validate(self, token: str) -> Valid:
        header = object_of(part(parts_of(token)[0]))
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise BadToken("the token is not signed by a private key")
        try:
            keys = self._keys().candidates(header.get("kid"), algorithm)
        except UnknownKey:
            self._on_unknown()
            raise
        return self._checked(verified(token, algorithm, keys))

    def _checked(self, claims: Claims) -> Valid:
        expected, now_s = self._expected, self._now_s()
        expires_s, issued_s = (required(claims, each) for each in ("exp", "iat"))
        if expires_s + expected.skew_s <= now_s:
            raise BadToken("the token has expired")
        if issued_s - expected.skew_s > now_s:
            raise BadToken("the token was issued in the future")
        begins_s = seconds_in(claims, "nbf")
        if begins_s is not None and begins_s - expected.skew_s > now_s:
            raise BadToken("the token does not hold yet")
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise BadToken("the token is of another issuer")
        if expected.audiences:
            given = claims.get("aud")
            audiences = given if isinstance(given, list) else [given]
            if not any(each in expected.audiences for each in audiences):
                raise BadToken("the token is for another audience")
        scopes_in(claims, expected.scope_claim)
        return Valid(text_in(claims, expected.name_claim), int(expires_s * 1000))


def required(claims: Claims, name: str) -> float:
    found = seconds_in(claims, name)
    if found is None:
        raise BadToken(f"the claim {name} is missing")
    return found


def verified(token: str, algorithm: str, keys: list[Any]) -> Claims:
    """The claims of a token that one of the keys has signed. Raises BadToken."""
    from joserfc import jws
    from joserfc.errors import JoseError

    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = HEADER_BYTES_MAX
    for key in keys:
        try:
            found = jws.deserialize_compact(token, key, registry=registry)
        except (JoseError, ValueError, TypeError):
            continue
        return object_of(found.payload)
    raise BadToken("the signature of the token is wrong")
