"""What an ID token of an OpenID Connect issuer says, once everything about it has been checked.

OpenID Connect Core, 3.1.3.7. Decided from the token, the keys and the time alone; who fetches them
is `issuer.py`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..config.options import OidcOptions
from .names import Refused, check_user_name
from .permissions import Grant, Role

# Signed by a private key: with the client's secret (HS256) whoever knows it could make tokens.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "Ed25519",
)  # fmt: skip
KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}  # by the algorithm's first letters
KEYS_MAX = 1_000
TOKEN_CHARACTERS_MAX = 256 * 1024
SKEW_S = 60  # how far the issuer's clock may be off
GROUPS_MAX = 10_000

Claims = Mapping[str, Any]


class BadToken(Exception):
    """It proves nothing; why, in a sentence without its contents."""


class UnknownKey(BadToken):
    """It names a key that is not among those known: they may have changed."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who logged in at the issuer."""

    name: str
    subject: str  # never given to another one by the same issuer
    grants: tuple[Grant, ...]  # none: may not come in

    def source(self, issuer: str) -> str:
        """What the user is kept with: another of the same name has another one."""
        told = json.dumps([issuer, self.subject])
        return f"oidc:{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def read_keys(document: object) -> list[Any]:
    """The keys of a JWKS document that signatures can be checked by. Raises BadToken."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise BadToken("The issuer's keys cannot be read.")
    keys = []
    for each in listed:
        # A key of an unknown type or for other uses is not for us (RFC 7517, section 5).
        if isinstance(each, dict) and each.get("kty") in KEY_TYPES.values():
            try:
                keys.append(import_key(each))
            except (JoseError, ValueError, KeyError, TypeError):
                continue
    return keys


def claims_of(token: object, keys: Iterable[Any]) -> Claims:
    """What the issuer has signed. Raises BadToken, UnknownKey."""
    from joserfc import jws
    from joserfc.errors import JoseError

    if not isinstance(token, str) or len(token) > TOKEN_CHARACTERS_MAX:
        raise BadToken("The issuer sent no ID token.")
    header = header_of(token)
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise BadToken("The ID token is not signed by a private key.")
    fit = [each for each in keys if may_sign(each, algorithm) and kid in (None, each.kid)]
    if not fit:
        raise UnknownKey("The ID token names a key that is not among the issuer's.")
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    for key in fit:
        try:
            found = jws.deserialize_compact(token, key, registry=registry)
            claims = json.loads(found.payload)
        except (JoseError, ValueError, TypeError, RecursionError):
            continue
        if isinstance(claims, dict):
            return claims
    raise BadToken("The signature of the ID token is wrong.")


def header_of(token: str) -> Claims:
    encoded = token.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise BadToken("The ID token cannot be read.")
    return header


def may_sign(key: Any, algorithm: str) -> bool:
    fits = key.get("use") in (None, "sig") and key.get("alg") in (None, algorithm)
    return fits and key.key_type == KEY_TYPES[algorithm[:2]]


def check_claims(claims: Claims, options: OidcOptions, nonce: str, now_s: float) -> None:
    """Raises BadToken unless it was made for this console, this login and this moment."""
    if claims.get("iss") != options.issuer:
        raise BadToken("The ID token is of another issuer.")
    given = claims.get("aud")
    audiences = given if isinstance(given, list) else [given]
    if options.client_id not in audiences:
        raise BadToken("The ID token is for another client.")
    party = claims.get("azp")
    if party != options.client_id and (party is not None or len(audiences) > 1):
        raise BadToken("The ID token was made for another client.")
    expires_s, issued_s = seconds(claims, "exp"), seconds(claims, "iat")
    begins_s = seconds(claims, "nbf") if "nbf" in claims else issued_s
    if expires_s + SKEW_S <= now_s:
        raise BadToken("The ID token has expired.")
    if max(issued_s, begins_s) - SKEW_S > now_s:
        raise BadToken("The ID token is of the future: the clocks here and there differ.")
    sent = claims.get("nonce")
    if not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), nonce.encode()):
        raise BadToken("The ID token is of another login.")


def seconds(claims: Claims, name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise BadToken(f"The ID token has no {name}.")
    return value


def person_of(claims: Claims, options: OidcOptions) -> Person:
    """Raises BadToken, and Refused where the name can be no user's."""
    subject, name = claims.get("sub"), claims.get(options.name_claim)
    if not isinstance(subject, str) or not subject:
        raise BadToken("The ID token has no sub.")
    if not isinstance(name, str):
        raise Refused(f"The ID token has no {options.name_claim}, the claim of names.")
    check_user_name(name)
    return Person(name, subject, grants_of(claims, options))


def grants_of(claims: Claims, options: OidcOptions) -> tuple[Grant, ...]:
    """Those of the file whose values are in the claim: of that name, or at that path of names."""
    found: object = claims.get(options.roles_claim)
    if found is None:
        found = claims
        for name in options.roles_claim.split("."):
            found = found.get(name) if isinstance(found, dict) else None
    values = found if isinstance(found, list) else [found]
    theirs = {each for each in values[:GROUPS_MAX] if isinstance(each, str)}
    return tuple(
        Grant(Role(each.role), each.clusters, each.topics)
        for each in options.roles
        if each.value in theirs
    )
