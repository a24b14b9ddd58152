"""A very small HTTP server: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes.

One request per connection, GET and HEAD, nothing else. It runs on the loop of the broker, or of the
agent, so every step is small (the text of many partitions is made in slices) and everything is
bounded: the connections at a time, the bytes of a request, the seconds an exchange may take.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.seams.clock import Clock, Timer
from ottla.seams.network import Listener, Network, Stream

log = logging.getLogger("ottla.metrics")

REQUEST_BYTES_MAX = 8 * 1024
EXCHANGES_MAX = 32  # at a time; a further one is answered with 503
EXCHANGE_S_MAX = 10.0
LINES_PER_TURN = 500
PLAIN = "text/plain; charset=utf-8"


class Page(Protocol):
    """What `/metrics` shows: `Metrics` in a broker."""

    content_type: str

    def lines(self) -> Iterator[str]: ...


Ready = Callable[[], str]  # why it is not ready; empty when it is


class MetricsServer:
    """Answers on one address from `listen` to `close`."""

    def __init__(self, network: Network, clock: Clock, metrics: Page, not_ready: Ready) -> None:
        self.metrics = metrics
        self.clock = clock
        self.not_ready = not_ready
        self.exchanges: set[Exchange] = set()
        self._network = network
        self._listener: Listener | None = None

    def listen(self, host: str, port: int) -> int:
        """Opens the address and returns its port. Raises OSError."""
        self._listener = self._network.listen(host, port, self._connected)
        return self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for exchange in list(self.exchanges):
            exchange.close()

    def _connected(self, stream: Stream) -> None:
        exchange = Exchange(self, stream)
        if len(self.exchanges) >= EXCHANGES_MAX:
            exchange.answer("503 Service Unavailable", "too many connections at a time\n")
        self.exchanges.add(exchange)


class Exchange:
    """One connection: a request, an answer, the end."""

    __slots__ = (
        "_body",
        "_head_only",
        "_lines",
        "_out",
        "_received",
        "_server",
        "_stream",
        "_timer",
    )

    def __init__(self, server: MetricsServer, stream: Stream) -> None:
        self._server = server
        self._stream = stream
        self._received = bytearray()
        self._lines: Iterator[str] | None = None
        self._body: list[str] = []
        self._head_only = False
        self._out = memoryview(b"")
        self._timer: Timer = server.clock.call_later(EXCHANGE_S_MAX, self.close)
        stream.on_readable(self._readable)

    def close(self) -> None:
        self._timer.cancel()
        self._stream.close()
        self._lines = None
        self._server.exchanges.discard(self)

    def _readable(self) -> None:
        piece = bytearray(REQUEST_BYTES_MAX)
        try:
            size = self._stream.recv_into(piece)
        except OSError:
            size = 0
        if size is None:
            return
        if not size:
            self.close()
            return
        self._received += memoryview(piece)[:size]
        received = bytes(self._received)
        if b"\r\n\r\n" in received or b"\n\n" in received:
            self._stream.pause()
            self._respond(received)
        elif len(received) > REQUEST_BYTES_MAX:
            self._stream.pause()
            self.answer("431 Request Header Fields Too Large", "the request is too long\n")

    def _respond(self, received: bytes) -> None:
        words = received.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self.answer("400 Bad Request", "this is no HTTP request\n")
            return
        method, target = words[0], words[1].split(b"?", 1)[0]
        self._head_only = method == b"HEAD"
        if method not in (b"GET", b"HEAD"):
            self.answer("405 Method Not Allowed", "only GET and HEAD\n")
        elif target == b"/metrics":
            self._lines = self._server.metrics.lines()
            self._collect()
        elif target == b"/healthz":
            self.answer("200 OK", "ok\n")
        elif target == b"/readyz":
            reason = self._server.not_ready()
            if reason:
                self.answer("503 Service Unavailable", f"{reason}\n")
            else:
                self.answer("200 OK", "ok\n")
        else:
            self.answer("404 Not Found", "there is /metrics, /healthz and /readyz\n")

    def _collect(self) -> None:
        """Makes a slice of the text, and goes on after others had their turn."""
        if self._lines is None:  # closed meanwhile
            return
        try:
            for _ in range(LINES_PER_TURN):
                line = next(self._lines, None)
                if line is None:
                    self._lines = None
                    body = "\n".join(self._body) + "\n"
                    self.answer("200 OK", body, self._server.metrics.content_type)
                    return
                self._body.append(line)
        except Exception:
            log.exception("a metric cannot be read")
            self._lines = None
            self.answer("500 Internal Server Error", "a metric cannot be read; see the log\n")
            return
        self._server.clock.call_later(0, self._collect)

    def answer(self, status: str, body: str, content_type: str = PLAIN) -> None:
        encoded = body.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(encoded)}\r\nConnection: close\r\n\r\n"
        )
        self._stream.pause()
        self._out = memoryview(head.encode() + (b"" if self._head_only else encoded))
        self._stream.on_writable(self._writable)

    def _writable(self) -> None:
        try:
            sent = self._stream.send((self._out,))
        except OSError:
            self.close()
            return
        self._out = self._out[sent:]
        if not self._out:
            self.close()
