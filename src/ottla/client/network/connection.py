"""One connection to one broker: agree on versions, send requests, match answers to them.

It lives in the loop's thread. Requests wait until the connection stands and ApiVersions is
answered; each is then written in the highest version that both sides know. Answers come in the
order of the requests. When the connection ends, every request still open fails with a
`KafkaConnectionError`; whoever asked decides whether to ask again.
"""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ottla import __version__
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.header import finish, skip_tagged_fields, start_request
from ottla.wire.malformed import WireError
from ottla.wire.out import Out
from ottla.wire.schema import reader, writer

from ..errors import (
    CorrelationIdError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    error_for,
)
from .bulk_receive import Ahead
from .io_thread import Loop
from .name_resolution import Places, resolve
from .receive_buffers import Buffers

log = logging.getLogger("ottla.client")

API_VERSIONS_KEY = 18
RECEIVE_BYTES = 64 * 1024
SEND_PARTS_MAX = 64
WAITING = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)

unpack_size = struct.Struct(">i").unpack_from


class Request:
    """A question under way."""

    __slots__ = (
        "answered", "correlation_id", "deadline", "future", "message", "version", "version_max",
    )  # fmt: skip

    def __init__(
        self, message: Any, deadline: float, *, answered: bool = True, version_max: int = 32767
    ) -> None:
        self.message = message
        self.deadline = deadline
        self.answered = answered
        self.version_max = version_max
        self.version = -1
        self.correlation_id = -1
        self.future: Future[Any] = Future()

    @property
    def name(self) -> str:
        return type(self.message).__name__.removesuffix("Request")


