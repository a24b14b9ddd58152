"""The `syslogudp` source: a datagram is a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output
from ..syslog.messages import kept_fields, parse
from .client_names import ClientHeaders
from .udp import Datagram, UdpServer


class SyslogUdpSource:
    replays = False

    def __init__(
        self, name: str, server: UdpServer, keep: frozenset[str], client_headers: ClientHeaders
    ) -> None:
        self.name = name
        self.server = server
        self.keep = keep
        self.client_headers = client_headers

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        async def received(datagrams: Sequence[Datagram]) -> None:
            bodies: list[bytes] = []
            own: list[Mapping[str, str]] = []
            for datagram in datagrams:
                body, headers = parse(datagram.body.rstrip(b"\r\n"), self.keep)
                bodies.append(body)
                own.append(headers | await self.client_headers.of(datagram.client))
            await output.put(EventBatch(bodies, own_headers=own))

        await self.server.run(received)


def from_options(name: str, options: Options, context: Context) -> SyslogUdpSource:
    return SyslogUdpSource(
        name,
        UdpServer(name, options.text_or_none("host"), options.number("port")),
        kept_fields(options.names("keepFields")),
        ClientHeaders.of_options(options),
    )
