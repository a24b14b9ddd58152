"""TCP servers of sources: many connections on the agent's loop, each slowed by a full channel.

While a connection's handler waits for the channel nothing more is read from its socket, so its
client waits too. When the source stops, what was received goes to the channel first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Protocol, cast

logger = logging.getLogger(__name__)
PENDING_BYTES_MAX = 64 * 1024  # received and not handled; then reading stops
LINGER_S = 5.0
STOP_S = 2.0  # for what was received when the source stops
BACKLOG = 128
CONNECTIONS_MAX = 10_000  # at most half of the descriptors of the process; more are closed at once
KEEPALIVE_S = 300  # a client that went without a word is noticed
SAY_AGAIN_S = 60.0  # that there are too many


class EndConnection(Exception):
    """The connection ends after this answer."""

    def __init__(self, answer: bytes = b"", *, lingers: bool = False) -> None:
        """One that lingers drops for a while what its client still sends: a connection that ends
        with bytes unread may take the answer away with it."""
        super().__init__(answer)
        self.answer = answer
        self.lingers = lingers


class Handler(Protocol):
    """What a source does with the bytes of one connection."""

    async def received(self, block: bytes) -> bytes:
        """Returns the answer once the channel has the events; may raise EndConnection."""

    async def ended(self) -> bytes:
        """The client has sent all: what came last may be whole now."""

    def closed(self) -> None:
        """The connection is gone, for whatever reason."""


class Peer(Protocol):
    """Both ends of a connection."""

    @property
    def client(self) -> tuple[str, int]: ...

    @property
    def port(self) -> int: ...


class Connection(asyncio.Protocol):
    """Bytes from the socket to the handler, answers back."""

    def __init__(
        self,
        handler_of: Callable[[Peer], Handler],
        all_open: set[Connection],
        idle_s: float | None = None,
        admit: Callable[[], bool] = lambda: True,
    ) -> None:
        """A connection that sends nothing for `idle_s` seconds ends, one that is not admitted at
        once."""
        self._admit = admit
        self._handler_of = handler_of
        self._idle_s = idle_s
        self._all_open = all_open
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._is_paused = False
        self._at_end = False  # the client sends no more
        self._is_broken = False  # it ended without the client's having said so
        self._stopping = False
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.client: tuple[str, int] = ("", 0)
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._admit():
            self._transport.abort()
            return
        keep_alive(transport.get_extra_info("socket"))
        self.client = tuple((transport.get_extra_info("peername") or ("", 0))[:2])
        self.port = (transport.get_extra_info("sockname") or ("", 0))[1]
        self._all_open.add(self)
        self.task = asyncio.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= PENDING_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._changed.set()

    def eof_received(self) -> bool:
        self._at_end = True
        self._changed.set()
        # Answers may still be written, which TLS does not allow.
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, problem: Exception | None) -> None:
        self._is_broken = problem is not None
        self._at_end = True
        self._changed.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def stop(self) -> None:
        """Ends it once what was received is handled."""
        self._stopping = True
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self._changed.set()

    async def _serve(self) -> None:
        handler = self._handler_of(self)
        try:
            while not (self._stopping and not self._pending):
                if self._pending:
                    await self._write(await handler.received(self._take()))
                elif self._is_broken:
                    break
                elif self._at_end:
                    await self._write(await handler.ended())
                    break
                else:
                    self._changed.clear()
                    await asyncio.wait_for(self._changed.wait(), self._idle_s)
        except EndConnection as end:
            await self._write(end.answer)
            if end.lingers:
                await self._linger()
        except TimeoutError:
            logger.debug("The connection from %s:%d is idle, and ends", *self.client)
        except Exception:
            logger.exception("The connection from %s:%d fails", *self.client)
        finally:
            self._all_open.discard(self)
            self._transport.close()
            handler.closed()

    async def _linger(self) -> None:
        """Until the client ends, too."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the client is gone already
                self._transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not (self._at_end or self._stopping):
                    self._take()
                    self._changed.clear()
                    await self._changed.wait()

    def _take(self) -> bytes:
        block = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        if self._is_paused and not self._stopping and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return block

    async def _write(self, answer: bytes) -> None:
        if answer and not self._transport.is_closing():
            self._transport.write(answer)
            await self._may_write.wait()


def keep_alive(connection: socket.socket | None) -> None:
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)


class TcpServer:
    """Listens on one address and some ports until it is cancelled."""

    def __init__(
        self,
        name: str,
        host: str | None,
        ports: Sequence[int],
        tls: ssl.SSLContext | None = None,
        *,
        idle_s: float | None = None,
    ) -> None:
        self.name = name
        self.idle_s = idle_s
        self.host = host
        self.ports = ports
        self.tls = tls
        self.bound: list[int] = []  # the ports, once it listens
        self.listening = asyncio.Event()
        self.open: set[Connection] = set()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = limit == resource.RLIM_INFINITY
        self.connections_max = CONNECTIONS_MAX if unlimited else min(CONNECTIONS_MAX, limit // 2)
        self._said_s = -SAY_AGAIN_S

    def _admits(self) -> bool:
        """Whether another connection may be open: the sinks need descriptors, too."""
        if len(self.open) < self.connections_max:
            return True
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = now_s
            logger.warning(
                "Source %s: %d connections are open, which is all it may have; others are closed. "
                "ulimit -n allows more, up to %d",
                self.name,
                self.connections_max,
                CONNECTIONS_MAX,
            )
        return False

    async def run(self, handler_of: Callable[[Peer], Handler]) -> None:
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        try:
            for port in self.ports:
                server = await loop.create_server(
                    lambda: Connection(handler_of, self.open, self.idle_s, self._admits),
                    self.host,
                    port,
                    ssl=self.tls,
                    backlog=BACKLOG,
                )
                servers.append(server)
                self.bound.append(server.sockets[0].getsockname()[1])
            logger.info("Source %s listens on port %s", self.name, ", ".join(map(str, self.bound)))
            self.listening.set()
            await loop.create_future()
        finally:
            for server in servers:
                server.close()
            await asyncio.shield(self._stop())

    async def _stop(self) -> None:
        tasks = [connection.task for connection in self.open]
        for connection in list(self.open):
            connection.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
