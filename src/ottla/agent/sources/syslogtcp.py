"""The sources `syslogtcp` and `multiport_syslogtcp`: syslog over TCP on one port, or on several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output
from ..syslog.framing import Framing, Message
from ..syslog.messages import INCOMPLETE, STATUS, kept_fields, parse
from .client_names import ClientHeaders
from .tcp import Peer, TcpServer
from .tls import tls_context


@dataclass(frozen=True)
class SyslogOptions:
    keep: frozenset[str]
    event_bytes_max: int
    client_headers: ClientHeaders
    port_header: str | None = None
    batch_size: int | None = None  # what was received at once, unless set


class Messages:
    """One connection."""

    def __init__(self, output: Output, options: SyslogOptions, peer: Peer) -> None:
        self._output = output
        self._options = options
        self._peer = peer
        self._framing = Framing(options.event_bytes_max)
        self._headers: dict[str, str] | None = None

    async def received(self, block: bytes) -> bytes:
        await self._put(self._framing.feed(block))
        return b""

    async def ended(self) -> bytes:
        await self._put(self._framing.end())
        return b""

    def closed(self) -> None:
        return

    def due_s(self) -> None:
        return

    def late(self) -> bytes:
        return b""

    async def _put(self, messages: list[Message]) -> None:
        if not messages:
            return
        if self._headers is None:
            self._headers = await self._options.client_headers.of(self._peer.client)
            if self._options.port_header is not None:
                self._headers[self._options.port_header] = str(self._peer.port)
        size = self._options.batch_size or len(messages)
        for start in range(0, len(messages), size):
            bodies: list[bytes] = []
            own: list[Mapping[str, str]] = []
            for message, is_cut in messages[start : start + size]:
                body, headers = parse(message, self._options.keep)
                if is_cut:
                    headers.setdefault(STATUS, INCOMPLETE)
                bodies.append(body)
                own.append(headers)
            await self._output.put(EventBatch(bodies, self._headers, own))


class SyslogTcpSource:
    replays = False

    def __init__(self, name: str, server: TcpServer, options: SyslogOptions) -> None:
        self.name = name
        self.server = server
        self.options = options

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        await self.server.run(lambda peer: Messages(output, self.options, peer))


def from_options(name: str, options: Options, context: Context) -> SyslogTcpSource:
    host, port = options.text_or_none("host"), options.number("port")
    chosen = SyslogOptions(
        kept_fields(options.names("keepFields")),
        options.number("eventSize"),
        ClientHeaders.of_options(options),
    )
    return SyslogTcpSource(name, TcpServer(name, host, [port], tls_context(options)), chosen)


def multiport_from_options(name: str, options: Options, context: Context) -> SyslogTcpSource:
    """Character sets change nothing here: all that is read of a message is ASCII, and its body
    stays as it is, as in Flume."""
    ports = [int(port) for port in options.names("ports")]
    host = options.text_or_none("host")
    chosen = SyslogOptions(
        kept_fields(options.names("keepFields")),
        options.number("eventSize"),
        ClientHeaders.of_options(options),
        options.text_or_none("portHeader"),
        options.number("batchSize") if options.given("batchSize") else None,
    )
    return SyslogTcpSource(name, TcpServer(name, host, ports, tls_context(options)), chosen)
