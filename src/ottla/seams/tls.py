"""TLS over any stream: a `Stream` again, so that whoever reads and writes need not know.

The handshake goes on by itself; until it is complete nothing is read and no byte is taken. What
OpenSSL holds of plain bytes is offered before more is received, for the line does not say again
that it is there. A sent byte counts as sent when its record has left: the last byte of a call is
withheld from the count while a part of the records waits.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence

from ottla.seams.clock import Clock, Timer
from ottla.seams.network import Data, FileTooShort, Readable, Stream
from ottla.tls.engine import TlsEngine
from ottla.tls.failure import TlsFailure

HANDSHAKE_S_MAX = 30.0  # then a connection that is not through is closed
HANDSHAKE_STEPS_PER_TURN = 4  # one signs with the server's key, up to 1 ms; others have their turn
RECEIVE_BYTES = 256 * 1024  # of the line at a time, shared by all streams of a loop
PLAIN_BYTES = 256 * 1024  # encrypted at a time

OnEstablished = Callable[["TlsStream"], object]


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
    """One connection of TLS over the stream `line`, which it owns."""

    __slots__ = (
        "_backlog",
        "_closed",
        "_ended",
        "_engine",
        "_failure",
        "_offering",
        "_on_established",
        "_on_readable",
        "_on_writable",
        "_owed",
        "_queue",
        "_reading",
        "_timer",
        "_writing",
        "line",
        "peer",
        "peer_host",
    )

    def __init__(
        self,
        line: Stream,
        context: ssl.SSLContext,
        queue: HandshakeQueue,
        *,
        server_hostname: str | None = None,
        server_side: bool = True,
        on_established: OnEstablished | None = None,
        handshake_s_max: float = HANDSHAKE_S_MAX,
    ) -> None:
        self.line = line
        self.peer, self.peer_host = line.peer, line.peer_host
        self._engine = TlsEngine(context, server_side=server_side, server_hostname=server_hostname)
        self._queue = queue
        self._on_established = on_established
        self._on_readable: Callable[[], object] | None = None
        self._on_writable: Callable[[], object] | None = None
        self._backlog = memoryview(b"")  # encrypted, and not taken by the line
        self._owed = 0  # bytes encrypted whose count was withheld
        self._failure: OSError | None = None  # raised by the next recv_into or send
        self._ended = self._closed = self._reading = self._writing = self._offering = False
        self._timer: Timer | None = queue.clock.call_later(handshake_s_max, self._too_long)
        line.on_readable(self._line_readable)
        if not server_side:
            queue.add(self)  # the client begins

    @property
    def established(self) -> bool:
        return self._engine.established

    @property
    def engine(self) -> TlsEngine:
        return self._engine

    # Handshake

    def handshake_step(self) -> None:
        """Called by the queue, after something has come or at the client's beginning."""
        if self._closed or self._failure is not None or self._engine.established:
            return
        try:
            received = self.line.recv_into(self._queue.buffer)
            if received:
                self._engine.feed(self._queue.buffer[:received])
            elif received == 0:
                self._engine.feed_end()
            done = self._engine.handshake()
            self._flush()
        except OSError as error:
            self._fail(error)
            return
        if done:
            self._stop_timer()
            if self._on_established is not None:
                established, self._on_established = self._on_established, None
                established(self)
            if self._closed:
                return
            self._set_reading()
            self._offer()
        else:
            self.line.resume()
        self._set_writing()

    def _fail(self, error: OSError) -> None:
        """The owner learns of it by its next call; an alert for the other side leaves now."""
        self._failure = error
        self._stop_timer()
        try:
            self._flush()
        except OSError:
            pass
        if self._on_established is not None:
            established, self._on_established = self._on_established, None
            established(self)
        self._offer()

    def _too_long(self) -> None:
        self._timer = None
        self._fail(TlsFailure("the TLS handshake took too long"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def failure(self) -> OSError | None:
        """Why the handshake failed, if it did."""
        return self._failure

    # Receiving

    def _line_readable(self) -> None:
        if not self._engine.established and self._failure is None:
            self.line.pause()  # until its step has its turn
            self._queue.add(self)
        elif self._on_readable is not None:
            self._on_readable()

    def recv_into(self, view: Data) -> int | None:
        if self._failure is not None:
            raise self._failure
        engine = self._engine
        if not engine.established:
            return None
        target = memoryview(view)
        done = 0
        while True:
            done += engine.read_into(target[done:])
            if done == len(target):
                break
            if engine.ended or self._ended:
                return done if done else 0
            buffer = self._queue.buffer
            received = self.line.recv_into(buffer)
            if received is None:
                break
            if not received:
                self._ended = True
                engine.feed_end()
                continue
            engine.feed(buffer[:received])
        if engine.outgoing:  # an answer to the other side's change of keys
            self._flush()
            self._set_writing()
        if done == len(target):
            self._offer()
        return done or None

    def _offer(self) -> None:
        """Plain bytes may wait in OpenSSL, of which the line says nothing."""
        if not self._offering and self._reading and not self._closed:
            self._offering = True
            self._queue.clock.call_later(0, self._offered)

    def _offered(self) -> None:
        self._offering = False
        if self._reading and not self._closed and self._on_readable is not None:
            self._on_readable()

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
            if self._engine.established or self._failure is not None:
                self._offer()

    def _set_reading(self) -> None:
        """The handshake reads whether or not the owner wants to."""
        if self._closed or (not self._engine.established and self._failure is None):
            return
        if self._reading:
            self.line.resume()
        else:
            self.line.pause()

    # Sending

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        if not self._may_send():
            return 0
        owed = self._owed
        if len(buffers) == 1:
            data: Data = memoryview(buffers[0])[owed : owed + PLAIN_BYTES]
        else:
            joined = bytearray()
            for buffer in buffers:
                joined += memoryview(buffer)[: PLAIN_BYTES + owed - len(joined)]
                if len(joined) >= PLAIN_BYTES + owed:
                    break
            data = memoryview(joined)[owed:]
        return self._encrypt(data)

    def send_file(self, file: Readable, position: int, size: int) -> int:
        if not self._may_send():
            return 0
        wanted = min(size - self._owed, PLAIN_BYTES)
        if not wanted:
            return self._encrypt(b"")
        data = file.pread(wanted, position + self._owed)
        if not data:
            raise FileTooShort
        return self._encrypt(data)

    def _may_send(self) -> bool:
        """Whether more may be encrypted: nothing waits for the line."""
        if self._failure is not None:
            raise self._failure
        if not self._engine.established:
            return False
        self._flush()
        return not self._backlog

    def _encrypt(self, data: Data) -> int:
        taken = self._owed
        self._owed = 0
        if data:
            taken += self._engine.write(data)
            self._flush()
        if self._backlog and taken:
            self._owed = 1
            taken -= 1
            self._set_writing()
        return taken

    def _flush(self) -> None:
        """Gives the line what it takes of what is encrypted."""
        while True:
            if not self._backlog:
                if not self._engine.outgoing:
                    return
                self._backlog = memoryview(self._engine.take())
            sent = self.line.send((self._backlog,))
            if not sent:
                return
            self._backlog = self._backlog[sent:]

    def on_writable(self, callback: Callable[[], object]) -> None:
        self._on_writable = callback
        self._set_writing()

    def stop_writable(self) -> None:
        self._on_writable = None
        self._set_writing()

    def _set_writing(self) -> None:
        wanted = bool(self._backlog) or (
            self._on_writable is not None and (self._engine.established or bool(self._failure))
        )
        if self._closed or wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self.line.on_writable(self._line_writable)
        else:
            self.line.stop_writable()

    def _line_writable(self) -> None:
        try:
            self._flush()
        except OSError as error:
            self._failure = self._failure or error
        if self._on_writable is not None and (not self._backlog or self._failure):
            self._on_writable()
        self._set_writing()

    # Ending

    def close(self) -> None:
        if self._closed:
            return
        self._stop_timer()
        if self._engine.established and self._failure is None:
            self._engine.end()
            try:
                self._flush()
            except OSError:
                pass
        self._closed = True
        self._on_readable = self._on_writable = self._on_established = None
        self.line.close()
