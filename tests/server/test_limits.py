"""At each limit: what is just within it is served, what is beyond waits, closes or is refused."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping

import pytest

from ottla.seams.clock import ManualClock
from ottla.seams.simulated.network import SimulatedNetwork, SimulatedStream
from ottla.server.limits import (
    CONNECTIONS_IDLE_MS_MAX,
    FRAME_BYTES_MAX,
    HELD_BYTES_MAX,
    REQUESTS_PER_TURN,
    SCRATCH_BYTES,
    STALLED_S,
    KiB,
    Limits,
    MiB,
    connections_that_fit,
)
from ottla.server.listener import Endpoint
from ottla.server.server import NewLogin, Server
from ottla.wire.out import Out
from tests.server.fake import Script, answer, frame
from tests.server.harness import ServerHarness, running_server


def run(limits: Limits, scenario: Callable[[ServerHarness], Awaitable[object]]) -> None:
    async def inside() -> None:
        async with running_server(limits) as running:
            await scenario(running)

    asyncio.run(inside())


def test_the_defaults_are_kafkas() -> None:
    """socket.request.max.bytes is 100 MiB, connections.max.idle.ms ten minutes, no other bound."""
    limits = Limits()
    assert limits.frame_bytes_max == FRAME_BYTES_MAX == 104_857_600
    assert limits.connections_idle_ms_max == CONNECTIONS_IDLE_MS_MAX == 600_000
    assert limits.connections_max == limits.connections_per_ip_max == 2**31 - 1
    assert limits.held_bytes_max == HELD_BYTES_MAX


def test_connections_leave_descriptors_for_the_log() -> None:
    """Half of the process's descriptors are for files, some for other things, the rest for
    connections; at least one connection is always accepted.
    """
    assert connections_that_fit(1_024, 512) == 448
    assert connections_that_fit(256, 128) == 96
    assert connections_that_fit(20, 16) == 2
    assert connections_that_fit(16, 16) == 1
    assert connections_that_fit(1 << 20, 1 << 19) == (1 << 19) - 64


@pytest.mark.parametrize("limit", [100, SCRATCH_BYTES - 4, SCRATCH_BYTES, 1_000_000])
def test_the_largest_request(limit: int, caplog: pytest.LogCaptureFixture) -> None:
    """A request of socket.request.max.bytes is served; one byte more closes its connection."""

    async def scenario(harness: ServerHarness) -> None:
        good, bad = await harness.client(), await harness.client()
        await good.ask(b"n" + bytes(limit - 1), b"edone")
        assert await good.answers(1) == [b"done"]
        await bad.ask(b"n" + bytes(limit))
        assert await bad.ended()
        await good.ask(b"estill here")
        assert await good.answers(1) == [b"still here"]
        assert len(harness.script.seen) == 3

    with caplog.at_level(logging.INFO, "ottla"):
        run(Limits(frame_bytes_max=limit), scenario)
    assert len(caplog.records) == 1
    assert f"socket.request.max.bytes is {limit}" in caplog.text


def test_requests_without_an_answer() -> None:
    """At queued.max.requests a connection is not read; each answer lets one more in."""

    async def scenario(harness: ServerHarness) -> None:
        client, other = await harness.client(), await harness.client()
        await client.ask(*(b"p%d" % n for n in range(15)))
        await harness.until(lambda: len(harness.script.seen) == 10)
        await other.ask(b"eother")
        assert await other.answers(1) == [b"other"]
        assert len(harness.script.seen) == 11
        harness.script.settle(b"0")
        assert await client.answers(1) == [b"0"]
        await harness.until(lambda: len(harness.script.seen) == 12)
        for n in range(1, 15):
            await harness.until(lambda: b"%d" % n in harness.script.pending)  # noqa: B023
            harness.script.settle(b"%d" % n)
        assert await client.answers(14) == [b"%d" % n for n in range(1, 15)]

    run(Limits(unanswered_max=10), scenario)


def test_bytes_held_for_one_connection() -> None:
    """A client that takes no answers is not read any further, and served on when it does."""
    big = bytes(512 * KiB)

    async def scenario(harness: ServerHarness) -> None:
        harness.script.rules[ord("g")] = lambda rest, peer: answer(big)
        client, other = await harness.client(), await harness.client()
        sending = asyncio.create_task(client.ask(*[b"g"] * 200))
        await harness.until(lambda: harness.server.shared.held.used > 2 * MiB)
        await asyncio.sleep(0.05)
        handled = len(harness.script.seen)
        assert handled < 100
        assert harness.server.shared.held.used < 4 * MiB
        await other.ask(b"eother")
        assert await other.answers(1) == [b"other"]
        for _ in range(200):
            assert len((await client.answers(1))[0]) == len(big)
        await sending
        await harness.until(lambda: harness.server.shared.held.used == 0)

    run(Limits(connection_held_bytes_max=2 * MiB), scenario)


def test_bytes_held_in_all() -> None:
    """Half requests beyond the limit pause their readers, one at a time is received to its end,
    and who holds nothing is served meanwhile."""
    size = 1 * MiB

    async def scenario(harness: ServerHarness) -> None:
        held = harness.server.shared.held
        clients = [await harness.client() for _ in range(8)]
        small = await harness.client()
        whole = frame(b"n" + bytes(size))
        halves = [asyncio.create_task(c.send(whole[: size // 2])) for c in clients]
        await asyncio.gather(*halves)
        await harness.until(lambda: held.waiting > 0)
        assert held.used <= held.limit + size + 4
        await small.ask(b"esmall")
        assert await small.answers(1) == [b"small"]
        peak = 0

        async def finish() -> None:
            await asyncio.gather(*(c.send(whole[size // 2 :]) for c in clients))

        finishing = asyncio.create_task(finish())
        while sum(seen[:1] == b"n" for seen in harness.script.seen) < 8:
            peak = max(peak, held.used)
            await asyncio.sleep(0)
        await finishing
        assert peak <= held.limit + size + 4
        for client in clients:
            await client.ask(b"edone")
            assert await client.answers(1) == [b"done"]
        for connection in harness.server.connections:
            connection.rest()
        assert held.used == 0

    run(Limits(held_bytes_max=2 * MiB), scenario)


def test_requests_larger_than_the_memory_for_all_are_received_one_by_one() -> None:
    """Each in its turn may overdraw; nobody is stuck, also if the one that overdraws goes away."""
    size = 300 * KiB

    async def scenario(harness: ServerHarness) -> None:
        held = harness.server.shared.held
        gone = await harness.client()
        await gone.send(frame(b"n" + bytes(size))[: size // 2])
        await harness.until(lambda: held.used > 100 * KiB)
        clients = [await harness.client() for _ in range(4)]
        sending = [asyncio.create_task(c.ask(b"n" + bytes(size), b"edone")) for c in clients]
        await harness.until(lambda: held.waiting > 0)
        assert not harness.script.seen
        gone.close()
        for client in clients:
            assert await client.answers(1) == [b"done"]
        await asyncio.gather(*sending)

    run(Limits(held_bytes_max=64 * KiB), scenario)


def test_a_request_that_is_announced_and_never_sent_holds_little() -> None:
    """Memory follows the bytes that came, not the size that was claimed."""

    async def scenario(harness: ServerHarness) -> None:
        clients = [await harness.client() for _ in range(20)]
        for client in clients:
            await client.send((50 * MiB).to_bytes(4, "big") + b"n and no more")
        await harness.until(lambda: harness.server.shared.held.used > 0)
        await asyncio.sleep(0.02)
        assert harness.server.shared.held.used <= 20 * 4096

    run(Limits(), scenario)


def test_connections_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    """At max.connections a newcomer waits until somebody leaves, as in Kafka."""

    async def scenario(harness: ServerHarness) -> None:
        inside = [await harness.client() for _ in range(3)]
        for client in inside:
            await client.ask(b"ehi")
            assert await client.answers(1) == [b"hi"]
        newcomer = await harness.client()
        await newcomer.ask(b"ehi")
        assert await newcomer.silent()
        assert len(harness.server.connections) == 3
        inside[0].close()
        assert await newcomer.answers(1) == [b"hi"]
        assert len(harness.server.connections) == 3

    with caplog.at_level(logging.INFO, "ottla"):
        run(Limits(connections_max=3), scenario)
    assert "the limit is 3" in caplog.text


def test_connections_from_one_host(caplog: pytest.LogCaptureFixture) -> None:
    """The one beyond max.connections.per.ip is closed with a logged reason; the others stay."""

    async def scenario(harness: ServerHarness) -> None:
        inside = [await harness.client() for _ in range(2)]
        for client in inside:
            await client.ask(b"ehi")
            assert await client.answers(1) == [b"hi"]
        third = await harness.client()
        assert await third.ended()
        inside[0].close()
        await harness.until(lambda: len(harness.server.connections) == 1)
        fourth = await harness.client()
        await fourth.ask(b"ehi")
        assert await fourth.answers(1) == [b"hi"]
        assert harness.server.turned_away == 1

    with caplog.at_level(logging.INFO, "ottla"):
        run(Limits(connections_per_ip_max=2), scenario)
    assert len(caplog.records) == 1
    assert "max.connections.per.ip is 2" in caplog.text


def test_a_host_may_have_a_limit_of_its_own() -> None:
    """max.connections.per.ip.overrides wins, also with 0."""

    async def scenario(harness: ServerHarness) -> None:
        assert await (await harness.client()).ended()

    run(Limits(connections_per_ip_overrides={"127.0.0.1": 0}), scenario)


class Quiet:
    """A server on a manual clock, for what depends on time alone."""

    def __init__(
        self,
        limits: Limits,
        *names: str,
        inter_broker: str = "",
        logins: Mapping[str, NewLogin] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.network = SimulatedNetwork(self.clock)
        self.script = Script()
        endpoints = [Endpoint(name, name, 0) for name in names or ("PLAINTEXT",)]
        self.server = Server(
            self.network.host("broker"),
            self.clock,
            self.script.handle,
            endpoints,
            limits,
            inter_broker_listener=inter_broker,
            logins=logins,
        )
        self.server.open()
        self.server.accept()

    def connect(self, listener: int = 0, host: str = "client") -> SimulatedStream:
        port = self.server.endpoints[listener].port
        stream = self.network.connect_now(host, "broker", port)
        self.clock.advance(1)
        return stream

    def is_open(self, stream: SimulatedStream) -> bool:
        self.clock.advance(1)
        return stream.recv_into(bytearray(1000)) != 0


def test_idle_connections_are_closed_and_waiting_ones_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """connections.max.idle.ms counts from the last byte; who waits for an answer is not idle."""
    quiet = Quiet(Limits(connections_idle_ms_max=600_000))
    idle, busy, waiting = quiet.connect(), quiet.connect(), quiet.connect()
    waiting.send([frame(b"plong poll")])
    caplog.set_level(logging.INFO, "ottla")
    for _ in range(8):
        busy.send([frame(b"n")])
        quiet.clock.advance(100_000)
    assert not quiet.is_open(idle)
    assert quiet.is_open(busy)
    assert quiet.is_open(waiting)
    assert [record.getMessage() for record in caplog.records] == [
        "closed the connection of client:40002: idle for connections.max.idle.ms (600000)"
    ]
    quiet.clock.advance(700_000)
    assert not quiet.is_open(busy)
    quiet.server.close()


def test_a_client_that_takes_nothing_of_its_answer_is_idle() -> None:
    """An answer that nobody reads keeps its connection for connections.max.idle.ms at most."""
    quiet = Quiet(Limits(connections_idle_ms_max=10_000))
    quiet.script.rules[ord("g")] = lambda rest, peer: answer(bytes(MiB))
    stuck = quiet.connect()
    stuck.send([frame(b"g")])
    quiet.clock.advance(5_000)
    assert len(quiet.server.connections) == 1
    quiet.clock.advance(10_000)
    assert not quiet.server.connections
    assert quiet.server.shared.held.used == 0


class NotYet:
    """A login that is not complete."""

    complete, refused, frame_bytes_max = False, None, 1000


def test_who_does_not_log_in_goes_when_others_wait(caplog: pytest.LogCaptureFixture) -> None:
    """At max.connections, silent ones that have not logged in are closed after a while, and those
    who wait are served; who has logged in stays, and so do all while nobody waits."""
    logins = {"SASL_PLAINTEXT": lambda peer: NotYet()}
    quiet = Quiet(Limits(connections_max=4), "SASL_PLAINTEXT", logins=logins)  # type: ignore[arg-type]
    known, silent, another = quiet.connect(), quiet.connect(), quiet.connect()
    next(iter(quiet.server.connections)).peer.login = None  # it has logged in, without an end
    caplog.set_level(logging.WARNING, "ottla")
    quiet.clock.advance(STALLED_S * 3_000)
    assert quiet.is_open(silent)
    third, waiting = quiet.connect(), quiet.connect()
    assert len(quiet.server.connections) == 4
    quiet.clock.advance(STALLED_S * 500)
    waiting.send([frame(b"ehere")])
    quiet.clock.advance(1)
    assert waiting.recv_into(bytearray(100)) == len(frame(b"here"))
    assert not quiet.is_open(silent)
    assert not quiet.is_open(another)
    assert quiet.is_open(known)
    assert quiet.is_open(third)
    assert "no login for 10 s, and others wait to connect" in caplog.text
    quiet.server.close()


def test_half_a_request_closes_when_others_wait_for_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While memory is short, a connection that stopped in the middle of a request must go."""
    quiet = Quiet(Limits(held_bytes_max=64 * KiB))
    whole = frame(b"n" + bytes(60_000))
    stalled, alive, waiting = quiet.connect(), quiet.connect(), quiet.connect()
    for stream in (stalled, alive, waiting):
        stream.send([whole[:40_000]])
        quiet.clock.advance(1)
    assert quiet.server.shared.held.waiting
    caplog.set_level(logging.INFO, "ottla")
    for _ in range(4):
        quiet.clock.advance(STALLED_S * 500)
        for stream in (alive, waiting):
            if stream.outgoing.size == 0:
                stream.send([whole[40_000:40_001]])
    assert not quiet.is_open(stalled)
    assert "others wait for bytes" in caplog.text
    quiet.server.close()
    assert quiet.server.shared.held.used == 0


