"""What every token says, signed or not: who, until when, for what. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

TOKEN_PARTS = 3
Claims = Mapping[str, Any]


class BadToken(ValueError):
    """What is wrong with a token: for the broker's log, so it holds nothing of the token but names.

    `status` is what the client learns (RFC 6750).
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class Valid(NamedTuple):
    """A token that holds."""

    name: str
    expires_ms: int  # since the epoch


class Validator(Protocol):
    """Checks tokens."""

    def validate(self, token: str) -> Valid:
        """Raises BadToken."""
        ...


def part(text: str) -> bytes:
    """One part of a token. Raises BadToken."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise BadToken("a part of the token is not base64") from None


def object_of(data: bytes) -> Claims:
    """The object in JSON. Raises BadToken."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadToken("a part of the token is not JSON") from None
    if not isinstance(found, dict):
        raise BadToken("a part of the token is no object in JSON")
    return found


def parts_of(token: str) -> list[str]:
    parts = token.split(".")
    if len(parts) != TOKEN_PARTS:
        raise BadToken(f"a token has {TOKEN_PARTS} parts, and this one {len(parts)}")
    return parts


def text_in(claims: Claims, name: str) -> str:
    """A claim that must be there. Raises BadToken."""
    found = claims.get(name)
    if not isinstance(found, str) or not found.strip():
        raise BadToken(f"the claim {name} is missing, or is no text")
    return found


def seconds_in(claims: Claims, name: str) -> float | None:
    """A point in time; None: it is not there. Raises BadToken."""
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e12:
        raise BadToken(f"the claim {name} is no point in time")
    return float(found)


def scopes_in(claims: Claims, name: str) -> list[str]:
    """The scopes of a token, as one text or a list. Raises BadToken."""
    found = claims.get(name)
    if found is None:
        return []
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise BadToken(f"the claim {name} is neither text nor a list of texts")
    return [scope for text in texts for scope in text.split()]
