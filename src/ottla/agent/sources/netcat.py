"""The `netcat` source: lines that come over TCP, each answered with OK.

As in Flume a line that is too long is answered with FAILED and ends the connection, and a last line
without its end is no event. OK means that the channels have the line; a full channel makes the
client wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from itertools import takewhile

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output

logger = logging.getLogger(__name__)
BLOCK_BYTES = 64 * 1024


class NetcatSource:
    replays = False

    def __init__(
        self, name: str, host: str, port: int, *, line_bytes_max: int = 512, answers: bool = True,
        charset: str = "utf-8",
    ) -> None:  # fmt: skip
        """Port 0 takes a free one; `port` is the real one once it listens."""
        self.name = name
        self.host = host
        self.port = port
        self.line_bytes_max = line_bytes_max
        self.answers = answers
        self.charset = charset
        self.listening = asyncio.Event()

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        connections: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                    await self._serve(reader, writer, output)
            finally:
                connections.discard(task)
                writer.close()

        server = await asyncio.start_server(connected, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        logger.info("Source %s listens on %s:%d", self.name, self.host, self.port)
        self.listening.set()
        try:
            await server.serve_forever()
        finally:
            server.close()
            # Nobody gets an OK for what no sink will take.
            for task in list(connections):
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, output: Output
    ) -> None:
        rest = b""
        while block := await reader.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            # Those behind a line that is too long are not read.
            good = list(takewhile(lambda line: len(line) < self.line_bytes_max, lines))
            too_long = len(good) < len(lines) or len(rest) >= self.line_bytes_max
            if good:
                await output.put(EventBatch([self._body(line) for line in good]))
                if self.answers:
                    writer.write(b"OK\n" * len(good))
            if too_long:
                limit = f"{self.line_bytes_max} chars, including newline"
                writer.write(f"FAILED: Event exceeds the maximum length ({limit})\n".encode())
            await writer.drain()
            if too_long:
                return

    def _body(self, line: bytes) -> bytes:
        if self.charset == "utf-8":
            return line
        return line.decode(self.charset, "replace").encode()


def from_options(name: str, options: Options, context: Context) -> NetcatSource:
    return NetcatSource(
        name,
        options.text("bind"),
        options.number("port"),
        line_bytes_max=options.number("max-line-length"),
        answers=options.flag("ack-every-event"),
        charset=options.text("encoding"),
    )
