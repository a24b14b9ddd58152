"""A server with a scripted dispatcher on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ottla.seams.background import Background
from ottla.seams.clock import RealClock
from ottla.seams.network import RealNetwork
from ottla.server.limits import Limits
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from tests.server.fake import Client, Script

__all__ = ["ServerHarness", "running_server"]


class ServerHarness:
    """A running server, its script, and clients that are closed with it."""

    def __init__(self, server: Server, script: Script) -> None:
        self.server = server
        self.script = script
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.server.endpoints[0].port

    async def client(self) -> Client:
        client = await Client.connect(self.port)
        self.clients.append(client)
        return client

    async def until(self, claim: Callable[[], bool], timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s):
            while not claim():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def running_server(
    limits: Limits | None = None,
    script: Script | None = None,
    background: Background | None = None,
) -> AsyncIterator[ServerHarness]:
    loop = asyncio.get_running_loop()
    script = script or Script()
    server = Server(
        RealNetwork(loop),
        RealClock(loop),
        script.handle,
        [Endpoint("PLAINTEXT", "127.0.0.1", 0)],
        limits,
        background=background,
    )
    server.open()
    server.accept()
    running = ServerHarness(server, script)
    try:
        yield running
        assert not server.shared.in_turn
    finally:
        for client in running.clients:
            client.close()
        server.close()
        assert server.shared.held.used == 0, "bytes are still counted as held"
        assert not server.connections
