"""The `netcatudp` source: the first line of each datagram is an event.

Nobody makes a sender of datagrams wait: while a channel is full the kernel's buffer takes what it
can, and the rest is lost, as in Flume.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output

logger = logging.getLogger(__name__)
DATAGRAM_BYTES_MAX = 65_535
BATCH_MAX = 1000


class NetcatUdpSource:
    replays = False

    def __init__(self, name: str, host: str, port: int, address_header: str | None = None) -> None:
        """Port 0 takes a free one; `port` is the real one once it listens."""
        self.name = name
        self.host = host
        self.port = port
        self.address_header = address_header
        self.listening = asyncio.Event()

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
            endpoint.setblocking(False)
            endpoint.bind(address)
            self.port = endpoint.getsockname()[1]
            logger.info("Source %s listens on %s:%d (UDP)", self.name, self.host, self.port)
            self.listening.set()
            readable = asyncio.Event()
            while True:
                loop.add_reader(endpoint, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(endpoint)
                readable.clear()
                batch = self._read(endpoint)
                if batch.bodies:
                    await output.put(batch)

    def _read(self, endpoint: socket.socket) -> EventBatch:
        """What the kernel holds."""
        bodies: list[bytes] = []
        own: list[Mapping[str, str]] = []
        while len(bodies) < BATCH_MAX:
            try:
                data, sender = endpoint.recvfrom(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                break
            bodies.append(data.partition(b"\n")[0])
            if self.address_header is not None:
                own.append({self.address_header: f"/{sender[0]}:{sender[1]}"})
        return EventBatch(bodies, own_headers=own or None)


def from_options(name: str, options: Options, context: Context) -> NetcatUdpSource:
    return NetcatUdpSource(
        name,
        options.text("bind"),
        options.number("port"),
        options.text_or_none("remoteAddress"),
    )
