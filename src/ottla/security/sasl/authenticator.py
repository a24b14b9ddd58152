"""SASL on one connection of the broker: which step comes next, and when a session ends.

    handshake(mechanism) -> authenticate(token) … -> complete

After `complete` the same begins again for re-authentication (KIP-368), by the same mechanism and
the same principal, at least a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.security.principal import Principal
from ottla.security.sasl.mechanism import (
    NO_EXPIRY,
    Authenticated,
    AuthenticationFailed,
    BadCredentials,
    ServerSide,
)

REAUTHENTICATION_S_MIN = 1.0  # between two logins of one connection
Mechanisms = Mapping[str, Callable[[], ServerSide]]


class State(Enum):
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authentication"
    COMPLETE = "complete"
    FAILED = "failed"


class UnsupportedMechanism(AuthenticationFailed):
    """The client chose a mechanism that is not enabled here."""


class Answer(NamedTuple):
    token: bytes
    session_lifetime_ms: int  # 0: without an end, or not complete yet


class Authenticator:
    __slots__ = (
        "_completed_at",
        "_ends_at",
        "_lifetime_ms_max",
        "_mechanism",
        "_mechanisms",
        "_monotonic",
        "_now_ms",
        "_server",
        "by_token",
        "headers",
        "principal",
        "state",
    )

    def __init__(
        self,
        mechanisms: Mechanisms,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        lifetime_ms_max: int = 0,
    ) -> None:
        """`lifetime_ms_max` is `connections.max.reauth.ms`; 0: sessions without an end."""
        self._mechanisms = mechanisms
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._lifetime_ms_max = lifetime_ms_max
        self._mechanism = ""
        self._server: ServerSide | None = None
        self._completed_at = 0.0  # monotonic seconds, as the next
        self._ends_at: float | None = None  # no request is answered later
        self.state = State.HANDSHAKE
        self.headers = True  # tokens come in SaslAuthenticate; False: bare, after a handshake in v0
        self.principal: Principal | None = None
        self.by_token = False  # whether the last login was by a delegation token

    @property
    def enabled(self) -> list[str]:
        return list(self._mechanisms)

    @property
    def may_repeat(self) -> bool:
        """Whether a client may log in again on this connection."""
        return self.state is State.COMPLETE and self.ends

    @property
    def ends(self) -> bool:
        """Whether the session holds for a time only."""
        return self._ends_at is not None

    @property
    def over(self) -> bool:
        """Whether the session has ended without a new login."""
        return self._ends_at is not None and self._monotonic() > self._ends_at

    @property
    def refused(self) -> ValueError | None:
        """Why the login under way will fail, where the client is to speak once more."""
        return getattr(self._server, "refused", None)

    def handshake(self, mechanism: str, *, headers: bool) -> None:
        """The client names a mechanism. Raises AuthenticationFailed."""
        if mechanism not in self._mechanisms:
            self._fail()
            raise UnsupportedMechanism(
                f"Unsupported SASL mechanism: {mechanism[:64]!r}, enabled are {self.enabled}"
            )
        if self.state is State.COMPLETE:
            self._check_repeated(mechanism)
        self._mechanism = mechanism
        self._server = self._mechanisms[mechanism]()
        self.headers = headers
        self.state = State.AUTHENTICATE

    def _check_repeated(self, mechanism: str) -> None:
        if mechanism != self._mechanism:
            self._fail()
            raise AuthenticationFailed(
                f"SASL mechanism {mechanism!r} requested by client is not supported for "
                f"re-authentication of mechanism {self._mechanism!r}"
            )
        if self._monotonic() - self._completed_at < REAUTHENTICATION_S_MIN:
            self._fail()
            raise AuthenticationFailed(
                "Cannot attempt a re-authentication within one second of the login before it"
            )

    def authenticate(self, token: bytes) -> Answer:
        """The answer to a token. Raises AuthenticationFailed, whose text the client may read; after
        it the connection must end."""
        server = self._server
        assert server is not None
        try:
            challenge, who = server.answer(token)
        except BadCredentials as error:
            self._fail()
            again = "re-authentication" if self.principal is not None else "authentication"
            raise AuthenticationFailed(
                f"Authentication failed during {again} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            ) from error
        except AuthenticationFailed:
            self._fail()
            raise
        if who is None:
            return Answer(challenge, 0)
        return Answer(challenge, self._complete(who))

    def _complete(self, who: Authenticated) -> int:
        """The session's lifetime."""
        if self.principal is not None and who.principal != self.principal:
            self._fail()
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {self.principal} to "
                f"{who.principal}"
            )
        self.principal = who.principal
        self.by_token = who.by_token
        self.state = State.COMPLETE
        self._server = None
        self._completed_at = self._monotonic()
        lifetimes_ms = [self._lifetime_ms_max] if self._lifetime_ms_max > 0 else []
        if who.expires_ms != NO_EXPIRY:
            lifetimes_ms.append(max(who.expires_ms - self._now_ms(), 0))
        if not lifetimes_ms:
            self._ends_at = None
            return 0
        lifetime_ms = min(lifetimes_ms)
        self._ends_at = self._completed_at + lifetime_ms / 1000
        return lifetime_ms

    def _fail(self) -> None:
        self.state = State.FAILED
        self._server = None
