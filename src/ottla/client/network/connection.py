"""One connection to one broker: the socket below an exchange of requests and responses.

It belongs to the loop's thread. Versions, correlation ids and the order of responses are the
business of `ottla.wire.exchange`; here are the connection attempts, the bytes, and the deadlines.
When the connection ends, every request still open fails with a `KafkaConnectionError`; the caller
decides whether to ask again.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import selectors
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.tls.failure import TlsFailure
from ottla.wire import exchange
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import Frame, FrameReader
from ottla.wire.malformed import UnsupportedVersion, WireError
from ottla.wire.receive_buffers import Buffers
from ottla.wire.schema import RequestFor, Struct

from ..errors import (
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SslAuthenticationError,
    error_for,
)
from ..typed_config import ClientConfig
from .bulk_receive import BulkReceiver
from .io_thread import Loop
from .name_resolution import Places, resolve
from .security import Security
from .socket_line import SocketLine

if TYPE_CHECKING:
    from ottla.tls.channel import TlsChannel

log = logging.getLogger("ottla.client")

READS_PER_TURN = 64  # of a connection of TLS
WAITING = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)


class Request(exchange.Request):
    """A request under way, with its deadline and the future of its response."""

    __slots__ = ("deadline", "future")

    def __init__(
        self,
        message: RequestFor[Struct],
        deadline: float,
        *,
        answered: bool = True,
        version_max: int = exchange.VERSION_MAX,
    ) -> None:
        super().__init__(message, answered=answered, version_max=version_max)
        self.deadline = deadline
        self.future: Future[Any] = Future()  # of the response; `Client.submit` knows its type


class Connection:
    """A socket to one broker; `ended` is called once with the reason."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        config: ClientConfig,
        ended: Callable[[Connection, KafkaError], object],
        ready: Callable[[Connection], object],
        buffers: Buffers,
        security: Security,
    ) -> None:
        self.loop = loop
        self.address = address
        self.config = config
        self.ended = ended
        self.ready = ready
        self.buffers = buffers
        self.security = security
        self.channel: TlsChannel | None = None  # of TLS, over the socket
        self.socket: socket.socket | None = None
        self.places: Places = []
        self.connected = False
        self.closed = False
        self.flush_planned = False
        self.write_wanted = False
        self.frames = FrameReader(config["receive_message_max_bytes"], buffers.lend)
        self.exchange: exchange.Exchange[Request] = exchange.Exchange(
            self.frames,
            client_id=config["client_id"],
            software=("ottla", __version__),
            logins=security.logins(),
        )
        self.negotiation_deadline = math.inf  # of ApiVersions and the login under way
        self.bulk = BulkReceiver(self)
        self.used_at = time.monotonic()

    @property
    def name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def open_requests(self) -> int:
        return self.exchange.open_count

    @property
    def versions(self) -> dict[int, tuple[int, int]] | None:
        """The broker's versions of each API; None until it has answered ApiVersions."""
        return self.exchange.versions

    @property
    def features(self) -> dict[str, int]:
        """The finalized features of the broker's cluster."""
        return self.exchange.features

    # Connecting

    def connect(self) -> None:
        """Begin with the first address of the host, once it is known."""
        resolve(self.loop, self.address, self._resolved)

    def _resolved(self, places: Places, problem: OSError | None) -> None:
        if self.closed:
            return
        if problem is not None:
            self.close(KafkaConnectionError(f"{self.name}: {problem.strerror or problem}"))
            return
        self.places = places
        self._try_next_place(f"{self.name} has no address")

    def _try_next_place(self, reason: str) -> None:
        while self.places:
            family, kind, protocol, _, place = self.places.pop(0)
            try:
                made = socket.socket(family, kind, protocol)
                made.setblocking(False)
                self._tune(made)
                code = made.connect_ex(place)
            except OSError as problem:
                reason = f"{self.name}: {problem.strerror or problem}"
                continue
            if code in (0, *WAITING):
                self.socket = made
                self.write_wanted = True
                self.loop.selector.register(
                    made, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready_for
                )
                return
            reason = f"{self.name}: {os.strerror(code)}"
            made.close()
        self.close(KafkaConnectionError(reason))

    def _tune(self, made: socket.socket) -> None:
        for level, name, value in self.config["socket_options"] or ():
            made.setsockopt(level, name, value)
        for size, name in (
            (self.config["receive_buffer_bytes"], socket.SO_RCVBUF),
            (self.config["send_buffer_bytes"], socket.SO_SNDBUF),
        ):
            if size is not None and size >= 0:
                made.setsockopt(socket.SOL_SOCKET, name, size)

    def _connection_made(self) -> None:
        assert self.socket is not None
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.loop.selector.unregister(self.socket)
            self.socket.close()
            self.socket = None
            self._try_next_place(f"{self.name}: {os.strerror(code)}")
            return
        self.connected = True
        self._set_negotiation_deadline()
        if self.security.context is None:
            self._established()
            return
        from ottla.tls.channel import TlsChannel

        self.channel = TlsChannel(
            SocketLine(self.socket),
            self.security.context,
            self.security.buffer,
            server_side=False,
            server_hostname=self.address[0],
        )
        self._shake_hands()

    def _set_negotiation_deadline(self) -> None:
        self.negotiation_deadline = time.monotonic() + self.config["request_timeout_ms"] / 1000

    def _shake_hands(self) -> None:
        """A step of the handshake of TLS, when the socket is ready for it."""
        assert self.channel is not None
        try:
            done = self.channel.handshake()
        except TlsFailure as problem:
            kind = KafkaConnectionError if problem.ended else SslAuthenticationError
            self.close(kind(f"{self.name}: {problem}"))
            return
        except OSError as problem:
            self.close(KafkaConnectionError(f"{self.name}: {problem.strerror or problem}"))
            return
        if done:
            self._established()
        self._want_writing()

    def _established(self) -> None:
        """The line is there: ask for the broker's versions."""
        self.exchange.connected()
        self._plan_flush()

    # Requests

    def send(self, request: Request) -> None:
        """Send, or keep until the broker's versions are known."""
        if self.closed:
            request.future.set_exception(KafkaConnectionError(f"{self.name}: closed"))
            return
        ready = self.exchange.ready
        settled = self.exchange.send(request)
        self.used_at = time.monotonic()
        if ready and not self.exchange.ready:  # the login is repeated first
            self._set_negotiation_deadline()
        if request.answered and not settled and self.exchange.ready and self.channel is None:
            self.bulk.expect()
        self._plan_flush()
        self._settle(settled)

    def _settle(self, settled: list[exchange.Settled[Request]]) -> None:
        """Complete the futures; their callbacks may send more, or close this connection."""
        for request, response, error in settled:
            if error is None:
                request.future.set_result(response)
            elif isinstance(error, UnsupportedVersion):
                text = f"{self.name}: {error}"
                request.future.set_exception(error_for(ErrorCode.UNSUPPORTED_VERSION, text))
            else:
                text = f"{request.name} cannot be sent: {error}"
                request.future.set_exception(KafkaError(text))

    def _plan_flush(self) -> None:
        if self.exchange.outgoing and not self.flush_planned:
            self.flush_planned = True
            self.loop.at_end_of_turn(self._flush)

    # The socket

    def _ready_for(self, mask: int) -> None:
        if self.closed:
            return
        if not self.connected:
            self._connection_made()
            return
        if self.channel is not None and not self.channel.established:
            self._shake_hands()
            return
        if mask & selectors.EVENT_READ:
            self._receive()
        if mask & selectors.EVENT_WRITE and not self.closed:
            self._flush()

    def _flush(self) -> None:
        self.flush_planned = False
        if self.closed or self.socket is None:
            return
        outgoing, channel = self.exchange.outgoing, self.channel
        while outgoing:
            try:
                if channel is None:
                    sent = self.socket.sendmsg(self.exchange.next_parts())
                elif not (sent := channel.send(self.exchange.next_parts())):
                    break
            except (BlockingIOError, InterruptedError):
                break
            except OSError as problem:
                self.close(KafkaConnectionError(f"{self.name}: {problem.strerror or problem}"))
                return
            self.exchange.sent(sent)
        self._want_writing()

    def _want_writing(self) -> None:
        if self.closed or self.socket is None:
            return
        wanted = bool(self.exchange.outgoing)
        if self.channel is not None:
            wanted = self.channel.waits_for_line or (wanted and self.channel.established)
        if wanted is not self.write_wanted:
            self.write_wanted = wanted
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
            self.loop.selector.modify(self.socket, mask, self._ready_for)

    def _receive(self) -> None:
        """Read what is there; of a large frame that begins, most has come already."""
        if self.channel is not None:
            self._receive_secured()
            return
        begun = self.frames.large is not None
        self._read()
        if self.frames.large is not None and not begun and not self.closed:
            self._read()

    def _receive_secured(self) -> None:
        """Read until nothing is left in OpenSSL, of which the socket says nothing; the other
        connections have their turn meanwhile."""
        for _ in range(READS_PER_TURN):
            if self.closed or not self._read():
                return
        self.loop.call_soon(self._receive_again)

    def _receive_again(self) -> None:
        if not self.closed:
            self._receive_secured()

    def _read(self) -> bool:
        """Read once, into the place that the frame under way needs; whether anything was there."""
        assert self.socket is not None
        target = self.frames.target()
        try:
            if self.channel is None:
                size = self.socket.recv_into(target)
            else:
                found = self.channel.recv_into(target)
                if found is None:
                    self._want_writing()
                    return False
                size = found
        except (BlockingIOError, InterruptedError):
            return False
        except TlsFailure as problem:
            kind = KafkaConnectionError if problem.ended else SslAuthenticationError
            self.close(kind(f"{self.name}: {problem}"))
            return False
        except OSError as problem:
            self.close(KafkaConnectionError(f"{self.name}: {problem.strerror or problem}"))
            return False
        if size == 0:
            self.close(KafkaConnectionError(f"{self.name} closed the connection"))
            return False
        self.take(lambda: self.frames.received(size))
        return True

    def take(self, frames: Callable[[], list[Frame]]) -> None:
        """Settle the requests that these frames answer; what is malformed ends the connection."""
        self.used_at = time.monotonic()
        try:
            for frame in frames():
                if self.closed:
                    return
                self.bulk.received(len(frame.data), large=frame.large)
                self._answer(frame.data)
        except exchange.LoginFailed as problem:
            self.close(error_for(problem.error_code, f"{self.name}: {problem}"))
        except exchange.VersionsRefused as problem:
            self.close(KafkaConnectionError(f"{self.name}: {error_for(problem.error_code)}"))
        except WireError as problem:
            self.close(InvalidReceiveError(f"{self.name}: {problem}"))

    def _answer(self, frame: memoryview) -> None:
        negotiating = not self.exchange.ready
        settled = self.exchange.answer(frame)
        if negotiating:  # what waited for the versions is written now, or the question again
            self._plan_flush()
            if self.exchange.ready:
                self.ready(self)
        self._settle(settled)

    # Deadlines and the end of the connection

    def expire(self, now: float) -> None:
        """Fail what has waited too long; an answer that does not come ends the connection."""
        waiting, in_flight = self.exchange.waiting, self.exchange.in_flight
        expired = [each for each in waiting if each.deadline <= now]
        for request in expired:
            waiting.remove(request)
            request.future.set_exception(
                KafkaTimeoutError(f"{request.name}: no connection to {self.name} in time")
            )
        if expired and not self.connected and not waiting:
            # Nobody answers there, not even with a refusal: others are tried first from now on.
            self.close(KafkaConnectionError(f"{self.name}: no connection in time"))
            return
        late = next((each for each in in_flight if each.deadline <= now), None)
        if late is not None:
            in_flight.remove(late)
            text = f"{self.name} did not answer {late.name} in time"
            late.future.set_exception(error_for(ErrorCode.REQUEST_TIMED_OUT, text))
            self.close(KafkaConnectionError(text))
        elif not self.exchange.ready and self.negotiation_deadline <= now:
            self.close(
                KafkaConnectionError(f"{self.name} did not answer ApiVersions or the login in time")
            )

    def close(self, reason: KafkaError) -> None:
        """End it; every open request fails with `reason`."""
        if self.closed:
            return
        self.closed = True
        if self.socket is not None:
            if self.channel is not None:
                self.channel.end()
            self.loop.selector.unregister(self.socket)
            self.socket.close()
        self.ended(self, reason)
        open_requests = [*self.exchange.in_flight, *self.exchange.waiting]
        self.exchange.in_flight.clear()
        self.exchange.waiting.clear()
        self.exchange.outgoing.clear()
        for request in open_requests:
            request.future.set_exception(reason)
