"""Logins of a connection of the broker, by a clock of the test's own."""

from __future__ import annotations

import pytest

from ottla.broker.context import Peer, PeerError, Pending
from ottla.broker.login import Login
from ottla.seams.clock import ManualClock
from ottla.security.principal import ANONYMOUS, user
from ottla.security.sasl.authenticator import Authenticator
from ottla.security.sasl.plain import PlainServer
from ottla.wire.errors import ErrorCode


class Connected:
    def __init__(self, lifetime_ms_max: int = 0) -> None:
        self.clock = ManualClock()
        self.ended: list[str] = []
        self.peer = Peer(disconnect=self.ended.append)
        mechanisms = {"PLAIN": lambda: PlainServer({"alice": "secret"})}
        steps = Authenticator(mechanisms, self.clock.now_ms, self.clock.monotonic, lifetime_ms_max)
        self.login = Login(self.peer, steps, self.clock, delay_ms=100, token_bytes_max=1000)
        self.peer.login = self.login


def request(key: int) -> memoryview:
    return memoryview(key.to_bytes(2, "big") + bytes(8))


def test_a_guess_waits_for_its_answer() -> None:
    """For connection.failed.authentication.delay.ms; nothing else is read meanwhile, and then the
    connection ends."""
    it = Connected()
    it.login.handshake("PLAIN", 1)
    answer = it.login.authenticate(b"\0alice\0wrong")
    assert isinstance(answer, Pending)
    assert answer.exclusive
    it.clock.advance(99)
    assert not answer.done
    it.clock.advance(1)
    assert answer.done
    assert it.ended == [
        "failed authentication: Authentication failed: Invalid username or password"
    ]
    assert it.peer.principal is ANONYMOUS


def test_a_guess_whose_connection_is_gone_ends_nothing() -> None:
    """The answer was given up with the connection."""
    it = Connected()
    it.login.handshake("PLAIN", 1)
    answer = it.login.authenticate(b"\0alice\0wrong")
    assert isinstance(answer, Pending)
    answer.cancel()
    it.clock.advance(100)
    assert it.ended == []


def test_what_may_be_asked_before_and_after() -> None:
    """ApiVersions and the handshake, then tokens; everything after the login."""
    it = Connected()
    assert it.login.admit(request(18)) is None
    for key in (3, 36):
        with pytest.raises(PeerError, match="before the login was complete"):
            it.login.admit(request(key))
    it.login.handshake("PLAIN", 1)
    for key in (3, 17, 18):
        with pytest.raises(PeerError, match="before the login was complete"):
            it.login.admit(request(key))
    assert it.login.admit(request(36)) is None
    it.login.authenticate(b"\0alice\0secret")
    assert it.peer.principal == user("alice")
    assert it.peer.login is None  # nothing is checked any more


def test_a_session_with_an_end_goes_on_being_checked() -> None:
    """After its end only a new handshake is admitted."""
    it = Connected(lifetime_ms_max=5_000)
    it.login.handshake("PLAIN", 1)
    it.login.authenticate(b"\0alice\0secret")
    assert it.peer.login is it.login
    assert it.login.admit(request(3)) is None
    it.clock.advance(5_001)
    with pytest.raises(PeerError, match="the session of User:alice has expired"):
        it.login.admit(request(3))
    assert it.login.admit(request(17)) is None
    assert it.login.handshake("PLAIN", 1).error_code == ErrorCode.NONE


def test_a_frame_without_a_key() -> None:
    """Two bytes are needed to know what is asked."""
    with pytest.raises(PeerError, match="key -1"):
        Connected().login.admit(memoryview(b"\0"))
