"""Listeners: what is bound, what is advertised, and how an address reads."""

from __future__ import annotations

import asyncio

import pytest

from ottla.seams.clock import RealClock
from ottla.seams.network import RealNetwork
from ottla.server.listener import Endpoint, address_text, endpoints_of, split_address
from ottla.server.server import Server
from ottla.settings import Settings
from tests.server.fake import Client, Script, answer


def endpoints(listeners: str, advertised: str | None = None) -> list[Endpoint]:
    options: dict[str, object] = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    }
    if advertised is not None:
        options["advertised.listeners"] = advertised
    return endpoints_of(Settings.from_properties(options).listeners, lambda: "this-machine")


def test_the_bound_address_is_advertised_unless_configured() -> None:
    """A port of 0 becomes the one that was bound; an empty host is this machine's name."""
    first, second = endpoints("PLAINTEXT://127.0.0.1:0,INSIDE://:9093")
    first.port = 40_001
    assert first.advertised == ("127.0.0.1", 40_001)
    assert second.advertised == ("this-machine", 9093)
    (endpoint,) = endpoints("PLAINTEXT://:9092", "PLAINTEXT://broker.example:19092")
    assert endpoint.advertised == ("broker.example", 19092)
    assert (endpoint.host, endpoint.port) == ("", 9092)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        (":9092", ("", 9092)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses_are_split(text: str, parts: tuple[str, int]) -> None:
    """Host and port, with brackets around IPv6."""
    assert split_address(text) == parts
    assert address_text(*parts) == text


@pytest.mark.parametrize("text", ["", "9092", "host", "host:", "host:x", "host:-1", "host:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """The error says what it must be."""
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        split_address(text)


def test_each_connection_knows_its_listener() -> None:
    """A handler sees which listener a client came through, so each gets its own address."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        script = Script()
        script.rules[ord("w")] = lambda rest, peer: answer(peer.listener_name.encode())
        server = Server(
            RealNetwork(loop),
            RealClock(loop),
            script.handle,
            [Endpoint("ONE", "127.0.0.1", 0), Endpoint("TWO", "127.0.0.1", 0)],
        )
        server.open()
        early = await Client.connect(server.endpoints[1].port)
        await early.ask(b"w")
        assert await early.silent()  # bound, and not accepting yet
        server.accept()
        assert await early.answers(1) == [b"TWO"]
        other = await Client.connect(server.endpoints[0].port)
        await other.ask(b"w")
        assert await other.answers(1) == [b"ONE"]
        assert server.accepted == {"ONE": 1, "TWO": 1}
        server.close()
        assert await early.ended()

    asyncio.run(scenario())


def test_a_port_in_use_frees_the_others() -> None:
    """When one listener cannot be opened the error names it and none stays open."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        network = RealNetwork(loop)
        taken = network.listen("127.0.0.1", 0, lambda stream: None)
        server = Server(
            network,
            RealClock(loop),
            Script().handle,
            [Endpoint("ONE", "127.0.0.1", 0), Endpoint("TWO", "127.0.0.1", taken.port)],
        )
        with pytest.raises(OSError) as caught:
            server.open()
        assert caught.value.filename == f"127.0.0.1:{taken.port}"
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(server.endpoints[0].port)
        taken.close()

    asyncio.run(scenario())


def test_draining_answers_what_is_under_way() -> None:
    """A stopping server takes nothing new, finishes what has begun, and cuts what only waits."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        script = Script()
        server = Server(
            RealNetwork(loop),
            RealClock(loop),
            script.handle,
            [Endpoint("ONE", "127.0.0.1", 0)],
        )
        server.open()
        server.accept()
        working = await Client.connect(server.endpoints[0].port)
        waiting = await Client.connect(server.endpoints[0].port)
        await working.ask(b"xcreate", b"eafter")
        await waiting.ask(b"plong poll")
        while len(script.seen) < 2:
            await asyncio.sleep(0.001)
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0.02)
        assert not draining.done()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(server.endpoints[0].port)
        script.settle(b"create")
        await draining
        assert await working.answers(1) == [b"create"]
        assert b"eafter" not in script.seen
        server.close()
        assert await waiting.ended()
        assert script.cancelled == [b"long poll"]

    asyncio.run(scenario())


def test_draining_has_an_end() -> None:
    """Work that does not finish is left behind after a while."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        script = Script()
        server = Server(
            RealNetwork(loop), RealClock(loop), script.handle, [Endpoint("ONE", "127.0.0.1", 0)]
        )
        server.open()
        server.accept()
        client = await Client.connect(server.endpoints[0].port)
        await client.ask(b"xfor ever")
        while not script.seen:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(server.drain(0.05), 60)
        server.close()
        client.close()

    asyncio.run(scenario())
