"""Where clients reach the broker: the address each listener binds, and the one it is known by.

What the options say is read and checked in `settings.listeners`; here it meets the machine: a port
of 0 becomes the one that was bound, an empty advertised host this machine's name.
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
        """What clients are told, once the port is bound."""
        return self._advertised_host, self._advertised_port or self.port

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def endpoints_of(listeners: Iterable[Listener], own_name: Callable[[], str]) -> list[Endpoint]:
    """An endpoint for each listener; `own_name` is asked only where a listener leaves it open."""
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
    """As one reads it: `127.0.0.1:9092`, `[::1]:9092`."""
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
