"""The steps of SASL on one connection, without the connection."""

from __future__ import annotations

import pytest

from ottla.security.principal import user
from ottla.security.sasl.authenticator import Authenticator, State, UnsupportedMechanism
from ottla.security.sasl.mechanism import Authenticated, AuthenticationFailed, ServerSide
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram import ScramServer

PASSWORDS = {"alice": "secret", "bob": "secret"}


class Expiring:
    """A mechanism whose credential ends at the time that the token says."""

    def answer(self, token: bytes) -> tuple[bytes, Authenticated | None]:
        return b"", Authenticated(user("alice"), int(token))


class Now:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def authenticator(now: Now, lifetime_ms_max: int = 0) -> Authenticator:
    def scram() -> ServerSide:
        return ScramServer("SCRAM-SHA-256", {}.get, b"secret")

    mechanisms = {
        "PLAIN": lambda: PlainServer(PASSWORDS),
        "SCRAM-SHA-256": scram,
        "EXPIRING": Expiring,
    }
    return Authenticator(mechanisms, now, lambda: now.ms / 1000, lifetime_ms_max)


def test_a_session_without_an_end() -> None:
    """Without `connections.max.reauth.ms` a login holds as long as the connection."""
    steps = authenticator(Now())
    steps.handshake("PLAIN", headers=True)
    assert steps.authenticate(b"\0alice\0secret") == (b"", 0)
    assert steps.state is State.COMPLETE
    assert steps.principal == user("alice")
    assert not steps.may_repeat
    assert not steps.over


def test_an_unknown_mechanism_ends_it() -> None:
    """The client is given the names of those that are enabled."""
    steps = authenticator(Now())
    with pytest.raises(UnsupportedMechanism):
        steps.handshake("GSSAPI", headers=True)
    assert steps.state is State.FAILED
    assert steps.enabled == ["PLAIN", "SCRAM-SHA-256", "EXPIRING"]


def test_reasons_that_are_kept_from_the_peer() -> None:
    """What failed inside SCRAM is one sentence for all reasons."""
    steps = authenticator(Now())
    steps.handshake("SCRAM-SHA-256", headers=True)
    with pytest.raises(
        AuthenticationFailed,
        match="during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
    ):
        steps.authenticate(b"nonsense")
    assert steps.state is State.FAILED


def test_a_session_ends_with_the_limit_or_the_credential() -> None:
    """Whichever is earlier, and a new login extends it (KIP-368)."""
    now = Now()
    steps = authenticator(now, lifetime_ms_max=60_000)
    steps.handshake("EXPIRING", headers=True)
    assert steps.authenticate(b"%d" % (now.ms + 90_000)).session_lifetime_ms == 60_000
    now.ms += 10_000
    steps.handshake("EXPIRING", headers=True)
    assert steps.authenticate(b"%d" % (now.ms + 5_000)).session_lifetime_ms == 5_000
    now.ms += 5_000
    assert not steps.over
    now.ms += 1
    assert steps.over


def test_a_repeated_login_is_by_the_same_principal_and_mechanism() -> None:
    """And no sooner than a second after the one before it."""
    now = Now()
    steps = authenticator(now, lifetime_ms_max=60_000)
    steps.handshake("PLAIN", headers=True)
    steps.authenticate(b"\0alice\0secret")
    with pytest.raises(AuthenticationFailed, match="within one second"):
        steps.handshake("PLAIN", headers=True)

    steps = authenticator(now, lifetime_ms_max=60_000)
    steps.handshake("PLAIN", headers=True)
    steps.authenticate(b"\0alice\0secret")
    now.ms += 2_000
    with pytest.raises(AuthenticationFailed, match="not supported for re-authentication"):
        steps.handshake("SCRAM-SHA-256", headers=True)

    steps = authenticator(now, lifetime_ms_max=60_000)
    steps.handshake("PLAIN", headers=True)
    steps.authenticate(b"\0alice\0secret")
    now.ms += 2_000
    steps.handshake("PLAIN", headers=True)
    with pytest.raises(AuthenticationFailed, match="Cannot change principals"):
        steps.authenticate(b"\0bob\0secret")
    assert steps.state is State.FAILED