class Connection:
    """A socket to one broker; `ended` is called once with the reason."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        config: dict[str, Any],
        ended: Callable[[Connection, KafkaError], object],
        ready: Callable[[Connection], object],
        buffers: Buffers,
    ) -> None:
        self.loop = loop
        self.address = address
        self.config = config
        self.ended = ended
        self.ready = ready
        self.buffers = buffers
        self.socket: socket.socket | None = None
        self.places: Places = []
        self.connected = False
        self.asked_again = False
        self.versions: dict[int, tuple[int, int]] | None = None
        self.features: dict[str, int] = {}
        self.closed = False
        self.waiting: deque[Request] = deque()
        self.in_flight: deque[Request] = deque()
        self.outgoing: deque[memoryview] = deque()
        self.flush_planned = False
        self.write_wanted = False
        self.correlation_id = 0
        self.buffer = bytearray(RECEIVE_BYTES)
        self.filled = 0
        self.large: memoryview | None = None
        self.ahead = Ahead(self)
        self.used_at = time.monotonic()

    @property
    def name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def open_requests(self) -> int:
        return len(self.waiting) + len(self.in_flight)

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
        for option, name in (
            ("receive_buffer_bytes", socket.SO_RCVBUF),
            ("send_buffer_bytes", socket.SO_SNDBUF),
        ):
            size = self.config[option]
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
        self._ask_versions(API[API_VERSIONS_KEY].versions[1])

    def _ask_versions(self, version: int) -> None:
        timeout_s = self.config["request_timeout_ms"] / 1000
        message = ApiVersionsRequest(
            client_software_name="ottla", client_software_version=__version__
        )
        request = Request(message, time.monotonic() + timeout_s)
        request.version = version
        request.future.add_done_callback(self._heard_versions)
        self._write(request)

    def _heard_versions(self, future: Future[Any]) -> None:
        if future.exception() is not None:
            return  # the connection has ended
        answer: ApiVersionsResponse = future.result()
        versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:  # KIP-511: ask again in one it has
            highest = versions.get(API_VERSIONS_KEY, (0, 0))[1]
            if not self.asked_again:
                self.asked_again = True
                self._ask_versions(min(max(highest, 0), API[API_VERSIONS_KEY].versions[1]))
                return
        if answer.error_code:
            self.close(KafkaConnectionError(f"{self.name}: {error_for(answer.error_code)}"))
            return
        self.versions = versions
        self.features = {f.name: f.max_version_level for f in answer.finalized_features}
        self.ready(self)
        while self.waiting and not self.closed:
            self._send_now(self.waiting.popleft())

    # Requests

    def send(self, request: Request) -> None:
        """Send, or keep until the connection stands."""
        if self.closed:
            request.future.set_exception(KafkaConnectionError(f"{self.name}: closed"))
        elif self.versions is None:
            self.waiting.append(request)
        else:
            self._send_now(request)

    def _send_now(self, request: Request) -> None:
        problem = self._choose_version(request)
        if problem is not None:
            request.future.set_exception(problem)
            return
        self._write(request)

    def _choose_version(self, request: Request) -> KafkaError | None:
        schema = type(request.message).__schema__
        assert self.versions is not None
        low, high = schema.versions
        theirs = self.versions.get(schema.key)
        if theirs is not None:
            request.version = min(high, theirs[1], request.version_max)
            if request.version >= max(low, theirs[0]):
                return None
        has = f"has it in versions {theirs[0]} to {theirs[1]}" if theirs else "does not have it"
        return error_for(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{request.name} is needed in version {low} to {min(high, request.version_max)}, "
            f"and the broker {self.name} {has}",
        )

    def _write(self, request: Request) -> None:
        kind = type(request.message)
        self.correlation_id = request.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        out = start_request(
            kind.__schema__.key, request.version, request.correlation_id, self.config["client_id"]
        )
        try:
            writer(kind, request.version)(request.message, out)
        except WireError as problem:
            request.future.set_exception(KafkaError(f"{request.name} cannot be sent: {problem}"))
            return
        self._queue(finish(out))
        self.used_at = time.monotonic()
        if request.answered:
            self.in_flight.append(request)
            self.ahead.expect()
        if not self.flush_planned:
            self.flush_planned = True
            self.loop.at_end_of_turn(self._flush)
        if not request.answered:
            request.future.set_result(None)

    def _queue(self, out: Out) -> None:
        """The frame's bytes in order; ranges are views of batches, which are not copied."""
        frame, start = memoryview(out), 0
        for position, blob in out.blobs:
            self.outgoing.append(frame[start:position])
            self.outgoing.append(blob.file[blob.position : blob.position + blob.size])
            start = position
        if start < len(frame):
            self.outgoing.append(frame[start:])

    # The socket

    def _ready_for(self, mask: int) -> None:
        if self.closed:
            return
        if not self.connected:
            self._connection_made()
            return
        if mask & selectors.EVENT_READ:
            self._receive()
        if mask & selectors.EVENT_WRITE and not self.closed:
            self._flush()

    def _flush(self) -> None:
        self.flush_planned = False
        if self.closed or self.socket is None:
            return
        outgoing = self.outgoing
        while outgoing:
            parts = [outgoing[i] for i in range(min(len(outgoing), SEND_PARTS_MAX))]
            try:
                sent = self.socket.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as problem:
                self.close(KafkaConnectionError(f"{self.name}: {problem.strerror or problem}"))
                return
            while sent:
                if sent < len(outgoing[0]):
                    outgoing[0] = outgoing[0][sent:]
                    break
                sent -= len(outgoing.popleft())
        if bool(outgoing) is not self.write_wanted:
            self.write_wanted = bool(outgoing)
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if outgoing else 0)
            self.loop.selector.modify(self.socket, mask, self._ready_for)

    def _receive(self) -> None:
        """Read what is there; of a large frame that begins, most has come already."""
        begun = self.large is not None
        self._read()
        if self.large is not None and not begun and not self.closed:
            self._read()

    def _read(self) -> None:
        """Read once; small frames through one buffer, a large one straight into its own."""
        assert self.socket is not None
        target = self.large if self.large is not None else memoryview(self.buffer)
        try:
            size = self.socket.recv_into(target[self.filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self.close(KafkaConnectionError(f"{self.name}: {problem.strerror or problem}"))
            return
        if size == 0:
            self.close(KafkaConnectionError(f"{self.name} closed the connection"))
            return
        self.filled += size
        self.used_at = time.monotonic()
        try:
            if self.large is None:
                self._split()
            else:
                self.finish()
        except (WireError, KafkaError) as problem:
            self.close(InvalidReceiveError(f"{self.name}: {problem}"))

    def _split(self) -> None:
        """Take the whole frames out of the buffer; what is left moves to its front."""
        pos, filled = 0, self.filled
        while filled - pos >= 4 and not self.closed:
            size = self._size(self.buffer, pos)
            end = pos + 4 + size
            if end > filled:
                if size > RECEIVE_BYTES - 4:
                    self._begin_large(size, memoryview(self.buffer)[pos + 4 : filled])
                    return
                break
            frame = bytes(memoryview(self.buffer)[pos + 4 : end])
            pos = end
            self.ahead.heard(size, large=False)
            self._answer(memoryview(frame))
        if pos:
            self.buffer[: filled - pos] = self.buffer[pos:filled]
        self.filled = filled - pos

    def _size(self, data: bytearray | memoryview, pos: int) -> int:
        size: int = unpack_size(data, pos)[0]
        if not 0 <= size <= self.config["receive_message_max_bytes"]:
            raise InvalidReceiveError(f"a frame of {size} bytes")
        return size

    def _begin_large(self, size: int, data: memoryview) -> None:
        """A large frame of which only `data` has come."""
        self.large = self.buffers.lend(size)
        self.filled = len(data)
        self.large[: self.filled] = data

    def begin(self, memory: memoryview, filled: int) -> None:
        """A frame has been received into `memory`, or part of it: so many bytes, size first."""
        size = self._size(memory, 0) if filled >= 4 else 0
        if RECEIVE_BYTES - 4 < size <= len(memory) - 4:
            self.large, self.filled = memory[4 : 4 + size], filled - 4
        elif filled > RECEIVE_BYTES:
            self._begin_large(size, memory[4:filled])
        else:
            self.buffer[:filled] = memory[:filled]
            self.filled = filled
            self._split()

    def finish(self) -> bool:
        """Whether no large frame is under way; the last one is answered if it is whole."""
        if self.large is None:
            return True
        if self.filled < len(self.large):
            return False
        frame, self.large, self.filled = self.large, None, 0
        self.ahead.heard(len(frame), large=True)
        self._answer(frame)
        return True

    def _answer(self, frame: memoryview) -> None:
        if not self.in_flight:
            raise CorrelationIdError("an answer without a question")
        request = self.in_flight.popleft()
        (correlation_id,) = unpack_size(frame, 0)
        if correlation_id != request.correlation_id:
            self.in_flight.appendleft(request)
            raise CorrelationIdError(
                f"answer {correlation_id} where {request.correlation_id} was asked"
            )
        api = API[type(request.message).__schema__.key]
        version, pos = request.version, 4
        if api.flexible_response(version):
            pos = skip_tagged_fields(frame, pos, api.name)
        if api.key == API_VERSIONS_KEY and bytes(frame[pos : pos + 2]) == b"\x00\x23":
            version = 0
        try:
            message, _ = reader(api.response, version)(frame, pos)
        except WireError:
            self.in_flight.appendleft(request)
            raise
        request.future.set_result(message)

    # The end

    def expire(self, now: float) -> None:
        """Fail what has waited too long; an answer that does not come ends the connection."""
        expired = [each for each in self.waiting if each.deadline <= now]
        for request in expired:
            self.waiting.remove(request)
            request.future.set_exception(
                KafkaTimeoutError(f"{request.name}: no connection to {self.name} in time")
            )
        if expired and not self.connected and not self.waiting:
            # Nobody answers there, not even with a no: others are tried first from now on.
            self.close(KafkaConnectionError(f"{self.name}: no connection in time"))
            return
        late = next((each for each in self.in_flight if each.deadline <= now), None)
        if late is not None:
            self.in_flight.remove(late)
            text = f"{self.name} did not answer {late.name} in time"
            late.future.set_exception(error_for(ErrorCode.REQUEST_TIMED_OUT, text))
            self.close(KafkaConnectionError(text))

    def close(self, reason: KafkaError) -> None:
        """End it; every open request fails with `reason`."""
        if self.closed:
            return
        self.closed = True
        if self.socket is not None:
            self.loop.selector.unregister(self.socket)
            self.socket.close()
        self.ended(self, reason)
        for request in [*self.in_flight, *self.waiting]:
            request.future.set_exception(reason)
        self.in_flight.clear()
        self.waiting.clear()
        self.outgoing.clear()
