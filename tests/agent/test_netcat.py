"""The netcat sources while a channel is full, and when they stop."""

from __future__ import annotations

import asyncio
import resource

import pytest

from ottla.agent.sources.tcp import PENDING_BYTES_MAX

from .net_harness import Collected, listening

TCP = ("type = netcat", "bind = 127.0.0.1", "port = 0")
UDP = ("type = netcatudp", "bind = 127.0.0.1", "port = 0")


def test_each_line_is_answered_once_the_channel_has_it() -> None:
    """A line may come in pieces; OK does not come before the channel has space."""

    async def run() -> None:
        async with listening(*TCP) as running:
            reader, writer = await running.connect()
            writer.write(b"one\ntw")
            assert await reader.readline() == b"OK\n"
            running.output.has_space.clear()
            writer.write(b"o\n\n")
            await running.output.waiting.wait()
            answer = asyncio.create_task(reader.readexactly(6))
            await asyncio.sleep(0)
            assert not answer.done()
            running.output.has_space.set()
            assert await answer == b"OK\nOK\n"
            assert running.output.bodies == [b"one", b"two", b""]
            writer.close()

    asyncio.run(run())


def test_other_character_sets_become_utf_8() -> None:
    """A character may come in two pieces."""

    async def run() -> None:
        async with listening(*TCP, "encoding = UTF-16LE") as running:
            reader, writer = await running.connect()
            sent = "žlutý\n".encode("utf-16-le")
            writer.write(sent[:3])
            await writer.drain()
            writer.write(sent[3:])
            assert await reader.readline() == b"OK\n"
            assert running.output.bodies == ["žlutý".encode()]
            writer.close()

    asyncio.run(run())


def test_a_full_channel_stops_the_reading() -> None:
    """What is received and not in the channel is bounded; later all of it is there, in order."""

    async def run() -> None:
        output = Collected()
        output.has_space.clear()
        lines = [b"%0500d" % number for number in range(20_000)]
        async with listening(*TCP, "ack-every-event = false", output=output) as running:
            _, writer = await running.connect()
            sending = asyncio.create_task(send_all(writer, b"\n".join(lines) + b"\n"))
            await output.waiting.wait()
            [connection] = running.source.server.open
            while not connection._is_paused:
                await asyncio.sleep(0.01)
            # One block may be on its way when reading stops.
            assert connection._pending_bytes <= PENDING_BYTES_MAX + 256 * 1024
            assert not sending.done()
            output.has_space.set()
            await sending
            assert await output.wait_for(len(lines)) == lines
            writer.close()

    asyncio.run(run())


async def send_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def test_a_stop_keeps_what_was_received() -> None:
    """Lines that are in the agent when it stops go to the channel, if it has space in time."""

    async def run() -> None:
        output = Collected()
        output.has_space.clear()
        async with listening(*TCP, output=output) as running:
            reader, writer = await running.connect()
            writer.write(b"one\n")
            await output.waiting.wait()
            writer.write(b"two\n")
            [connection] = running.source.server.open
            while not connection._pending:
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(running.stop())
            await asyncio.sleep(0)
            output.has_space.set()
            await stopping
            assert output.bodies == [b"one", b"two"]
            assert await reader.read() == b"OK\nOK\n"
            writer.close()

    asyncio.run(run())


def test_datagrams_that_the_kernel_drops_are_counted() -> None:
    """While the channel is full the socket's buffer fills; received and dropped are all."""

    async def run() -> None:
        output = Collected()
        output.has_space.clear()
        async with listening(*UDP, output=output) as running:
            running.send_udp(b"first")
            await output.waiting.wait()
            sent = 1000
            running.send_udp(*[b"x" * 30_000] * sent)
            output.has_space.set()
            while len(output.bodies) + running.source.server.dropped < sent + 1:
                running.send_udp(b"last")  # its arrival says how many were dropped
                await asyncio.sleep(0.01)
            assert running.source.server.dropped > 0

    asyncio.run(run())


def test_more_connections_than_descriptors_allow_are_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of the descriptors are for others; it is said once a minute. Before, clients that only
    connected took all of them, and the sink could not reach its broker."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))

    async def run() -> None:
        async with listening("type = netcat", "bind = 127.0.0.1", "port = 0") as running:
            kept = []
            for _ in range(3):
                reader, writer = await running.connect()
                writer.write(b"x\n")
                assert await reader.readline() == b"OK\n"
                kept.append(writer)
            for _ in range(3):
                reader, writer = await running.connect()
                assert await ended(reader)
                writer.close()
            kept[0].close()
            while len(running.source.server.open) == 3:
                await asyncio.sleep(0.01)
            reader, writer = await running.connect()
            writer.write(b"again\n")
            assert await reader.readline() == b"OK\n"
            for each in (writer, *kept):
                each.close()

    asyncio.run(run())
    said = [record.message for record in caplog.records if "others are closed" in record.message]
    assert len(said) == 1


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True
