"""Where clients reach the broker: `listeners` and `advertised.listeners`, read and checked.

A listener is a name, an address to bind and the address that clients are told. The texts are
Kafka's (`PLAINTEXT://127.0.0.1:9092,INSIDE://:9093`); what cannot be honoured raises
`ListenerError`, which says option, value, rule and what to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

PORT_MAX = 65_535
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ListenerError(ValueError):
    """An option about listeners that cannot be honoured."""

    def __init__(self, option: str, value: str, rule: str, hint: str) -> None:
        super().__init__(f"{option}: {rule} (got {value!r})")
        self.option = option
        self.value = value
        self.rule = rule
        self.hint = hint


class Endpoint:
    """One listener: the address it binds, and the one it is known by."""

    __slots__ = ("advertised_host", "advertised_port", "host", "name", "port")

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.advertised_host = host
        self.advertised_port = 0  # 0: the port that was bound

    @property
    def advertised(self) -> tuple[str, int]:
        """What clients are told, once the port is bound."""
        return self.advertised_host, self.advertised_port or self.port

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_endpoints(
    listeners: Iterable[str],
    advertised: Iterable[str],
    protocols: Mapping[str, str],
    own_name: Callable[[], str],
) -> list[Endpoint]:
    """The endpoints that the options describe; `own_name` finds the name of this machine."""
    endpoints: dict[str, Endpoint] = {}
    for text in listeners:
        name, host, port = split_listener("listeners", text)
        if name in endpoints:
            raise ListenerError(
                "listeners", text, f"{name} is there twice", "give each listener its own name"
            )
        taken = [e for e in endpoints.values() if e.port == port != 0 and e.host == host]
        if taken:
            raise ListenerError(
                "listeners",
                text,
                f"{taken[0].name} has the same address",
                "give each listener its own port",
            )
        check_protocol(name, protocols)
        endpoints[name] = Endpoint(name, host, port)
    if not endpoints:
        raise ListenerError(
            "listeners", "", "there must be one at least", "listeners=PLAINTEXT://127.0.0.1:9092"
        )
    told = {}
    for text in advertised:
        name, host, port = split_listener("advertised.listeners", text)
        if name not in endpoints:
            raise ListenerError(
                "advertised.listeners",
                text,
                f"{name} is not one of listeners ({', '.join(endpoints)})",
                f"listeners={name}://127.0.0.1:{port or 9092}",
            )
        told[name] = (text, host, port)
    for endpoint in endpoints.values():
        _advertise(endpoint, told.get(endpoint.name), own_name)
    return list(endpoints.values())


def _advertise(
    endpoint: Endpoint, told: tuple[str, str, int] | None, own_name: Callable[[], str]
) -> None:
    if told is not None:
        _, endpoint.advertised_host, endpoint.advertised_port = told
    if endpoint.advertised_host == "":
        endpoint.advertised_host = own_name()
    if endpoint.advertised_host in ("0.0.0.0", "::"):
        raise ListenerError(
            "advertised.listeners" if told else "listeners",
            told[0] if told else f"{endpoint.name}://{endpoint}",
            f"no client can connect to {endpoint.advertised_host}, so it cannot be advertised",
            f"--set advertised.listeners={endpoint.name}://HOST-AS-CLIENTS-KNOW-IT:{endpoint.port}",
        )


def split_listener(option: str, text: str) -> tuple[str, str, int]:
    """`NAME://HOST:PORT` as its three parts; an IPv6 host stands in brackets."""
    name, separator, rest = text.strip().partition("://")
    if not separator or not name:
        raise ListenerError(
            option, text, "must read NAME://HOST:PORT", f"{option}=PLAINTEXT://127.0.0.1:9092"
        )
    try:
        host, port = split_address(rest)
    except ValueError as error:
        raise ListenerError(option, text, str(error), f"{option}={name}://127.0.0.1:9092") from None
    return name.upper(), host, port


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, `:PORT`. Raises ValueError saying what is wrong."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address must stand in brackets, as in [::1]:9092")
    if not separator or not port.isdecimal():
        raise ValueError("must read HOST:PORT")
    if int(port) > PORT_MAX:
        raise ValueError(f"the port must be {PORT_MAX} at most")
    return host, int(port)


def check_protocol(name: str, protocols: Mapping[str, str]) -> None:
    """Only PLAINTEXT is spoken; everything else is refused by the option that asks for it."""
    protocol = protocols.get(name, name if name in PROTOCOLS else None)
    if protocol is None:
        raise ListenerError(
            "listener.security.protocol.map",
            ",".join(f"{key}:{value}" for key, value in protocols.items()),
            f"says nothing about the listener {name}",
            f"--set listener.security.protocol.map={name}:PLAINTEXT",
        )
    if protocol != "PLAINTEXT":
        named = protocols.get(name) is not None and name != protocol
        raise ListenerError(
            "listener.security.protocol.map" if named else "listeners",
            f"{name}:{protocol}",
            f"{protocol} is not there yet, only PLAINTEXT",
            "--set listeners=PLAINTEXT://127.0.0.1:9092, reachable from this machine alone",
        )
