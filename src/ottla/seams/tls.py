"""TLS over any stream: a `Stream` again, so that whoever reads and writes need not know.

The handshake goes on by itself; until it is complete nothing is read and no byte is taken.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from ottla.seams.clock import Clock, Timer
from ottla.seams.network import (
    Data,
    FileTooShort,
    Listener,
    Network,
    OnStream,
    Readable,
    Stream,
)
from ottla.tls.channel import PLAIN_BYTES, RECEIVE_BYTES, TlsChannel
from ottla.tls.engine import RECORD_BYTES_MAX
from ottla.tls.failure import TlsFailure

RECORD_OVERHEAD_BYTES_MAX = 512  # header, nonce, padding and tag, in any of the ciphers
HANDSHAKE_S_MAX = 30.0  # then a connection that is not through is closed
HANDSHAKE_STEPS_PER_TURN = 4  # one signs with the server's key, up to 1 ms; others have their turn

OnSettled = Callable[["TlsStream"], object]


class HandshakeQueue:
    """The handshakes of all streams of one loop: some steps per turn, in the order of arrival."""

    __slots__ = ("_scheduled", "_waiting", "buffer", "clock")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._waiting: deque[TlsStream] = deque()
        self._scheduled = False

    def add(self, stream: TlsStream) -> None:
        self._waiting.append(stream)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self.clock.call_later(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        for _ in range(min(HANDSHAKE_STEPS_PER_TURN, len(self._waiting))):
            self._waiting.popleft().handshake_step()
        self._schedule()


class TlsStream:
    """One connection of TLS over the stream `line`, which it owns.

    `on_settled` is called once, when the handshake is complete or has failed (`failure`).
    """

    __slots__ = (
        "_channel",
        "_closed",
        "_line",
        "_more",
        "_offering",
        "_on_readable",
        "_on_writable",
        "_queue",
        "_reading",
        "_timer",
        "_writing",
        "failure",
        "on_settled",
        "peer",
        "peer_host",
    )

    def __init__(
        self,
        line: Stream,
        context: ssl.SSLContext,
        queue: HandshakeQueue,
        *,
        server_side: bool = True,
        server_hostname: str | None = None,
        on_settled: OnSettled | None = None,
        handshake_s_max: float = HANDSHAKE_S_MAX,
    ) -> None:
        self.peer, self.peer_host = line.peer, line.peer_host
        self.failure: OSError | None = None  # raised by the next recv_into or send
        self._line = line
        self._channel = TlsChannel(
            line,
            context,
            queue.buffer,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        self._queue = queue
        self.on_settled = on_settled  # may be set until the loop's next turn
        self._on_readable: Callable[[], object] | None = None
        self._on_writable: Callable[[], object] | None = None
        self._closed = self._reading = self._writing = self._offering = False
        # OpenSSL may have plain bytes, for the last read filled its view; or it knows of the end.
        self._more = False
        self._timer: Timer | None = queue.clock.call_later(handshake_s_max, self._too_long)
        line.on_readable(self._line_readable)
        if not server_side:
            queue.add(self)  # the client begins

    @property
    def established(self) -> bool:
        return self._channel.established

    @property
    def peer_certificate(self) -> bytes | None:
        """What the other side has shown, in DER."""
        return self._channel.engine.peer_certificate()

    @property
    def version(self) -> str:
        return self._channel.engine.version

    @property
    def cipher(self) -> str:
        return self._channel.engine.cipher

    @property
    def _settled(self) -> bool:
        """Whether the handshake is over, well or not."""
        return self._channel.established or self.failure is not None

    # Handshake

    def handshake_step(self) -> None:
        """Called by the queue after something has come, or at the client's beginning."""
        if self._closed or self._settled:
            return
        try:
            done = self._channel.handshake()
        except OSError as error:
            self._settle(error)
            return
        if done:
            self._settle(None)
        else:
            self._line.resume()
            self._set_writing()

    def _settle(self, failure: OSError | None) -> None:
        """The handshake is over; of a failure the owner learns by its next call."""
        self.failure = failure
        self._stop_timer()
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled(self)
        if not self._closed:
            self._set_reading()
            self._offer()
            self._set_writing()

    def _too_long(self) -> None:
        self._timer = None
        self._settle(TlsFailure("the TLS handshake took too long"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Receiving

    def _line_readable(self) -> None:
        if not self._settled:
            self._line.pause()  # until its step has its turn
            self._queue.add(self)
        elif self._on_readable is not None:
            self._on_readable()

    def recv_into(self, view: Data) -> int | None:
        if self.failure is not None:
            raise self.failure
        if not self._channel.established:
            return None
        received = self._channel.recv_into(view)
        if self._channel.waits_for_line:
            self._set_writing()
        self._more = received == len(view) or (bool(received) and self._channel.engine.ended)
        if self._more:
            self._offer()
        return received

    def expect(self, size: int) -> None:
        # Of what OpenSSL has already, part of a record at most is not readable yet.
        self._line.expect(size - RECORD_BYTES_MAX - RECORD_OVERHEAD_BYTES_MAX)

    def _offer(self) -> None:
        """Plain bytes may wait in OpenSSL, of which the line says nothing."""
        if not self._offering and self._reading and not self._closed:
            self._offering = True
            self._queue.clock.call_later(0, self._offered)

    def _offered(self) -> None:
        self._offering = False
        if self._reading and not self._closed and self._on_readable is not None:
            self._on_readable()
            if self._more:  # who was called may have had to do something else first
                self._offer()

    def on_readable(self, callback: Callable[[], object]) -> None:
        self._on_readable = callback
        self.resume()

    def pause(self) -> None:
        self._reading = False
        self._set_reading()

    def resume(self) -> None:
        if not self._reading and self._on_readable is not None:
            self._reading = True
            self._set_reading()
            if self._settled:
                self._offer()

    def _set_reading(self) -> None:
        """The handshake reads whether or not the owner wants to."""
        if self._closed or not self._settled:
            return
        if self._reading:
            self._line.resume()
        else:
            self._line.pause()

    # Sending

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        if self.failure is not None:
            raise self.failure
        sent = self._channel.send(buffers)
        if self._channel.waits_for_line:
            self._set_writing()
        return sent

    def send_file(self, file: Readable, position: int, size: int) -> int:
        if self.failure is not None:
            raise self.failure
        channel = self._channel
        if not channel.may_send():
            self._set_writing()
            return 0
        wanted = min(size - channel.owed, PLAIN_BYTES)
        data: Data = file.pread(wanted, position + channel.owed) if wanted else b""
        if wanted and not data:
            raise FileTooShort
        sent = channel.encrypt(data)
        if channel.waits_for_line:
            self._set_writing()
        return sent

    def on_writable(self, callback: Callable[[], object]) -> None:
        self._on_writable = callback
        self._set_writing()

    def stop_writable(self) -> None:
        self._on_writable = None
        self._set_writing()

    def _set_writing(self) -> None:
        wanted = self._channel.waits_for_line or (self._on_writable is not None and self._settled)
        if self._closed or wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self._line.on_writable(self._line_writable)
        else:
            self._line.stop_writable()

    def _line_writable(self) -> None:
        try:
            self._channel.flush()
        except OSError as error:
            self.failure = self.failure or error
        if self._on_writable is not None and (
            self.failure is not None
            or (self._channel.established and not self._channel.waits_for_line)
        ):
            self._on_writable()
        self._set_writing()

    # Ending

    def close(self) -> None:
        if self._closed:
            return
        self._stop_timer()
        if self.failure is None:
            self._channel.end()
        self._closed = True
        self._on_readable = self._on_writable = self.on_settled = None
        self._line.close()


class TlsNetwork:
    """A network whose connections to others are of TLS; it listens as the one below does."""

    __slots__ = ("_network", "_queue", "context")

    def __init__(self, network: Network, context: ssl.SSLContext, queue: HandshakeQueue) -> None:
        self._network = network
        self.context = context  # of connections to come
        self._queue = queue

    def listen(self, host: str, port: int, on_stream: OnStream, *, backlog: int = 50) -> Listener:
        return self._network.listen(host, port, on_stream, backlog=backlog)

    async def connect(self, host: str, port: int) -> Stream:
        """A connection whose handshake is complete. Raises OSError, a TlsFailure too."""
        line = await self._network.connect(host, port)
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(stream: TlsStream) -> None:
            if not settled.done():
                settled.set_result(None)

        stream = TlsStream(
            line,
            self.context,
            self._queue,
            server_side=False,
            server_hostname=host,
            on_settled=settle,
        )
        try:
            await settled
        except BaseException:
            stream.close()
            raise
        if stream.failure is not None:
            stream.close()
            raise stream.failure
        return stream


class TlsListening:
    """A network that listens for TLS; it connects as the one below does."""

    __slots__ = ("_context", "_network", "_queue")

    def __init__(self, network: Network, context: ssl.SSLContext, queue: HandshakeQueue) -> None:
        self._network = network
        self._context = context
        self._queue = queue

    def listen(self, host: str, port: int, on_stream: OnStream, *, backlog: int = 50) -> Listener:
        def secured(line: Stream) -> None:
            on_stream(TlsStream(line, self._context, self._queue))

        return self._network.listen(host, port, secured, backlog=backlog)

    async def connect(self, host: str, port: int) -> Stream:
        return await self._network.connect(host, port)
