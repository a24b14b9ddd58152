"""A network in memory: latency, full buffers, cut and slow links, crashed hosts, one seed.

Each direction of a connection is a pipe: bytes written are readable after the latency of the link
(with `jitter_s`, up to so much later, in order all the same); a pipe takes `buffer_bytes` and then
0 bytes per send until the reader has taken some. A cut link holds all bytes and lets new
connections hang until it is healed. With a `Chance` each read and write moves only a part of what
it could, as real sockets may.

Arrivals run on the network's clock, readers and writers on the clock of their host, so that a host
that crashed is never called again and what it had sent arrives all the same.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence

from ottla.seams.chance import Chance
from ottla.seams.clock import Clock
from ottla.seams.network import (
    Data,
    FileTooShort,
    Listener,
    Network,
    OnStream,
    Readable,
    Stream,
)

BUFFER_BYTES = 64 * 1024
FIRST_PORT = 40_000
# Linux sends the first packet of a connection again after these pauses, then gives up.
CONNECT_AGAIN_S = (1, 2, 4, 8, 16, 32, 64)


class Pipe:
    """One direction: what was written and when it can be read."""

    __slots__ = ("arrived", "ended", "held_back", "reader", "size", "travelling", "writer")

    def __init__(self) -> None:
        self.arrived = bytearray()
        self.travelling: deque[bytes] = deque()
        self.held_back: deque[bytes] = deque()  # by a cut
        self.size = 0  # of all three
        self.ended = False
        self.reader: SimulatedStream | None = None
        self.writer: SimulatedStream | None = None


class SimulatedStream:
    """One end of a connection."""

    def __init__(
        self, network: SimulatedNetwork, host: str, peer_host: str, peer_port: int
    ) -> None:
        self._network = network
        self.host = host
        self.peer_host = peer_host
        self.peer = f"{peer_host}:{peer_port}"
        self.incoming = Pipe()
        self.outgoing = Pipe()
        self.closed = False
        self.broken = False
        self.vanished = False  # its host lost power: the peer has not been informed
        self._clock = network.clock_of(host)
        self._reader: Callable[[], object] | None = None
        self._writer: Callable[[], object] | None = None
        self._reading = False
        self._read_scheduled = self._write_scheduled = False

    def recv_into(self, view: Data) -> int | None:
        self._check()
        pipe = self.incoming
        if not pipe.arrived:
            return 0 if pipe.ended and not pipe.size else None
        space = len(view)
        size = self._network.part(min(space, len(pipe.arrived)))
        with memoryview(view) as target:
            target[:size] = pipe.arrived[:size]
        del pipe.arrived[:size]
        pipe.size -= size
        if pipe.writer is not None:
            pipe.writer.wake_writer()
        return size

    def expect(self, size: int) -> None:
        """Bytes are shown as they arrive: who asks must bear that."""

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        self._check()
        space = self._network.buffer_bytes - self.outgoing.size
        whole = b"".join(buffers)
        size = self._network.part(min(space, len(whole)))
        if size > 0:
            self._network.carry(self, whole[:size])
        return max(size, 0)

    def send_file(self, file: Readable, position: int, size: int) -> int:
        space = self._network.buffer_bytes - self.outgoing.size
        if space <= 0:
            return 0
        data = file.pread(min(size, space), position)
        if not data:
            raise FileTooShort
        return self.send((data,))

    def on_readable(self, callback: Callable[[], object]) -> None:
        self._reader = callback
        self.resume()

    def pause(self) -> None:
        self._reading = False

    def resume(self) -> None:
        self._reading = True
        self.wake_reader()

    def on_writable(self, callback: Callable[[], object]) -> None:
        self._writer = callback
        self.wake_writer()

    def stop_writable(self) -> None:
        self._writer = None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._reader = self._writer = None
            self._network.end(self)

    # What the network does

    def break_off(self) -> None:
        """A reset has arrived: every later call raises ConnectionResetError."""
        self.broken = True
        self.wake_reader()
        self.wake_writer()

    def wake_reader(self) -> None:
        if not self._read_scheduled and self._can_read():
            self._read_scheduled = True
            self._clock.call_later(0, self._run_reader)

    def wake_writer(self) -> None:
        if not self._write_scheduled and self._can_write():
            self._write_scheduled = True
            self._clock.call_later(0, self._run_writer)

    def _can_read(self) -> bool:
        pipe = self.incoming
        ready = bool(pipe.arrived) or self.broken or (pipe.ended and not pipe.size)
        return ready and self._reading and self._reader is not None

    def _can_write(self) -> bool:
        space = self.outgoing.size < self._network.buffer_bytes
        return self._writer is not None and (space or self.broken)

    def _run_reader(self) -> None:
        self._read_scheduled = False
        if self._can_read() and self._reader is not None:
            self._reader()
            self.wake_reader()

    def _run_writer(self) -> None:
        self._write_scheduled = False
        if self._can_write() and self._writer is not None:
            self._writer()
            self.wake_writer()

    def _check(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "the stream is closed")
        if self.broken:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class SimulatedListener:
    def __init__(
        self, network: SimulatedNetwork, host: str, port: int, on_stream: OnStream, backlog: int
    ) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.backlog = backlog
        self.queue: deque[SimulatedStream] = deque()
        self._on_stream = on_stream
        self._accepting = True

    def pause(self) -> None:
        self._accepting = False

    def resume(self) -> None:
        self._accepting = True
        self._network.clock_of(self.host).call_later(0, self.accept)

    def close(self) -> None:
        self._network.listeners.pop((self.host, self.port), None)
        while self.queue:
            self._network.reset(self.queue.popleft())

    def accept(self) -> None:
        while self._accepting and self.queue:
            self._on_stream(self.queue.popleft())


class HostNetwork:
    """The seam's network for one host."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self._network = network
        self.host = host

    def listen(self, host: str, port: int, on_stream: OnStream, *, backlog: int = 50) -> Listener:
        return self._network.listen(self.host, port, on_stream, backlog)

    async def connect(self, host: str, port: int) -> Stream:
        return await self._network.connect(self.host, host, port)


