"""What every mechanism of SASL offers, to the broker and to the client."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.security.principal import Principal

NO_EXPIRY = -1  # as `Authenticated.expires_ms`


class AuthenticationFailed(ValueError):
    """The text is for the peer, so it holds nothing that the peer must not know."""


class BadCredentials(AuthenticationFailed):
    """For the reasons that the peer is not given: it gets one sentence for all of them."""


class Authenticated(NamedTuple):
    principal: Principal
    expires_ms: int = NO_EXPIRY  # since the epoch: when the credential ends, as a token's
    by_token: bool = False  # a delegation token (KIP-48)


class ServerSide(Protocol):
    """One authentication at the broker."""

    def answer(self, token: bytes) -> tuple[bytes, Authenticated | None]:
        """The challenge for a client's token, and who it is once that is proven.

        Raises AuthenticationFailed.
        """
        ...


class ClientSide(Protocol):
    """One authentication at the client."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next token; None when the mechanism has ended. Raises AuthenticationFailed, also
        when it is the server that did not prove itself."""
        ...
