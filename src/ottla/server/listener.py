"""Listeners: the address each binds, and the one that it is advertised with.

The options are parsed and checked in `settings.listeners`. Here a port of 0 becomes the one that
was bound, and an empty advertised host the name of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.settings import Listener

PORT_MAX = 65_535


class Endpoint:
    """One listener."""

    __slots__ = ("_advertised_host", "_advertised_port", "host", "name", "port")

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        advertised_host: str = "",
        advertised_port: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._advertised_host = advertised_host or host
        self._advertised_port = advertised_port

    @property
    def advertised(self) -> tuple[str, int]:
        """The address in Metadata responses, once the port is bound."""
        return self._advertised_host, self._advertised_port or self.port

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def endpoints_of(listeners: Iterable[Listener], own_name: Callable[[], str]) -> list[Endpoint]:
    """An endpoint for each listener; `own_name` is called only for one without a host."""
    return [
        Endpoint(
            listener.name,
            listener.host,
            listener.port,
            listener.advertised_host or own_name(),
            # The advertised port follows the bound one unless it was given by itself.
            listener.advertised_port if listener.advertised_port != listener.port else 0,
        )
        for listener in listeners
    ]


def address_text(host: str, port: int) -> str:
    """The usual notation: `127.0.0.1:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, `:PORT`. Raises ValueError saying what is wrong."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address must stand in brackets, as in [::1]:9092")
    if not colon or not (port.isascii() and port.isdecimal()):
        raise ValueError("must be HOST:PORT")
    if int(port) > PORT_MAX:
        raise ValueError(f"port must lie between 0 and {PORT_MAX}")
    return host, int(port)
