"""netcat and netcatudp: lines over the network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ottla.agent.context import Context
from ottla.agent.events import EventBatch
from ottla.agent.sources import netcat, netcatudp

from .config.descriptions import agent_of, with_source


class Collected:
    def __init__(self) -> None:
        self.batches: list[EventBatch] = []

    async def put(self, batch: EventBatch) -> None:
        self.batches.append(batch)

    @property
    def lines(self) -> list[bytes]:
        return [body for batch in self.batches for body in batch.bodies]


def with_running(
    make: Callable[..., Any],
    lines: tuple[str, ...],
    act: Callable[[Any, Collected], Awaitable[Any]],
) -> Any:
    """Runs a source of these options while an action is done with it."""

    async def run() -> Any:
        text = with_source(*lines, "bind = 127.0.0.1", "port = 0")
        source = make(
            "r1", agent_of(text).sources["r1"].options, Context("a1", "here", Path("/nowhere"))
        )
        output = Collected()
        running = asyncio.create_task(source.run(output, {}))
        await source.listening.wait()
        try:
            return await act(source, output)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return asyncio.run(run())


def talk(sent: bytes, *lines: str) -> tuple[bytes, list[bytes]]:
    """What a client gets for what it sends, and what the channel gets."""

    async def act(source: netcat.NetcatSource, output: Collected) -> tuple[bytes, list[bytes]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", source.port)
        writer.write(sent)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer, output.lines

    result: tuple[bytes, list[bytes]] = with_running(
        netcat.from_options, ("type = netcat", *lines), act
    )
    return result


def test_each_line_is_answered() -> None:
    """Flume's example: OK for each; a carriage return stays, a last line without its end does not
    count."""
    assert talk(b"Hello world!\r\n\nrest") == (b"OK\nOK\n", [b"Hello world!\r", b""])
    assert talk(b"a\n", "ack-every-event = false") == (b"", [b"a"])


def test_a_line_that_is_too_long_ends_the_connection() -> None:
    """Flume's words; what came before is there, what comes after is not."""
    answer, lines = talk(b"ok\n" + b"x" * 9 + b"\nafter\n", "max-line-length = 8")
    assert answer == b"OK\nFAILED: Event exceeds the maximum length (8 chars, including newline)\n"
    assert lines == [b"ok"]


def test_datagrams_become_events() -> None:
    """The first line of each, with the sender's address if wanted."""

    async def act(source: netcatudp.NetcatUdpSource, output: Collected) -> list[EventBatch]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for text in (b"one", b"two\nmore", b"three\n"):
                client.sendto(text, ("127.0.0.1", source.port))
        while len(output.lines) < 3:
            await asyncio.sleep(0.01)
        return output.batches

    lines = ("type = netcatudp", "remoteAddressHeader = from")
    batches: list[EventBatch] = with_running(netcatudp.from_options, lines, act)
    assert [body for batch in batches for body in batch.bodies] == [b"one", b"two", b"three"]
    assert batches[0].headers_of(0)["from"].startswith("/127.0.0.1:")
