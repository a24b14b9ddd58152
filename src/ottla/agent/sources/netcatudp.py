"""The `netcatudp` source: the first line of each datagram is an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output
from .udp import Datagram, UdpServer


class NetcatUdpSource:
    replays = False

    def __init__(self, name: str, server: UdpServer, address_header: str | None) -> None:
        self.name = name
        self.server = server
        self.listening = server.listening
        self.address_header = address_header

    @property
    def port(self) -> int:
        """The real one, once it listens."""
        return self.server.bound[0]

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        async def received(datagrams: Sequence[Datagram]) -> None:
            await output.put(self._batch(datagrams))

        await self.server.run(received)

    def _batch(self, datagrams: Sequence[Datagram]) -> EventBatch:
        own: list[Mapping[str, str]] | None = None
        if self.address_header is not None:  # as Java writes an address
            own = [{self.address_header: f"/{host}:{port}"} for _, (host, port) in datagrams]
        return EventBatch([body.partition(b"\n")[0] for body, _ in datagrams], own_headers=own)


def from_options(name: str, options: Options, context: Context) -> NetcatUdpSource:
    server = UdpServer(name, options.text("bind"), options.number("port"))
    return NetcatUdpSource(name, server, options.text_or_none("remoteAddress"))
