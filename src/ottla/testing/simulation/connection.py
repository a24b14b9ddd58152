"""A connection of a simulated client to a simulated broker: the wire protocol, pipelined."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.wire.apis import EVERY_API
from ottla.wire.frames import FrameReader
from ottla.wire.header import finish, start_request
from ottla.wire.schema import reader, writer

if TYPE_CHECKING:
    from ottla.seams.network import Stream
    from ottla.seams.simulated.simulation import Node

PORT = 9092
ANSWER_S_MAX = 30.0  # virtual; a client gives up then, as request.timeout.ms makes it
FRAME_BYTES_MAX = 10 * 1024 * 1024
API_BY_REQUEST = {f"{api.name}Request": api for api in EVERY_API.values()}


class Connection:
    """Requests on one stream, answered in order."""

    def __init__(self, stream: Stream) -> None:
        self.closed = False
        self._stream = stream
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._outgoing = bytearray()
        self._open: deque[tuple[int, Any, int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        stream.on_readable(self._read)

    @classmethod
    async def open(cls, node: Node, host: str, port: int = PORT) -> Connection:
        """Connect. Raises OSError, TimeoutError."""
        async with asyncio.timeout(ANSWER_S_MAX):
            return cls(await node.network.connect(host, port))

    def post(self, request: Any, version: int) -> asyncio.Future[Any]:
        """Send a request; a future of the decoded answer, or of None when there will be none."""
        api = API_BY_REQUEST[type(request).__name__]
        self._correlation_id += 1
        out = start_request(api.key, version, self._correlation_id, "simulated")
        writer(type(request), version)(request, out)
        finish(out)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.closed:
            answer.set_result(None)
            return answer
        self._open.append((self._correlation_id, api, version, answer))
        self._outgoing += out
        self._write()
        return answer

    async def ask(self, request: Any, version: int) -> Any:
        """The decoded answer to one request. Raises OSError or TimeoutError; then it is closed."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                answer = await self.post(request, version)
        except BaseException:
            self.close()
            raise
        if answer is None:
            raise ConnectionResetError("the broker closed the connection")
        return answer

    def close(self) -> None:
        """End the connection; what was not answered never will be."""
        if self.closed:
            return
        self.closed = True
        self._stream.close()
        unanswered, self._open = self._open, deque()
        for _, _, _, answer in unanswered:
            if not answer.done():
                answer.set_result(None)

    def _write(self) -> None:
        try:
            while self._outgoing:
                sent = self._stream.send([self._outgoing])
                if not sent:
                    self._stream.on_writable(self._write)
                    return
                del self._outgoing[:sent]
            self._stream.stop_writable()
        except OSError:
            self.close()

    def _read(self) -> None:
        try:
            size = self._stream.recv_into(self._frames.target())
        except OSError:
            size = 0
        if size == 0:
            self.close()
        elif size is not None:
            for frame in self._frames.received(size):
                self._answered(frame.data)

    def _answered(self, frame: memoryview) -> None:
        expected, api, version, answer = self._open.popleft()
        found = int.from_bytes(frame[:4], "big", signed=True)
        assert found == expected, f"answer to {found}, expected to {expected}"
        position = 5 if api.flexible_response(version) else 4
        message, end = reader(api.response, version)(frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes behind the answer"
        if not answer.done():
            answer.set_result(message)
