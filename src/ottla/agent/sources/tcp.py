"""TCP servers of sources: many connections on the agent's loop, each slowed by a full channel.

While a connection's handler waits for the channel nothing more is read from its socket, so its
client waits too; while all connections together hold much, nothing is read from any. When the
source stops, what was received goes to the channel first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol, cast

logger = logging.getLogger(__name__)
PENDING_BYTES_MAX = 64 * 1024  # received and not handled; then reading stops
HELD_BYTES_MAX = 16 * 1024 * 1024  # the same of all connections, with what waits for the channel
LINGER_S = 5.0
STOP_S = 2.0  # for what was received when the source stops
HANDSHAKE_S = 10.0  # of TLS
BACKLOG = 1024  # connections that wait to be accepted; one more waits a second or longer
# Of a source. All of an agent have at most half of its descriptors. More are closed at once.
CONNECTIONS_MAX = 10_000
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

    def due_s(self) -> float | None:
        """By when the client has sent what it began; None if it may take its time."""

    def late(self) -> bytes:
        """The answer to a client that has not."""


class Peer(Protocol):
    """Both ends of a connection."""

    @property
    def client(self) -> tuple[str, int]: ...

    @property
    def port(self) -> int: ...

    def end_late(self) -> None:
        """Ends the connection as one whose client has not sent in time what it began."""


class Connection(asyncio.Protocol):
    """Bytes from the socket to the handler, answers back."""

    def __init__(self, handler_of: Callable[[Peer], Handler], server: TcpServer) -> None:
        self._handler_of = handler_of
        self._server = server
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._held_bytes = 0  # pending, or with the handler
        self._is_paused = False
        self._at_end = False  # the client sends no more
        self._is_broken = False  # it ended without the client's having said so
        self._is_late = False
        self._stopping = False
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.client: tuple[str, int] = ("", 0)
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.admits():
            self._transport.abort()
            return
        keep_alive(transport.get_extra_info("socket"))
        self.client = tuple((transport.get_extra_info("peername") or ("", 0))[:2])
        self.port = (transport.get_extra_info("sockname") or ("", 0))[1]
        self._server.open.add(self)
        if self._server.tls is not None:
            self._is_paused = True  # its first bytes are for the handshake
            self._transport.pause_reading()
        self.adjust_reading()
        self.task = asyncio.create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._held_bytes += len(data)
        self.adjust_reading()
        self._server.holds(len(data))
        self._changed.set()

    def adjust_reading(self) -> None:
        """Reads, or does not, as what is held allows."""
        if self._stopping or self._transport.is_closing() or self._in_handshake():
            return
        full = self._pending_bytes >= PENDING_BYTES_MAX or self._server.is_full
        if full and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        elif not full and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _in_handshake(self) -> bool:
        return self._server.tls is not None and self._transport.get_extra_info("ssl_object") is None

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

    def end_late(self) -> None:
        self._is_late = True
        self._changed.set()

    async def _run(self) -> None:
        """Connections that have not shaken hands count, too: they have descriptors."""
        try:
            if self._server.tls is not None:
                await self._shake_hands(self._server.tls)
            await self._serve()
        except (OSError, TimeoutError, ssl.SSLError) as problem:
            logger.debug("The connection from %s:%d ends: %s", *self.client, problem)
        finally:
            self._server.open.discard(self)
            self._server.holds(-self._held_bytes)
            self._transport.close()

    async def _shake_hands(self, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(
            self._transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
        )
        if transport is None:  # it was closed meanwhile
            raise ConnectionResetError("gone during the handshake")
        self._transport = transport
        self._is_paused = False
        self.adjust_reading()

    async def _serve(self) -> None:
        handler = self._handler_of(self)
        try:
            while not (self._stopping and not self._pending):
                if self._pending:
                    block = self._take()
                    answer = await handler.received(block)
                    self._let_go(len(block))
                    await self._write(answer)
                elif self._is_broken:
                    break
                elif self._at_end:
                    await self._write(await handler.ended())
                    break
                elif self._is_late:
                    answer = handler.late()
                    raise EndConnection(answer, lingers=bool(answer))
                else:
                    await self._wait(handler)
        except EndConnection as end:
            await self._write(end.answer)
            if end.lingers:
                await self._linger()
        except TimeoutError:
            logger.debug("The connection from %s:%d is idle, and ends", *self.client)
        except Exception:
            logger.exception("The connection from %s:%d fails", *self.client)
        finally:
            handler.closed()

    async def _wait(self, handler: Handler) -> None:
        """For more; a client that sends nothing, or too slowly, has ended then."""
        self._changed.clear()
        due_s, wait_s = handler.due_s(), self._server.idle_s
        if due_s is not None:
            left_s = due_s - time.monotonic()
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        try:
            await asyncio.wait_for(self._changed.wait(), wait_s)
        except TimeoutError:
            answer = handler.late()
            raise EndConnection(answer, lingers=bool(answer)) from None

    async def _linger(self) -> None:
        """Until the client ends, too."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the client is gone already
                self._transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not (self._at_end or self._stopping):
                    self._let_go(len(self._take()))
                    self._changed.clear()
                    await self._changed.wait()

    def _take(self) -> bytes:
        block = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self.adjust_reading()
        return block

    def _let_go(self, size: int) -> None:
        self._held_bytes -= size
        self._server.holds(-size)

    async def _write(self, answer: bytes) -> None:
        """A client that does not take its answers waits, or is idle."""
        if answer and not self._transport.is_closing():
            self._transport.write(answer)
            try:
                await asyncio.wait_for(self._may_write.wait(), self._server.idle_s)
            except TimeoutError:
                self._transport.abort()
                raise


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
        """A connection that sends nothing for `idle_s` seconds, or takes no answer, ends."""
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
        self.descriptors_max = limit if unlimited else limit // 2  # of all servers
        self.held_bytes = 0
        self.is_full = False  # nothing is read until half of it is handled
        self._said_s = -SAY_AGAIN_S
        _servers.add(self)

    def holds(self, size: int) -> None:
        """So many bytes more, or fewer, were received and are not in the channel."""
        self.held_bytes += size
        was_full = self.is_full
        if self.held_bytes >= HELD_BYTES_MAX:
            self.is_full = True
        elif self.held_bytes <= HELD_BYTES_MAX // 2:
            self.is_full = False
        if was_full is not self.is_full:
            for connection in self.open:
                connection.adjust_reading()

    def admits(self) -> bool:
        """Whether another connection may be open: the sinks need descriptors, too."""
        of_all = sum(len(server.open) for server in _servers)
        if len(self.open) < self.connections_max and (
            self.descriptors_max < 0 or of_all < self.descriptors_max
        ):
            return True
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = now_s
            logger.warning(
                "Source %s: %d connections are open, with those of other sources %d, which is all "
                "there may be; others are closed. ulimit -n allows more, up to %d for a source",
                self.name,
                len(self.open),
                of_all,
                CONNECTIONS_MAX,
            )
        return False

    async def run(self, handler_of: Callable[[Peer], Handler]) -> None:
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        try:
            for port in self.ports:
                server = await loop.create_server(
                    lambda: Connection(handler_of, self), self.host, port, backlog=BACKLOG
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


_servers: weakref.WeakSet[TcpServer] = weakref.WeakSet()  # of this process: descriptors are its own
