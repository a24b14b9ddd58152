"""Sources that listen, for tests: started on a free port, with an output that can be full."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.agent.build import made
from ottla.agent.context import Context
from ottla.agent.events import EventBatch

from .config.descriptions import agent_of, with_source

LOCAL = "127.0.0.1"
GIVE_UP_S = 60.0


class Collected:
    """An output that keeps what it gets; while it is full, `put` waits."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.has_space = asyncio.Event()
        self.has_space.set()
        self._changed = asyncio.Event()
        self.waiting = asyncio.Event()  # set by a put that waits

    async def put(self, batch: EventBatch) -> None:
        if not self.has_space.is_set():
            self.waiting.set()
        await self.has_space.wait()
        self.batches.append(batch)
        self._changed.set()

    def is_delivered(self, stream: str, offset: int) -> bool:
        return False

    @property
    def bodies(self) -> list[bytes]:
        return [body for batch in self.batches for body in batch.bodies]

    @property
    def headers(self) -> list[Mapping[str, str]]:
        return [batch.headers_of(at) for batch in self.batches for at in range(len(batch))]

    async def wait_for(self, events: int) -> list[bytes]:
        async with asyncio.timeout(GIVE_UP_S):
            while len(self.bodies) < events:
                self._changed.clear()
                await self._changed.wait()
        return self.bodies


def made_pem_file(directory: Path) -> Path:
    """A certificate of this machine's, signed by itself, with its key; made by openssl."""
    file = directory / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{LOCAL}"]
    places = ["-nodes", "-keyout", str(file), "-out", str(directory / "certificate.pem")]
    subprocess.run([*command, *names, *places], check=True, capture_output=True)
    with file.open("ab") as out:
        out.write((directory / "certificate.pem").read_bytes())
    return file


def source_of(*lines: str) -> Any:
    part = agent_of(with_source(*lines)).sources["r1"]
    return made(part, Context("a1", "here", Path("/nowhere")))


@asynccontextmanager
async def listening(*lines: str, output: Collected | None = None) -> AsyncIterator[Any]:
    """The source while it runs; its output, ports and task are attributes of what is given."""
    source = source_of(*lines)
    running = Running(source, output or Collected())
    running.task = asyncio.create_task(source.run(running.output, {}))
    waiting = asyncio.create_task(source.server.listening.wait())
    try:
        await asyncio.wait([running.task, waiting], return_when=asyncio.FIRST_COMPLETED)
        if running.task.done():
            running.task.result()
        async with asyncio.timeout(GIVE_UP_S):
            yield running
    finally:
        waiting.cancel()
        await running.stop()


class Running:
    task: asyncio.Task[None]

    def __init__(self, source: Any, output: Collected) -> None:
        self.source = source
        self.output = output

    @property
    def port(self) -> int:
        port: int = self.source.server.bound[0]
        return port

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(LOCAL, self.port)

    def send_udp(self, *datagrams: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for datagram in datagrams:
                udp.sendto(datagram, (LOCAL, self.port))
