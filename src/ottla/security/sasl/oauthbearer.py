"""SASL/OAUTHBEARER (RFC 7628) as Kafka uses it: a bearer token in the first message.

What is wrong with a token is for the broker's log. The client gets a status in JSON, answers
with one control-A, and then the login has failed.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from ottla.security.oauth.claims import BadToken, Validator
from ottla.security.principal import user
from ottla.security.sasl.mechanism import Authenticated, AuthenticationFailed, BadCredentials

log = logging.getLogger(__name__)

MECHANISM = "OAUTHBEARER"
SEPARATOR = "\x01"
_FIRST = re.compile(
    r"n,(?:a=(?P<authorization>(?:[^=,\x00\x80-\uffff]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)
EXTENSION_NAME = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthBearerServer:
    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self.refused: BadToken | None = None
        self._told = ""

    def answer(self, token: bytes) -> tuple[bytes, Authenticated | None]:
        if self.refused is not None:
            # Whatever it is that the client says now.
            raise AuthenticationFailed(self._told) from self.refused
        authorization, bearer = first_message(token)
        try:
            valid = self._validator.validate(bearer)
        except BadToken as error:
            self.refused = error
            self._told = told(error)
            return self._told.encode(), None
        if authorization and authorization != valid.name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id "
                f"({authorization}) that is different from the token's principal name "
                f"({valid.name})"
            )
        return b"", Authenticated(user(valid.name), valid.expires_ms)


def first_message(message: bytes) -> tuple[str, str]:
    """The authorization id, which may be empty, and the token. Raises BadCredentials."""
    try:
        found = _FIRST.fullmatch(str(message, "utf-8"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise BadCredentials("Invalid OAUTHBEARER client first message")
    pairs = dict(each.split("=", 1) for each in found["pairs"].split(SEPARATOR) if each)
    auth = pairs.get("auth")
    if auth is None:
        raise BadCredentials("Invalid OAUTHBEARER client first message: 'auth' not specified")
    bearer = _AUTH.fullmatch(auth)
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise BadCredentials("Invalid OAUTHBEARER client first message: 'auth' is no bearer token")
    authorization = (found["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization, bearer["token"]


def told(error: BadToken) -> str:
    """What the client learns, in Kafka's form."""
    fields = {"status": error.status}
    if error.scope:
        fields["scope"] = error.scope
    return json.dumps(fields, separators=(",", ":"))


class OAuthBearerClient:
    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Raises AuthenticationFailed for a token or extensions that cannot be sent."""
        if not _AUTH.fullmatch(f"Bearer {token}"):
            raise AuthenticationFailed("the token is not of the letters that a token has")
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        for name, value in pairs.items():
            if not EXTENSION_NAME.fullmatch(name) or not EXTENSION_VALUE.fullmatch(value):
                raise AuthenticationFailed(f"the extension {name!r} cannot be sent")
        listed = SEPARATOR.join(f"{name}={value}" for name, value in pairs.items())
        self._first = f"n,,{SEPARATOR}{listed}{SEPARATOR}{SEPARATOR}".encode()

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        # The broker has told what is wrong, and says it again when the login fails.
        return SEPARATOR.encode() if challenge else None
