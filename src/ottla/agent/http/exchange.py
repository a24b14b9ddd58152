"""One connection of HTTP/1.1: requests in, answers out, parsed by h11.

The answer to a request comes when `handle` has dealt with it, and only then the next request is
looked at. What a connection may keep is limited: the head of a request, its body, and the bodies of
all connections together; and so is how long a client may take to send a request.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn

import h11

from ..sources.tcp import EndConnection
from .requests import Request

HEAD_BYTES_MAX = 16 * 1024  # of a request's first line and headers
# A request has this time, and as much again as its bytes take at this pace; then it is given up.
REQUEST_S = 30.0
REQUEST_BYTES_PER_S = 1024
ALL_BODIES_BYTES_MAX = 256 * 1024 * 1024  # of requests that are not answered yet
EVENTS_METHODS = (b"POST", b"GET", b"HEAD")
# As Flume's server answers them.
OTHER_METHODS = {
    b"PUT": HTTPStatus.METHOD_NOT_ALLOWED,
    b"DELETE": HTTPStatus.METHOD_NOT_ALLOWED,
    b"OPTIONS": HTTPStatus.FORBIDDEN,
    b"TRACE": HTTPStatus.FORBIDDEN,
}


class Answer(NamedTuple):
    status: HTTPStatus
    sentence: str = ""


Handle = Callable[[Request], Awaitable[Answer]]


class Bodies:
    """How many bytes of requests are kept, of all connections of a source."""

    def __init__(self, bytes_max: int = ALL_BODIES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0


class Exchange:
    """What a `TcpServer` does with one connection."""

    def __init__(
        self,
        handle: Handle,
        bodies: Bodies,
        body_bytes_max: int,
        *,
        refusal: Answer | None = None,
        waits: Callable[[Exchange], None] = lambda _: None,
        closed: Callable[[Exchange], None] = lambda _: None,
    ) -> None:
        """With a refusal each request is answered by it. Says when it begins to wait for a request
        or for the rest of one, and when it is closed."""
        self._waits = waits
        self._closed = closed
        self.is_waiting = True  # for the client
        self._handle = handle
        self._bodies = bodies
        self._body_bytes_max = body_bytes_max
        self._refusal = refusal
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._received_bytes = 0  # of the request that comes
        self.waits_since_s = time.monotonic()  # for the next request, or for the end of this one
        self.has_begun = False  # a request, of which more is to come

    def due_s(self) -> float | None:
        if not self.has_begun:
            return None
        return self.waits_since_s + REQUEST_S + self._received_bytes / REQUEST_BYTES_PER_S

    def late(self) -> bytes:
        """Nothing, if no request was begun."""
        if not self.has_begun or self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        sentence = f"The request took too long: at least {REQUEST_BYTES_PER_S} bytes/s are needed."
        return self._answer(Answer(HTTPStatus.REQUEST_TIMEOUT, sentence), close=True)

    def _wait(self, *, has_begun: bool) -> None:
        self.has_begun, self.waits_since_s = has_begun, time.monotonic()
        self._waits(self)

    async def received(self, block: bytes) -> bytes:
        if not self.has_begun:
            self._wait(has_begun=True)
        self._received_bytes += len(block)
        self._http.receive_data(block)
        return await self._go_on()

    async def ended(self) -> bytes:
        self._http.receive_data(b"")
        return await self._go_on()

    def closed(self) -> None:
        """The connection is gone, with what was not answered."""
        self._forget_body()
        self._closed(self)

    async def _go_on(self) -> bytes:
        """Deals with all that is whole; returns the answers."""
        out = bytearray()
        while True:
            try:
                event: Any = self._http.next_event()
            except h11.RemoteProtocolError as problem:
                status = HTTPStatus(problem.error_status_hint)
                self._refuse(out, Answer(status, f"Bad message. {problem}"))
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    out += self._send(h11.InformationalResponse(status_code=100, headers=[]))
                return bytes(out)
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise EndConnection(bytes(out))
            if isinstance(event, h11.Request):
                self._request = event
                if (refusal := self._look_at(event)) is not None:
                    self._refuse(out, refusal)
            elif isinstance(event, h11.Data):
                if (refusal := self._keep(event)) is not None:
                    self._refuse(out, refusal)
            elif isinstance(event, h11.EndOfMessage):
                self.is_waiting = False
                out += self._answer(await self._handle(self._whole()))
                self.is_waiting = True
                self._forget_body()
                if self._http.our_state is not h11.DONE:
                    raise EndConnection(bytes(out))
                self._http.start_next_cycle()
                self._received_bytes = len(self._http.trailing_data[0])
                self._wait(has_begun=self._received_bytes > 0)

    def _look_at(self, request: h11.Request) -> Answer | None:
        """Why a request is refused before its body is read."""
        if self._refusal is not None:
            return self._refusal
        head = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        if head > HEAD_BYTES_MAX:
            return Answer(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"The head of a request has {HEAD_BYTES_MAX} bytes at most.",
            )
        if not request.http_version.startswith(b"1."):
            return Answer(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here.")
        method = bytes(request.method)
        if method not in EVENTS_METHODS:
            status = OTHER_METHODS.get(method, HTTPStatus.NOT_IMPLEMENTED)
            return Answer(status, f"HTTP method {method.decode()} is not supported: use POST.")
        for name, value in request.headers:
            if name == b"content-length" and int(value) > self._body_bytes_max:
                return self._too_large()
        return None

    def _too_large(self) -> Answer:
        return Answer(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body of a request has {self._body_bytes_max} bytes at most "
            "(handler.maxBlobLength): send fewer events at a time.",
        )

    def _keep(self, data: h11.Data) -> Answer | None:
        """A part of the body; or why it is refused."""
        size = len(data.data)
        if self._body_bytes + size > self._body_bytes_max:
            return self._too_large()
        if self._bodies.bytes + size > self._bodies.bytes_max:
            sentence = f"Requests under way have {self._bodies.bytes_max} bytes at most: try later."
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
        self._body.append(bytes(data.data))
        self._body_bytes += size
        self._bodies.bytes += size
        return None

    def _forget_body(self) -> None:
        self._bodies.bytes -= self._body_bytes
        self._body_bytes = 0
        self._body = []

    def _whole(self) -> Request:
        assert self._request is not None
        _, _, query = bytes(self._request.target).partition(b"?")
        return Request(
            b"".join(self._body),
            query.partition(b"#")[0].decode("latin-1"),
            {name.decode(): value.decode("latin-1") for name, value in self._request.headers},
        )

    def _refuse(self, out: bytearray, answer: Answer) -> NoReturn:
        """Answers before the request is whole, and ends the connection."""
        self._forget_body()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            out += self._answer(answer, close=True)
        raise EndConnection(bytes(out), lingers=True)

    def _answer(self, answer: Answer, *, close: bool = False) -> bytes:
        body = f"{answer.sentence}\n".encode() if answer.sentence else b""
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Length", str(len(body))),
        ]
        if body:
            headers.append(("Content-Type", "text/plain; charset=utf-8"))
        if close:
            headers.append(("Connection", "close"))
        out = self._send(
            h11.Response(
                status_code=answer.status.value, headers=headers, reason=answer.status.phrase
            )
        )
        if body and not (self._request is not None and self._request.method == b"HEAD"):
            out += self._send(h11.Data(data=body))
        return out + self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""
