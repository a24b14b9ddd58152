"""Clients that are slow, idle, deaf or very many: what they take is limited, others are served."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import socket
from pathlib import Path

import pytest

from ottla.agent.http import exchange
from ottla.agent.sources import http as http_source
from ottla.agent.sources import tcp
from tests import needs

from .net_harness import LOCAL, Collected, Running, listening, made_pem_file

HTTP = ("type = http", "bind = 127.0.0.1", "port = 0")
NETCAT = ("type = netcat", "bind = 127.0.0.1", "port = 0")
SYSLOG = ("type = syslogtcp", "host = 127.0.0.1", "port = 0")
MANY = 10_000
SPARE_DESCRIPTORS = 200  # of the test itself
EVENTS = b'[{"body":"x"}]'
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS


async def status_of(running: Running, request: bytes = POST) -> bytes:
    reader, writer = await running.connect()
    writer.write(request)
    line = await reader.readline()
    writer.close()
    return line[9:12]


async def trickle(running: Running, request: bytes, pause_s: float) -> bytes:
    """A client that sends a byte at a time, as long as it is listened to; its answer."""
    reader, writer = await running.connect()

    async def send() -> None:
        for byte in request:
            writer.write(bytes([byte]))
            await asyncio.sleep(pause_s)

    sending = asyncio.create_task(send())
    try:
        return await reader.read()
    finally:
        sending.cancel()
        writer.close()


@pytest.mark.parametrize("request_", [POST[:20] + b"x" * 5000, POST[:-10] + b" " * 5000])
def test_a_request_that_trickles_is_given_up(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then is not enough, in the head or in the body: 408. Before, a client kept
    its connection and its bytes for as long as it liked."""
    monkeypatch.setattr(exchange, "REQUEST_S", 0.3)
    if request_.startswith(POST[:30]):
        request_ = request_.replace(b"14", b"9999")

    async def run() -> None:
        async with listening(*HTTP) as running:
            slow = asyncio.create_task(trickle(running, request_, 0.01))
            while not running.source.server.open:
                await asyncio.sleep(0.001)
            assert await status_of(running) == b"200"
            assert (await slow).startswith(b"HTTP/1.1 408 ")
            assert running.source.bodies.bytes == 0
            assert running.output.bodies == [b"x"]

    asyncio.run(run())


