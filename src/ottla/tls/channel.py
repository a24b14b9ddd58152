"""TLS over a line that never blocks, whoever watches it: a listener's stream or a client's socket.

What OpenSSL holds of plain bytes is read before more is received. While encrypted bytes wait for
the line, the last byte of a call is withheld from the count of what was sent: a sender with nothing
left to send may close the connection, for all has left.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Protocol

from .engine import TlsEngine

RECEIVE_BYTES = 256 * 1024  # of the line at a time; one buffer serves all channels of a thread
PLAIN_BYTES = 256 * 1024  # encrypted at a time, and the most that waits for the line

Bytes = bytes | bytearray | memoryview


class Line(Protocol):
    """What carries the encrypted bytes. Errors are OSErrors."""

    def recv_into(self, view: Bytes) -> int | None:
        """How many bytes came; 0 at the end; None when there is nothing now."""
        ...

    def send(self, buffers: Sequence[Bytes]) -> int:
        """How many bytes went out; 0 when there is no space."""
        ...


class TlsChannel:
    """One end of a connection of TLS; with `server_side` False it is a client's."""

    __slots__ = ("_backlog", "_buffer", "_line", "_line_ended", "_owed", "engine")

    def __init__(
        self,
        line: Line,
        context: ssl.SSLContext,
        buffer: memoryview,
        *,
        server_side: bool,
        server_hostname: str | None = None,
    ) -> None:
        self.engine = TlsEngine(context, server_side=server_side, server_hostname=server_hostname)
        self._line = line
        self._buffer = buffer
        self._backlog = memoryview(b"")  # encrypted, and not taken by the line
        self._owed = 0  # bytes encrypted whose count is withheld
        self._line_ended = False

    @property
    def established(self) -> bool:
        return self.engine.established

    @property
    def waits_for_line(self) -> bool:
        """Whether encrypted bytes wait: `flush` is to be called when the line has space."""
        return bool(self._backlog)

    def handshake(self) -> bool:
        """One step over what has come; whether the handshake is complete. What is to be said to
        the other side leaves, an alert of a failure too."""
        try:
            received = self._line.recv_into(self._buffer)
            if received:
                self.engine.feed(self._buffer[:received])
            elif received == 0:
                self.engine.feed_end()
            return self.engine.handshake()
        finally:
            self.flush()

    def recv_into(self, view: Bytes) -> int | None:
        """Plain bytes: how many, 0 at the end, None when there is nothing now.

        When the view is full more may be there, of which the line says nothing: ask again.
        """
        engine, target, done = self.engine, memoryview(view), 0
        size = len(target)
        while True:
            done += engine.read_into(target[done:])
            if done == size:
                break
            if engine.ended or self._line_ended:
                return done
            received = self._line.recv_into(self._buffer)
            if received is None:
                break
            if not received:
                self._line_ended = True
                engine.feed_end()
                continue
            engine.feed(self._buffer[:received])
            if received < len(self._buffer):  # all there was; the line says when more comes
                done += engine.read_into(target[done:])
                if engine.ended and not done:
                    return 0
                break
        if engine.outgoing:  # an answer to the other side's change of keys
            self.flush()
        return done or None

    def may_send(self) -> bool:
        """Whether plain bytes are taken now: the handshake is complete and nothing waits."""
        if not self.engine.established:
            return False
        self.flush()
        return not self._backlog

    @property
    def owed(self) -> int:
        """How many of the next bytes are encrypted already."""
        return self._owed

    def send(self, buffers: Sequence[Bytes]) -> int:
        """How many plain bytes count as sent; 0 when the line has no space."""
        if not self.may_send():
            return 0
        owed = self._owed
        if len(buffers) == 1:
            return self.encrypt(memoryview(buffers[0])[owed : owed + PLAIN_BYTES])
        joined = bytearray()
        for buffer in buffers:
            joined += memoryview(buffer)[: PLAIN_BYTES + owed - len(joined)]
            if len(joined) == PLAIN_BYTES + owed:
                break
        return self.encrypt(memoryview(joined)[owed:])

    def encrypt(self, data: Bytes) -> int:
        """Send what follows the `owed` bytes; how many count as sent, those with them."""
        taken, self._owed = self._owed, 0
        if data:
            taken += self.engine.write(data)
            self.flush()
        if self._backlog and taken:
            self._owed = 1
            taken -= 1
        return taken

    def flush(self) -> None:
        """Gives the line what it takes of what is encrypted."""
        while True:
            if not self._backlog:
                if not self.engine.outgoing:
                    return
                self._backlog = memoryview(self.engine.take())
            sent = self._line.send((self._backlog,))
            if not sent:
                return
            self._backlog = self._backlog[sent:]

    def end(self) -> None:
        """Says that nothing follows, if the line takes it at once."""
        if self.engine.established:
            self.engine.end()
            try:
                self.flush()
            except OSError:
                pass