def test_a_big_buffer_is_given_back_when_the_connection_rests() -> None:
    """After large requests a silent connection holds nothing."""
    quiet = Quiet(Limits())
    stream = quiet.connect()
    whole = frame(b"n" + bytes(300_000))
    position = 0
    while position < len(whole):
        position += stream.send([whole[position:]])
        quiet.clock.advance(1)
    quiet.clock.advance(1)
    assert quiet.script.seen
    assert quiet.server.shared.held.used >= 300_000
    quiet.clock.advance(15_000)
    assert quiet.server.shared.held.used == 0
    assert quiet.is_open(stream)
    quiet.server.close()


def test_another_broker_gets_in_when_the_connection_limit_is_reached() -> None:
    """On the listener between brokers one more is let in; the longest silent client goes."""
    limits = Limits(connections_max=2)
    quiet = Quiet(limits, "CLIENTS", "BROKERS", inter_broker="BROKERS")
    first, second = quiet.connect(), quiet.connect()
    quiet.clock.advance(1000)
    first.send([frame(b"n")])
    quiet.clock.advance(1)
    broker = quiet.connect(1, "other-broker")
    assert quiet.is_open(broker)
    assert quiet.is_open(first)
    assert not quiet.is_open(second)
    assert len(quiet.server.connections) == 2
    quiet.server.close()


