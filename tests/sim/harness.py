"""Whole brokers on simulated machines, and clients that talk to them over a simulated network.

`SimulatedBroker` is what `ottla server` composes, on the seams of a node; `Connection` is a client
of the wire protocol with one request under way.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from ottla.broker.broker import Broker
from ottla.log.helper import JOBS
from ottla.metrics import Metrics
from ottla.seams.network import Stream
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Node, Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import Settings
from ottla.wire.header import finish, start_request
from ottla.wire.schema import reader, writer
from tests.broker.harness import API_BY_REQUEST, DATA

PORT = 9092
ANSWER_S_MAX = 30.0  # virtual; a client gives up then, as request.timeout.ms makes it


class SimulatedBroker:
    """A broker process on a machine: start it, crash it, start it again."""

    def __init__(self, simulation: Simulation, name: str, **settings: object) -> None:
        self.node = simulation.node(name, disk=SimulatedDisk(), jobs=JOBS)
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.settings = Settings.from_properties({"log.dirs": DATA, **named})
        self.starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start; it is done when the simulation has run for a while."""
        if not self.node.alive:
            self.node.start()
        self.starting = self.node.task(self._start())

    def crash(self, *, power: bool = False) -> None:
        self.node.crash(power=power)

    async def _start(self) -> None:
        node = self.node
        self.broker = Broker(
            self.settings,
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
        )
        endpoint = Endpoint("PLAINTEXT", node.name, PORT)
        self.server = Server(
            node.network, node.clock, lambda *request: self._handle(*request), [endpoint]
        )
        self.server.open()
        await self.broker.start({endpoint.name: (node.name, PORT)})
        self.server.accept()

    def _handle(self, *request: Any) -> Any:
        return self.broker.dispatcher.handle(*request)


class Connection:
    """A connection of a client; `ask` raises OSError or TimeoutError when it is lost."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._received = bytearray()
        self._answered: asyncio.Future[None] | None = None
        self._correlation_id = 0
        stream.on_readable(self._readable)

    @classmethod
    async def open(cls, node: Node, host: str, port: int = PORT) -> Connection:
        async with asyncio.timeout(ANSWER_S_MAX):
            return cls(await node.network.connect(host, port))

    def close(self) -> None:
        self._stream.close()

    async def ask(self, request: Any, version: int) -> Any:
        """The decoded answer to one request."""
        api = API_BY_REQUEST[type(request).__name__]
        self._correlation_id += 1
        out = start_request(api.key, version, self._correlation_id, "simulated")
        writer(type(request), version)(request, out)
        finish(out)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._send(bytes(out))
                frame = await self._receive()
        except (OSError, TimeoutError):
            self.close()
            raise
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id
        position = 5 if api.flexible_response(version) else 4
        message, end = reader(api.response, version)(memoryview(frame), position)
        assert end == len(frame)
        return message

    async def _send(self, data: bytes) -> None:
        while data:
            sent = self._stream.send([data])
            data = data[sent:]
            if data:
                await asyncio.sleep(0.001)

    async def _receive(self) -> bytes:
        while len(self._received) < 4 or len(self._received) < 4 + self._size():
            self._answered = asyncio.get_running_loop().create_future()
            await self._answered
        frame = bytes(self._received[4 : 4 + self._size()])
        del self._received[: 4 + len(frame)]
        return frame

    def _size(self) -> int:
        size: int = struct.unpack_from(">i", self._received)[0]
        return size

    def _readable(self) -> None:
        buffer = bytearray(65536)
        problem: OSError | None = None
        try:
            size = self._stream.recv_into(buffer)
        except OSError as error:
            size, problem = 0, error
        if size == 0:
            self._stream.close()
            problem = problem or ConnectionResetError("the broker closed the connection")
        else:
            self._received += buffer[: size or 0]
        waiting, self._answered = self._answered, None
        if waiting is not None and not waiting.done():
            if problem is not None:
                waiting.set_exception(problem)
            else:
                waiting.set_result(None)
