"""UDP sockets of sources. While the channel is full nothing is read, and the kernel drops what its
buffer cannot hold: it says how many datagrams that were, and they are counted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

logger = logging.getLogger(__name__)
DATAGRAM_BYTES_MAX = 1 << 16  # RFC 5426
DATAGRAMS_MAX = 500  # read before the channel gets them
RECEIVE_BUFFER_BYTES = 4 << 20  # what the kernel's own limit allows of it
SO_RXQ_OVFL = 40  # Linux: each datagram says how many were dropped before it
COUNTER = struct.Struct("=I")


class Datagram(NamedTuple):
    body: bytes
    client: tuple[str, int]


class UdpServer:
    """Reads one port until it is cancelled."""

    def __init__(self, name: str, host: str | None, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.bound: list[int] = []
        self.listening = asyncio.Event()
        self.dropped = 0  # datagrams, by the kernel

    async def run(self, received: Callable[[Sequence[Datagram]], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self.host, self.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as udp:
            udp.setblocking(False)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            with contextlib.suppress(OSError):
                udp.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
            udp.bind(address)
            self.bound.append(udp.getsockname()[1])
            logger.info("Source %s listens on UDP port %d", self.name, self.bound[0])
            self.listening.set()
            while True:
                await readable(udp)
                if datagrams := self._read(udp):
                    await received(datagrams)

    def _read(self, udp: socket.socket) -> list[Datagram]:
        datagrams: list[Datagram] = []
        with contextlib.suppress(BlockingIOError):
            while len(datagrams) < DATAGRAMS_MAX:
                body, ancillary, _, address = udp.recvmsg(DATAGRAM_BYTES_MAX, COUNTER.size + 64)
                for level, what, value in ancillary:
                    if level == socket.SOL_SOCKET and what == SO_RXQ_OVFL:
                        self._say_dropped(COUNTER.unpack(value[: COUNTER.size])[0])
                datagrams.append(Datagram(body, (address[0], address[1])))
        return datagrams

    def _say_dropped(self, total: int) -> None:
        if total > self.dropped:
            logger.warning(
                "Source %s: the kernel dropped %d datagrams", self.name, total - self.dropped
            )
            self.dropped = total


async def readable(udp: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(udp.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(udp.fileno())
