"""SASL/PLAIN (RFC 4616): name and password in one token."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ottla.security.principal import user
from ottla.security.sasl.mechanism import Authenticated, AuthenticationFailed

MECHANISM = "PLAIN"
USER_PREFIX = "user_"  # options of the login module: user_alice="secret"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Passwords by name, of the login module's options."""
    return {
        name.removeprefix(USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(USER_PREFIX)
    }


class PlainServer:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def answer(self, token: bytes) -> tuple[bytes, Authenticated | None]:
        try:
            parts = str(token, "utf-8").split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authorization_id, name, password = parts
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        expected = self._passwords.get(name)
        # For an unknown name as much is compared as for a known one, whatever their lengths.
        same = hmac.compare_digest(digest(expected or ""), digest(password))
        if not same or not expected:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return b"", Authenticated(user(name))


def digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


class PlainClient:
    def __init__(self, name: str, password: str) -> None:
        self._token = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        return None
