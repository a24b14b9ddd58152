"""A throttled connection: its answer goes out, then nothing is read for the time (KIP-219)."""

from __future__ import annotations

from ottla.broker.dispatch import Peer
from ottla.seams.simulated.network import SimulatedStream
from ottla.server.limits import KiB, Limits
from ottla.wire.out import Out
from tests.server.fake import answer, frame
from tests.server.test_limits import Quiet


def throttling(rest: bytes, peer: Peer) -> Out:
    """Answers with the request's text, and asks for as many seconds of silence as it says."""
    assert peer.throttle is not None
    peer.throttle(int(rest))
    return answer(rest)


def quiet(limits: Limits | None = None) -> Quiet:
    made = Quiet(limits or Limits())
    made.script.rules[ord("t")] = throttling
    return made


def received(server: Quiet, stream: SimulatedStream) -> bytes:
    server.clock.advance(1)
    buffer = bytearray(64 * KiB)
    size = stream.recv_into(buffer)
    return bytes(buffer[: size or 0])


def test_the_answer_goes_out_and_then_nothing_is_read() -> None:
    """What came with the throttled request waits too; afterwards all goes on in its order."""
    server = quiet()
    client = server.connect()
    client.send([frame(b"t30") + frame(b"eone")])
    assert received(server, client) == answer(b"30")
    client.send([frame(b"etwo")])
    server.clock.advance(29_000)
    assert received(server, client) == b""
    assert server.script.seen == [b"t30"]
    server.clock.advance(1_000)
    assert received(server, client) == answer(b"one") + answer(b"two")
    server.server.close()


def test_a_later_answer_may_throttle_for_longer() -> None:
    """Of two that were under way the longer time holds."""
    server = quiet()
    client = server.connect()
    client.send([frame(b"pa") + frame(b"pb") + frame(b"pc")])
    server.clock.advance(1)
    [connection] = server.server.connections
    for rest, seconds in ((b"a", 10), (b"b", 30), (b"c", 5)):
        connection.throttle(seconds)
        server.script.settle(rest)
    assert received(server, client) == answer(b"a") + answer(b"b") + answer(b"c")
    client.send([frame(b"e!")])
    server.clock.advance(29_000)
    assert received(server, client) == b""
    server.clock.advance(1_000)
    assert received(server, client) == answer(b"!")
    server.server.close()


def test_nothing_is_kept_for_a_throttled_client() -> None:
    """What it sends stays in its own sockets: the server holds no more than before."""
    server = quiet()
    client = server.connect()
    client.send([frame(b"t60")])
    assert received(server, client) == answer(b"60")
    for _ in range(100):
        client.send([frame(b"e" + bytes(16 * KiB))])
        server.clock.advance(100)
    assert server.server.shared.held.used == 0
    assert server.script.seen == [b"t60"]
    server.server.close()


def test_a_throttled_client_is_not_idle() -> None:
    """However long: it may not be anything else."""
    server = quiet(Limits(connections_idle_ms_max=10_000))
    client = server.connect()
    client.send([frame(b"t60")])
    assert received(server, client) == answer(b"60")
    server.clock.advance(59_000)
    assert server.is_open(client)
    server.clock.advance(9_000)
    assert server.is_open(client)
    server.clock.advance(20_000)
    assert not server.is_open(client)
    server.server.close()


def test_a_throttled_connection_that_goes_is_forgotten() -> None:
    """Its time ends with it."""
    server = quiet()
    client = server.connect()
    client.send([frame(b"t60")])
    server.clock.advance(1)
    [connection] = server.server.connections
    connection.close("gone")
    connection.throttle(5)
    server.clock.advance(100_000)
    assert not server.server.connections
    server.server.close()
