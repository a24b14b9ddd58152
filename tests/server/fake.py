"""A dispatcher, files and a client that do what a test tells them, for connections under test."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from ottla.broker.dispatch import Peer, PeerError, Pending
from ottla.wire.out import FileRange, Out


def frame(payload: bytes) -> bytes:
    """One request as it stands on the wire."""
    return struct.pack(">i", len(payload)) + payload


def answer(payload: bytes) -> Out:
    """One answer as it stands on the wire."""
    return Out(struct.pack(">i", len(payload)) + payload)


class MemoryFile:
    """A file without a descriptor."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.preads = 0

    def fileno(self) -> int | None:
        return None

    def pread(self, size: int, position: int) -> bytes:
        self.preads += 1
        return self.data[position : position + size]

    def is_cached(self, position: int, size: int) -> bool:
        return True


def file_answer(before: bytes, file: object, position: int, size: int, after: bytes) -> Out:
    """An answer with a file range in its middle."""
    out = Out(struct.pack(">i", len(before) + size + len(after)) + before)
    out.add_blob(FileRange(file, position, size))
    out += after
    return out


def later(on_cancel: Callable[[], object], exclusive: bool) -> Pending:
    """A pending answer whose response is the frame itself."""
    pending = Pending(exclusive=exclusive)
    pending.on_cancel(on_cancel)
    pending.on_settled(lambda response, error: response)
    return pending


class Script:
    """Answers by the first byte of a request:

    `e…` echoes the rest; `n…` nothing; `p…` an answer to be settled by `settle(rest)`; `x…` the
    same and exclusive; `b…` a fault of the peer's; `c…` a crash; others by `rules`.
    """

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.views: list[memoryview] = []
        self.keep_views = False
        self.pending: dict[bytes, list[Pending]] = {}
        self.rules: dict[int, Callable[[bytes, Peer], Out | Pending | None]] = {}
        self.cancelled: list[bytes] = []

    def handle(self, request: memoryview, peer: Peer) -> Out | Pending | None:
        payload = bytes(request)
        self.seen.append(payload)
        if self.keep_views:
            self.views.append(request)
        kind, rest = payload[:1], payload[1:]
        if kind == b"e":
            return answer(rest)
        if kind == b"n":
            return None
        if kind in (b"p", b"x"):
            pending = later(lambda: self.cancelled.append(rest), kind == b"x")
            self.pending.setdefault(rest, []).append(pending)
            return pending
        if kind == b"b":
            raise PeerError(f"bad request {rest!r}")
        if kind == b"c":
            raise RuntimeError("a fault of ours")
        return self.rules[payload[0]](rest, peer)

    def settle(self, rest: bytes, out: Out | None = None) -> None:
        self.pending[rest].pop(0).resolve(out if out is not None else answer(rest))


class Client:
    """A plain blocking-free client socket for asyncio tests."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Client:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connecting = socket.socket(family)
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, (host, port))
        return cls(connecting)

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.socket, data)

    async def ask(self, *payloads: bytes) -> None:
        await self.send(b"".join(map(frame, payloads)))

    async def exactly(self, size: int, timeout_s: float = 60) -> bytes:
        """So many bytes, or fewer when the server closes before."""
        got = bytearray()
        async with asyncio.timeout(timeout_s):
            while len(got) < size:
                try:
                    piece = await self.loop.sock_recv(self.socket, min(size - len(got), 1 << 20))
                except ConnectionError:
                    break
                if not piece:
                    break
                got += piece
        return bytes(got)

    async def answers(self, count: int, timeout_s: float = 60) -> list[bytes]:
        found = []
        for _ in range(count):
            (size,) = struct.unpack(">i", await self.exactly(4, timeout_s))
            found.append(await self.exactly(size, timeout_s))
        return found

    async def ended(self, timeout_s: float = 60) -> bool:
        """Whether the server has closed, with nothing more to read."""
        return await self.exactly(1, timeout_s) == b""

    async def silent(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for a while."""
        try:
            await self.exactly(1, seconds)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.socket.close()
