"""The network by which a broker reaches others whose listener wants a login."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.seams.network import Listener, Network, OnStream, Stream
    from ottla.wire.exchange import Logins


class LoginNetwork:
    """Connections as those of `network`; who opens one logs in on it by `new_logins`."""

    __slots__ = ("_network", "new_logins")

    def __init__(self, network: Network, new_logins: Callable[[], Logins]) -> None:
        self._network = network
        self.new_logins = new_logins

    def listen(self, host: str, port: int, on_stream: OnStream, *, backlog: int = 50) -> Listener:
        return self._network.listen(host, port, on_stream, backlog=backlog)

    async def connect(self, host: str, port: int) -> Stream:
        return await self._network.connect(host, port)


def logins_of(network: Network) -> Logins | None:
    """The logins of one connection; None where there is nothing to log in to."""
    return network.new_logins() if isinstance(network, LoginNetwork) else None