def test_requests_of_one_turn_are_limited() -> None:
    """A client that pipelines a thousand requests lets others in between."""
    quiet = Quiet(Limits())
    order: list[bytes] = []

    def note(rest: bytes, peer: object) -> Out | None:
        order.append(rest)
        return None

    quiet.script.rules[ord("o")] = note
    many, one = quiet.connect(), quiet.connect()
    many.send([b"".join(frame(b"omany") for _ in range(1000))])
    one.send([frame(b"oone")])
    quiet.clock.advance(10)
    assert len(order) == 1001
    assert order.index(b"one") <= REQUESTS_PER_TURN
    quiet.server.close()


def test_a_thousand_idle_connections_cost_little_memory() -> None:
    """A connection that does nothing has no buffer: a few kilobytes for its objects."""
    quiet = Quiet(Limits())
    quiet.connect()
    streams = [
        quiet.network.connect_now("client", "broker", quiet.server.endpoints[0].port)
        for _ in range(40)
    ]
    quiet.clock.advance(1)
    listener = next(iter(quiet.network.listeners.values()))
    ends = []
    for _ in range(1000):
        ends.append(SimulatedStream(quiet.network, "broker", "client", 1))
        quiet.network.streams.append(ends[-1])
    tracemalloc.start()
    for end in ends:
        listener._on_stream(end)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 1000 < 4 * KiB
    assert len(quiet.server.connections) == 1041
    quiet.server.close()
    assert streams


def test_limits_that_change_while_the_server_runs() -> None:
    """A higher max.connections lets in who waited; a lower one holds for newcomers."""
    quiet = Quiet(Limits(connections_max=1))
    streams = [quiet.connect() for _ in range(2)]
    assert len(quiet.server.connections) == 1
    quiet.server.change_limits(Limits(connections_max=3))
    quiet.clock.advance(1)
    assert len(quiet.server.connections) == 2
    quiet.server.change_limits(Limits(connections_per_ip_max=0))
    turned_away = quiet.connect()
    assert not quiet.is_open(turned_away)
    assert all(quiet.is_open(stream) for stream in streams)
    quiet.server.close()
