"""The `netcat` source: lines that come over TCP, each answered with OK.

As in Flume a line that is too long is answered with FAILED and ends the connection, and a last line
without its end is no event. OK means that the channels have the line; a full channel makes the
client wait.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output
from .tcp import EndConnection, TcpServer

OK = b"OK\n"


class Lines:
    """One connection."""

    def __init__(self, output: Output, *, line_max: int, acknowledge: bool, encoding: str) -> None:
        self._output = output
        self._line_max = line_max
        self._acknowledge = acknowledge
        self._rest = b""
        # Bodies are UTF-8, as in Flume; what is UTF-8 already is not looked at.
        self._decoder = (
            None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)("replace")
        )

    async def received(self, block: bytes) -> bytes:
        if self._decoder is not None:
            block = self._decoder.decode(block).encode()
        *lines, self._rest = (self._rest + block).split(b"\n")
        limit = self._line_max - 1  # it counts the end of the line
        too_long = next((at for at, line in enumerate(lines) if len(line) > limit), None)
        if too_long is None and len(self._rest) > limit:
            too_long = len(lines)
        answer = await self._put(lines[:too_long])
        if too_long is None:
            return answer
        raise EndConnection(
            answer + b"FAILED: Event exceeds the maximum length "
            b"(%d chars, including newline)\n" % self._line_max
        )

    async def ended(self) -> bytes:
        return b""

    def closed(self) -> None:
        return

    def due_s(self) -> None:
        return

    def late(self) -> bytes:
        return b""

    async def _put(self, lines: list[bytes]) -> bytes:
        if not lines:
            return b""
        await self._output.put(EventBatch(lines))
        return OK * len(lines) if self._acknowledge else b""


class NetcatSource:
    replays = False

    def __init__(
        self, name: str, server: TcpServer, *, line_max: int, acknowledge: bool, encoding: str
    ) -> None:
        self.name = name
        self.server = server
        self.listening = server.listening
        self.line_max = line_max
        self.acknowledge = acknowledge
        self.encoding = encoding

    @property
    def port(self) -> int:
        """The real one, once it listens."""
        return self.server.bound[0]

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        await self.server.run(
            lambda peer: Lines(
                output,
                line_max=self.line_max,
                acknowledge=self.acknowledge,
                encoding=self.encoding,
            )
        )


def from_options(name: str, options: Options, context: Context) -> NetcatSource:
    return NetcatSource(
        name,
        TcpServer(name, options.text("bind"), [options.number("port")]),
        line_max=options.number("max-line-length"),
        acknowledge=options.flag("ack-every-event"),
        encoding=options.text("encoding"),
    )