class SimulatedNetwork:
    """All hosts and the links between them."""

    def __init__(
        self,
        clock: Clock,
        *,
        latency_s: float = 0.0,
        jitter_s: float = 0.0,
        buffer_bytes: int = BUFFER_BYTES,
        chance: Chance | None = None,
        split_share: float = 1.0,
    ) -> None:
        assert not jitter_s or chance is not None, "jitter is drawn from a Chance"
        self.clock = clock
        self.latency_s = latency_s
        self.jitter_s = jitter_s
        self.buffer_bytes = buffer_bytes
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.streams: list[SimulatedStream] = []
        self._chance = chance
        self._split_share = split_share
        self._clocks: dict[str, Clock] = {}
        self._latencies: dict[frozenset[str], float] = {}
        self._cut: set[tuple[str, str]] = set()  # from, to
        self._ended_in_cut: list[SimulatedStream] = []
        self._down: set[str] = set()
        self._next_port = FIRST_PORT
        # Called with all that is sent: from, to, bytes.
        self.on_sent: Callable[[str, str, bytes], object] | None = None

    def host(self, name: str, clock: Clock | None = None) -> Network:
        """The network of one host, whose callbacks run on its clock; again after a crash."""
        if clock is not None:
            self._clocks[name] = clock
        if name in self._down:
            self._down.remove(name)
            self._reset_forgotten(name)
        return HostNetwork(self, name)

    def clock_of(self, host: str) -> Clock:
        return self._clocks.get(host, self.clock)

    def slow(self, one: str, other: str, latency_s: float | None) -> None:
        """Give one link a latency of its own, both ways; None: that of all others again."""
        if latency_s is None:
            self._latencies.pop(frozenset((one, other)), None)
        else:
            self._latencies[frozenset((one, other))] = latency_s

    def cut(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Let nothing pass from one to the other until `heal`; neither is informed."""
        self._cut.add((one, other))
        if both_ways:
            self._cut.add((other, one))

    def heal(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Let everything pass again; what was held is delivered now."""
        ways = [(one, other), (other, one)] if both_ways else [(one, other)]
        self._cut.difference_update(ways)
        for stream in [*self.streams, *self._ended_in_cut]:
            if (stream.host, stream.peer_host) in ways:
                held, stream.outgoing.held_back = stream.outgoing.held_back, deque()
                for data in held:
                    self._travel(stream.outgoing, data)
                if stream in self._ended_in_cut:
                    self._ended_in_cut.remove(stream)
                    self._announce_end(stream)

    def crash(self, host: str, *, power: bool = False) -> None:
        """End all listeners and connections of a host.

        When a process dies, its kernel resets the connections. Without power nobody does: a peer
        gets no answer, and a reset for what it has sent once the host is back (`host`).
        """
        for key in [key for key in self.listeners if key[0] == host]:
            self.listeners[key].close()
        for stream in [each for each in self.streams if each.host == host]:
            if power:
                stream.closed = stream.vanished = True
                self.streams.remove(stream)
            else:
                self.reset(stream)
        if power:
            self._down.add(host)

    def reset(self, stream: SimulatedStream) -> None:
        """End a connection from one side with a reset, which a cut link holds back."""
        if not stream.closed:
            stream.broken = True
            stream.close()

    def part(self, size: int) -> int:
        """How much of what could be moved is moved."""
        if self._chance is None or size <= 1:
            return size
        if self._split_share < 1 and self._chance.integer(0, 999) >= self._split_share * 1000:
            return size
        return self._chance.integer(1, size)

    def listen(self, host: str, port: int, on_stream: OnStream, backlog: int) -> Listener:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = SimulatedListener(self, host, port, on_stream, backlog)
        self.listeners[host, port] = listener
        return listener

    async def connect(self, source: str, host: str, port: int) -> Stream:
        await self._pass(source, self._latency_s(source, host))
        for pause_s in CONNECT_AGAIN_S:
            if not self._unreachable(source, host):
                break
            await self._pass(source, pause_s)
        return self.connect_now(source, host, port)

    async def _pass(self, host: str, seconds: float) -> None:
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.clock_of(host).call_later(seconds, _resolve, passed)
        await passed

    def _unreachable(self, source: str, host: str) -> bool:
        return (source, host) in self._cut or (host, source) in self._cut or host in self._down

    def connect_now(self, source: str, host: str, port: int) -> SimulatedStream:
        """The same without waiting. Raises OSError."""
        if self._unreachable(source, host):
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
        listener = self.listeners.get((host, port))
        if listener is None or len(listener.queue) >= listener.backlog:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._next_port += 1
        near = SimulatedStream(self, source, host, port)
        far = SimulatedStream(self, host, source, self._next_port)
        near.outgoing, far.outgoing = far.incoming, near.incoming
        for writer, reader in ((near, far), (far, near)):
            writer.outgoing.writer, writer.outgoing.reader = writer, reader
        self.streams += (near, far)
        listener.queue.append(far)
        self.clock_of(host).call_later(0, listener.accept)
        return near

    def carry(self, stream: SimulatedStream, data: bytes) -> None:
        if self.on_sent is not None:
            self.on_sent(stream.host, stream.peer_host, data)
        pipe = stream.outgoing
        pipe.size += len(data)
        reader = pipe.reader
        if (stream.host, stream.peer_host) in self._cut or stream.peer_host in self._down:
            pipe.held_back.append(data)
        elif reader is not None and reader.vanished:
            self.clock.call_later(self._latency_s(stream.host, stream.peer_host), stream.break_off)
        else:
            self._travel(pipe, data)

    def end(self, stream: SimulatedStream) -> None:
        stream.outgoing.ended = True
        self.streams.remove(stream)
        if (stream.host, stream.peer_host) in self._cut:
            self._ended_in_cut.append(stream)
        else:
            self._announce_end(stream)

    def _announce_end(self, stream: SimulatedStream) -> None:
        reader = stream.outgoing.reader
        if reader is not None and not reader.closed:
            announce = reader.break_off if stream.broken else reader.wake_reader
            self.clock.call_later(self._latency_s(stream.host, stream.peer_host), announce)

    def _reset_forgotten(self, host: str) -> None:
        """A host that is back answers what was sent to its connections of before with a reset."""
        for stream in self.streams:
            if stream.peer_host == host and stream.outgoing.held_back:
                self.clock.call_later(self._latency_s(stream.host, host), stream.break_off)

    def _latency_s(self, one: str, other: str) -> float:
        latency_s = self.latency_s
        if self._latencies:
            latency_s = self._latencies.get(frozenset((one, other)), latency_s)
        if self.jitter_s and self._chance is not None:
            latency_s += self._chance.integer(0, round(self.jitter_s * 1e6)) / 1e6
        return latency_s

    def _travel(self, pipe: Pipe, data: bytes) -> None:
        assert pipe.writer is not None
        pipe.travelling.append(data)
        latency_s = self._latency_s(pipe.writer.host, pipe.writer.peer_host)
        self.clock.call_later(latency_s, self._arrive, pipe)

    def _arrive(self, pipe: Pipe) -> None:
        pipe.arrived += pipe.travelling.popleft()
        if pipe.reader is not None:
            pipe.reader.wake_reader()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # a caller that gave up has cancelled it
        future.set_result(None)
