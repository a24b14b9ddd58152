"""Headers with the address and the host name of a client."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

from ..config.options import Options

NAMES_MAX = 10_000  # host names that are remembered


@dataclass(frozen=True)
class ClientHeaders:
    address: str | None  # the names of the headers
    host_name: str | None
    _names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_options(cls, options: Options) -> ClientHeaders:
        return cls(
            options.text_or_none("clientIPHeader"), options.text_or_none("clientHostnameHeader")
        )

    async def of(self, client: tuple[str, int]) -> dict[str, str]:
        headers = {}
        if self.address is not None:
            headers[self.address] = client[0]
        if self.host_name is not None:
            headers[self.host_name] = await self._name_of(client)
        return headers

    async def _name_of(self, client: tuple[str, int]) -> str:
        """The address where there is no name."""
        if client[0] not in self._names:
            try:
                name, _ = await asyncio.get_running_loop().getnameinfo(client)
            except socket.gaierror:
                name = client[0]
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._names[client[0]] = name
        return self._names[client[0]]
