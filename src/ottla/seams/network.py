"""The network, handed in: streams of bytes, whoever carries them.

A `Stream` never blocks: reading and writing say how much went through, and the two callbacks say
when it is worth trying again. Both are level-triggered: the reader is called as long as bytes wait
and reading is on, the writer as long as there is space and it was asked for. `RealNetwork` is
non-blocking sockets on the event loop's `add_reader` and `add_writer`, with no task, no copy and
no buffer of its own per connection. The simulated one is in `simulated/network.py`.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

log = logging.getLogger("ottla.network")

Data: TypeAlias = bytes | bytearray | memoryview
OnStream: TypeAlias = "Callable[[Stream], object]"

ACCEPTS_PER_TURN = 64  # then the connections already there have their turn
ACCEPT_RETRY_S = 1.0  # after the process ran out of descriptors; asyncio waits as long
# A stream that expects more is woken up when so many have come, not for every packet.
EXPECTED_BYTES = 128 * 1024
BUFFERS_PER_SEND = 512  # IOV_MAX is 1,024 on Linux and macOS
PREAD_BYTES_MAX = 256 * 1024  # one step of sending a file where there is no sendfile

_MSG_MORE = getattr(socket, "MSG_MORE", 0)  # Linux: more follows at once, do not send a packet yet
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# What sendfile says where it cannot serve this pair of descriptors at all.
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSOCK, errno.EOPNOTSUPP)


class Readable(Protocol):
    """As much of the disk seam's File as sending one needs."""

    def fileno(self) -> int | None: ...

    def pread(self, size: int, position: int) -> Data: ...


class FileTooShort(Exception):
    """A file ended before the range that was promised to the peer."""


class Stream(Protocol):
    """One connection, either end of it. Errors of the line are OSErrors."""

    peer: str  # "127.0.0.1:50312", "[::1]:50312"
    peer_host: str

    def recv_into(self, view: Data) -> int | None:
        """How many bytes came; 0 when the peer has ended; None when there is nothing now."""
        ...

    def expect(self, size: int) -> None:
        """So many bytes come for certain, and nothing can be done with fewer: `on_readable` need
        not be called before. A hint, until the next one."""
        ...

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        """How many bytes went out, 0 when there is no space; `more`: a file follows at once."""
        ...

    def send_file(self, file: Readable, position: int, size: int) -> int:
        """The same for a range of a file, raising FileTooShort at its end."""
        ...

    def on_readable(self, callback: Callable[[], object]) -> None:
        """Sets who is called when bytes wait, and turns reading on."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def on_writable(self, callback: Callable[[], object]) -> None:
        """Calls back while there is space, until `stop_writable`."""
        ...

    def stop_writable(self) -> None: ...

    def close(self) -> None:
        """Ends both ways and calls nobody again; may be called twice."""
        ...


class Listener(Protocol):
    """A listening socket, or several of one host name."""

    port: int

    def pause(self) -> None:
        """Leaves newcomers in the kernel's queue."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    def listen(
        self, host: str, port: int, on_stream: OnStream, *, backlog: int = 50
    ) -> Listener: ...

    async def connect(self, host: str, port: int) -> Stream: ...


