"""Handshakes on the loop: some steps a turn, in the order of arrival, and none for ever."""

from __future__ import annotations

import ssl
from itertools import pairwise

import pytest

from ottla.seams.clock import ManualClock
from ottla.seams.tls import HANDSHAKE_S_MAX, HANDSHAKE_STEPS_PER_TURN, HandshakeQueue, TlsStream


class SilentLine:
    """A connection on which nothing comes."""

    peer = peer_host = "10.0.0.1"

    def __init__(self) -> None:
        self.closed = False

    def recv_into(self, view: object) -> int | None:
        return None

    def send(self, buffers: list[bytes], more: bool = False) -> int:
        return sum(map(len, buffers))

    def on_readable(self, callback: object) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def on_writable(self, callback: object) -> None: ...

    def stop_writable(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Waiting:
    """Counts its steps."""

    def __init__(self, steps: list[int], number: int) -> None:
        self.steps, self.number = steps, number

    def handshake_step(self) -> None:
        self.steps.append(self.number)


def test_some_steps_a_turn() -> None:
    """Five hundred that want one at once take turns with everything else that the loop does."""
    clock, steps = ManualClock(), list[int]()
    queue = HandshakeQueue(clock)
    for number in range(500):
        queue.add(Waiting(steps, number))  # type: ignore[arg-type]
    between: list[int] = []

    def other_work() -> None:
        between.append(len(steps))
        if len(steps) < 500:
            clock.call_later(0, other_work)

    clock.call_later(0, other_work)
    clock.advance(0)
    assert steps == list(range(500))
    turns = [after - before for before, after in pairwise(between)]
    assert set(turns) == {HANDSHAKE_STEPS_PER_TURN}


def test_a_silent_one_is_ended() -> None:
    """After HANDSHAKE_S_MAX its owner gets an error from the next read, which says why."""
    clock = ManualClock()
    stream = TlsStream(
        SilentLine(),  # type: ignore[arg-type]
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        HandshakeQueue(clock),
    )
    woken: list[bool] = []
    stream.on_readable(lambda: woken.append(True))
    clock.advance(HANDSHAKE_S_MAX * 1000 - 1)
    assert stream.recv_into(bytearray(10)) is None
    assert not woken
    clock.advance(1)
    assert woken
    with pytest.raises(OSError, match="the TLS handshake took too long"):
        stream.recv_into(bytearray(10))