def test_a_request_that_comes_fast_enough_may_be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is given for each byte that came."""
    monkeypatch.setattr(exchange, "REQUEST_S", 0.05)
    monkeypatch.setattr(exchange, "REQUEST_BYTES_PER_S", 1)

    async def run() -> None:
        async with listening(*HTTP) as running:
            answer = await trickle(
                running, POST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 0.002
            )
            assert answer.startswith(b"HTTP/1.1 200 ")

    asyncio.run(run())


def test_idle_and_slow_connections_give_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all places are taken a new client is served; of the others the one goes that has been
    idle for longest, then the slowest request. One that is at work stays."""
    monkeypatch.setattr(http_source, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(http_source, "SLOW_S", 0.0)

    async def run() -> None:
        output = Collected()
        async with listening(*HTTP, output=output) as running:
            idle_reader, idle = await running.connect()
            slow_reader, slow = await running.connect()
            slow.write(POST[:-1])
            while not running.source.bodies.bytes:
                await asyncio.sleep(0.001)
            third_reader, third = await running.connect()
            assert await idle_reader.read() == b""
            third.write(POST)
            assert (await third_reader.readline())[9:12] == b"200"
            output.has_space.clear()
            third.write(POST)
            await output.waiting.wait()
            _, fourth = await running.connect()
            assert (await slow_reader.readline())[9:12] == b"408"
            output.has_space.set()
            while len(output.bodies) < 2:
                await asyncio.sleep(0.001)
            assert await status_of(running) == b"200"
            for each in (idle, slow, third, fourth):
                each.close()

    asyncio.run(run())


def test_answers_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of http that sends requests and never reads ends; nothing waits for it for ever."""
    monkeypatch.setattr(http_source, "IDLE_S", 0.2)

    async def run() -> None:
        async with listening(*HTTP) as running:
            with socket.create_connection((LOCAL, running.port)) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.setblocking(False)
                while not running.source.server.open:
                    await asyncio.sleep(0.001)
                [connection] = running.source.server.open
                its_socket = connection._transport.get_extra_info("socket")
                its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                loop = asyncio.get_running_loop()
                with contextlib.suppress(ConnectionError):
                    while True:
                        await loop.sock_sendall(deaf, POST * 100)
            assert await status_of(running) == b"200"

    asyncio.run(run())


def allowed(count: int) -> int:
    """As many connections as this process may have at both ends."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        count = min(count, (limit - SPARE_DESCRIPTORS) // 2)
    return count


@pytest.mark.parametrize("kind", [NETCAT, SYSLOG, HTTP], ids=["netcat", "syslogtcp", "http"])
def test_ten_thousand_connections(kind: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that say nothing keep nobody out; of all that come each is open or was ended,
    and lines that come on the first and on the last of them arrive. http has a thousand places."""
    count = allowed(MANY if kind is NETCAT else needs.rounds(2_000, MANY))
    line = POST if kind is HTTP else b"<13>x\n"

    async def run() -> None:
        async with listening(*kind) as running:
            server = running.source.server
            server.connections_max = server.descriptors_max = MANY
            clients: list[socket.socket] = []
            loop = asyncio.get_running_loop()
            try:
                for _ in range(count):
                    client = socket.socket()
                    client.setblocking(False)
                    clients.append(client)
                    await loop.sock_connect(client, (LOCAL, running.port))
                places = http_source.CONNECTIONS_MAX if kind is HTTP else count
                while len(server.open) != places:
                    await asyncio.sleep(0.01)
                for client in (clients[-places], clients[-1]):
                    await loop.sock_sendall(client, line)
                assert len(await running.output.wait_for(2)) == 2
            finally:
                for client in clients:
                    client.close()
            while server.open:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_what_all_connections_hold_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the channel is full many clients send: together they are held to the limit, each line
    arrives once there is space. Before, each connection had a limit of its own, and 10,000
    together had none."""
    monkeypatch.setattr(tcp, "HELD_BYTES_MAX", 1024 * 1024)
    clients, lines = 40, 200
    block = b"".join(b"%01000d\n" % number for number in range(lines))

    async def run() -> None:
        output = Collected()
        output.has_space.clear()
        options = (*NETCAT, "ack-every-event = false", "max-line-length = 2000")
        async with listening(*options, output=output) as running:
            server = running.source.server
            writers = [(await running.connect())[1] for _ in range(clients)]
            for writer in writers:
                writer.write(block)
            while not server.is_full:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)  # what could come comes
            assert server.held_bytes < tcp.HELD_BYTES_MAX + 512 * 1024
            output.has_space.set()
            assert len(await output.wait_for(clients * lines)) == clients * lines
            for writer in writers:
                writer.close()
            while server.open:
                await asyncio.sleep(0.001)
            assert server.held_bytes == 0
            assert not server.is_full

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_handshake_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to a TLS port that do not shake hands are counted, and end soon; before, their
    number had no limit. One that does is served meanwhile."""
    monkeypatch.setattr(tcp, "HANDSHAKE_S", 0.3)
    pem = made_pem_file(tmp_path)

    async def run() -> None:
        tls = ("ssl = true", f"keystore = {pem}", "keystore-type = PEM")
        async with listening(*SYSLOG, *tls) as running:
            reader, writer = await running.connect()
            while len(running.source.server.open) < 1:
                await asyncio.sleep(0.001)
            context = tcp.ssl.create_default_context(cafile=str(pem))
            context.check_hostname = False
            _, served = await asyncio.open_connection(LOCAL, running.port, ssl=context)
            served.write(b"<13>over TLS\n")
            assert await running.output.wait_for(1) == [b"over TLS"]
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            served.write(b"<13>later\n")
            assert await running.output.wait_for(2) == [b"over TLS", b"later"]
            for each in (writer, served):
                each.close()

    asyncio.run(run())


def test_sources_share_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the descriptors are for others, however many sources listen."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))

    async def run() -> None:
        async with listening(*NETCAT) as one, listening(*NETCAT) as other:
            kept = []
            for running in (one, one, other):
                reader, writer = await running.connect()
                writer.write(b"x\n")
                assert await reader.readline() == b"OK\n"
                kept.append(writer)
            reader, writer = await other.connect()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            for each in (writer, *kept):
                each.close()

    asyncio.run(run())