class RealStream:
    """A connected socket, non-blocking, without Nagle's delay."""

    __slots__ = (
        "_expected",
        "_loop",
        "_on_readable",
        "_reading",
        "_send",
        "_sendfile",
        "_sendmsg",
        "_socket",
        "_writing",
        "peer",
        "peer_host",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._expected = 1
        self._loop = loop
        self._socket = connected
        self._send = connected.send
        self._sendmsg = connected.sendmsg
        self._sendfile = hasattr(os, "sendfile")
        self._on_readable: Callable[[], object] | None = None
        self._reading = False
        self._writing = False
        try:
            self.peer_host, self.peer = address_text(connected.getpeername())
        except OSError:  # gone before it was greeted; the first recv says so
            self.peer_host, self.peer = "", "a vanished client"

    def recv_into(self, view: Data) -> int | None:
        try:
            return self._socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return None

    def expect(self, size: int) -> None:
        # Few values, so that a request of a megabyte costs two calls and not one per wake-up.
        wanted = EXPECTED_BYTES if size >= EXPECTED_BYTES else 1
        if wanted != self._expected:
            self._expected = wanted
            with suppress(OSError):  # gone, or a kernel without it: it wakes up more often
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        try:
            if len(buffers) == 1:
                return self._send(buffers[0], _MSG_MORE if more else 0)
            return self._sendmsg(buffers[:BUFFERS_PER_SEND], (), _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return 0

    def send_file(self, file: Readable, position: int, size: int) -> int:
        descriptor = file.fileno() if self._sendfile else None
        if descriptor is None:
            return self._pread_and_send(file, position, size)
        try:
            sent = os.sendfile(self._socket.fileno(), descriptor, position, size)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            self._sendfile = False
            return self._pread_and_send(file, position, size)
        if sent == 0:
            raise FileTooShort
        return sent

    def _pread_and_send(self, file: Readable, position: int, size: int) -> int:
        data = file.pread(min(size, PREAD_BYTES_MAX), position)
        if not data:
            raise FileTooShort
        return self.send((data,))

    def on_readable(self, callback: Callable[[], object]) -> None:
        self._on_readable = callback
        self._reading = False
        self.resume()

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        if not self._reading and self._on_readable is not None:
            self._reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def on_writable(self, callback: Callable[[], object]) -> None:
        self._writing = True
        self._loop.add_writer(self._socket, callback)

    def stop_writable(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self.pause()
        self.stop_writable()
        self._on_readable = None
        self._socket.close()


class RealListener:
    """One or more listening sockets for one host and port: a name may have several addresses."""

    __slots__ = ("_accepting", "_loop", "_on_stream", "_retry", "_sockets", "port")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        on_stream: OnStream,
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._on_stream = on_stream
        self._accepting = False
        self._retry: asyncio.TimerHandle | None = None
        self.port: int = sockets[0].getsockname()[1]
        self.resume()

    def pause(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._accepting:
            self._accepting = False
            for listening in self._sockets:
                self._loop.remove_reader(listening)

    def resume(self) -> None:
        if not self._accepting:
            self._accepting = True
            for listening in self._sockets:
                self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        self.pause()
        for listening in self._sockets:
            listening.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._accepting:  # the one before reached a limit
                return
            try:
                connected, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                log.error("no new connection for %g s: %s", ACCEPT_RETRY_S, error.strerror)
                self.pause()
                self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.resume)
                return
            try:
                stream = RealStream(self._loop, connected)
            except OSError:  # reset while it waited in the queue
                connected.close()
                continue
            self._on_stream(stream)


class RealNetwork:
    """Sockets of this machine on the event loop given."""

    __slots__ = ("_loop", "receive_buffer_bytes", "send_buffer_bytes")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        self._loop = loop
        # Kafka's socket.send.buffer.bytes and socket.receive.buffer.bytes; -1: the system's choice.
        self.send_buffer_bytes = send_buffer_bytes
        self.receive_buffer_bytes = receive_buffer_bytes

    def listen(self, host: str, port: int, on_stream: OnStream, *, backlog: int = 50) -> Listener:
        """Listens at every address of the host's name. An empty host is all of them."""
        sockets: list[socket.socket] = []
        unavailable: OSError | None = None
        try:
            for family, address in self._addresses(host, port):
                try:
                    sockets.append(self._bind(family, address, port, backlog))
                except OSError as error:
                    # A name may resolve to an IPv6 address on a machine without IPv6.
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    unavailable = error
                else:
                    port = sockets[0].getsockname()[1]
            if not sockets:
                raise unavailable or OSError(errno.EADDRNOTAVAIL, "the host has no address")
        except BaseException:
            for opened in sockets:
                opened.close()
            raise
        return RealListener(self._loop, sockets, on_stream)

    def _addresses(self, host: str, port: int) -> list[tuple[int, str]]:
        if host == "":
            return [(socket.AF_INET6, "::")] if has_ipv6() else [(socket.AF_INET, "0.0.0.0")]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return list(dict.fromkeys((int(family), str(where[0])) for family, *_, where in found))

    def _bind(self, family: int, address: str, port: int, backlog: int) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # Like Java's, the IPv6 wildcard takes IPv4 too; any other address takes its own.
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
            # Set before listening, so that accepted sockets inherit them with their window.
            for option, size in (
                (socket.SO_SNDBUF, self.send_buffer_bytes),
                (socket.SO_RCVBUF, self.receive_buffer_bytes),
            ):
                if size > 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)
            listening.bind((address, port))
            listening.listen(backlog)
        except BaseException:
            listening.close()
            raise
        return listening

    async def connect(self, host: str, port: int) -> Stream:
        """A connection to the first address of the host that answers."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError | None = None
        for family, _, _, _, address in found:
            connecting = socket.socket(family, socket.SOCK_STREAM)
            try:
                connecting.setblocking(False)
                await self._loop.sock_connect(connecting, address)
                return RealStream(self._loop, connecting)
            except OSError as error:
                connecting.close()
                failure = error
            except BaseException:
                connecting.close()
                raise
        raise failure or OSError(errno.EADDRNOTAVAIL, f"{host} has no address")


def address_text(address: object) -> tuple[str, str]:
    """The host, and host and port as one reads them in a log, from what a socket says."""
    if not isinstance(address, tuple):  # a socket pair has no address
        return "", str(address or "a local socket")
    host, port = str(address[0]), int(address[1])
    host = host.removeprefix("::ffff:") if "." in host else host
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_ipv6() -> bool:
    """Whether an IPv6 socket can be bound here at all."""
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
