"""`listeners`, `advertised.listeners` and `listener.security.protocol.map`: read and checked.

An empty host in `listeners` means every interface; an empty advertised host means this machine's
name, which only the server can know, so it is left empty here. Port 0 is any free port.
"""

import re
from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = re.compile(r"(.*)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([^\[\]:]*)):(-?\d+)")


class Listener(NamedTuple):
    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    protocol: str


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int


class BadListener(ValueError):
    """Says which option, which value, which rule and what to try."""

    def __init__(self, option: str, value: str, rule: str, hint: str) -> None:
        super().__init__(rule)
        self.option, self.value, self.rule, self.hint = option, value, rule, hint


def parse_endpoint(option: str, text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not match[1]:
        rule = "must be NAME://HOST:PORT"
        raise BadListener(option, text, rule, f"{option}=PLAINTEXT://127.0.0.1:9092")
    port = int(match[4])
    lowest = 1 if option == "advertised.listeners" else 0
    if not lowest <= port <= 65_535:
        rule = f"port must lie between {lowest} and 65535"
        raise BadListener(option, text, rule, f"{option}={match[1]}://127.0.0.1:9092")
    return Endpoint(match[1].upper(), match[2] or match[3] or "", port)


def parse_endpoints(option: str, texts: tuple[str, ...]) -> list[Endpoint]:
    endpoints = [parse_endpoint(option, text) for text in texts]
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        rule = "each listener must have a different name"
        hint = f"{option}=INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9094 with both names in "
        raise BadListener(
            option,
            ",".join(texts),
            rule,
            hint + "listener.security.protocol.map=INSIDE:PLAINTEXT,…",
        )
    return endpoints


def check_ports(texts: tuple[str, ...], endpoints: list[Endpoint]) -> None:
    """Two listeners share a port only as an IPv4 and an IPv6 address (KIP-797)."""
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        families = {_family(endpoint.host) for endpoint in sharing}
        if len(sharing) > 2 or (len(sharing) == 2 and families != {4, 6}):
            rule = f"each listener must have a different port (several have {port})"
            raise BadListener(
                "listeners", ",".join(texts), rule, "give each its own port, or port 0"
            )


def _family(host: str) -> int:
    if ":" in host:
        return 6
    return 4 if re.fullmatch(r"\d+\.\d+\.\d+\.\d+", host) else 0


def parse_protocol_map(text: str) -> dict[str, str]:
    option = "listener.security.protocol.map"
    pairs: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, colon, protocol = (piece.strip().upper() for piece in part.rpartition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            rule = f"must be NAME:PROTOCOL with a protocol of {', '.join(PROTOCOLS)}"
            raise BadListener(option, part.strip(), rule, f"{option}=PLAINTEXT:PLAINTEXT")
        if pairs.get(name, protocol) != protocol:
            raise BadListener(
                option, text, f"listener {name} has two protocols", "name each listener once"
            )
        pairs[name] = protocol
    return pairs


def resolve_listeners(
    listeners: tuple[str, ...],
    advertised: tuple[str, ...] | None,
    protocol_map: str,
    controller_names: tuple[str, ...],
) -> tuple[Listener, ...]:
    """The listeners to open, each with its advertised address. Raises BadListener."""
    protocols = parse_protocol_map(protocol_map)
    controllers = {name.upper() for name in controller_names}
    endpoints = parse_endpoints("listeners", listeners)
    check_ports(listeners, endpoints)
    own = [endpoint for endpoint in endpoints if endpoint.name not in controllers]
    if not own:
        raise BadListener(
            "listeners",
            ",".join(listeners),
            "must hold a listener that is not in controller.listener.names",
            "listeners=PLAINTEXT://127.0.0.1:9092",
        )
    given = {
        endpoint.name: endpoint
        for endpoint in parse_endpoints("advertised.listeners", advertised or ())
        if endpoint.name not in controllers
    }
    unknown = set(given) - {endpoint.name for endpoint in own}
    if unknown:
        raise BadListener(
            "advertised.listeners",
            ",".join(advertised or ()),
            f"names {', '.join(sorted(unknown))}, which listeners does not",
            "advertise only names that are in listeners",
        )
    return tuple(
        _resolve(endpoint, given.get(endpoint.name), protocols)
        for endpoint in own
        if advertised is None or endpoint.name in given
    )


def _resolve(endpoint: Endpoint, given: Endpoint | None, protocols: dict[str, str]) -> Listener:
    text = f"{endpoint.name}://{endpoint.host}:{endpoint.port}"
    protocol = protocols.get(endpoint.name)
    if protocol is None:
        raise BadListener(
            "listeners",
            text,
            f"listener.security.protocol.map has no protocol for {endpoint.name}",
            f"listener.security.protocol.map={endpoint.name}:PLAINTEXT",
        )
    shown = given or endpoint
    if shown.host in ("0.0.0.0", "::"):
        raise BadListener(
            "advertised.listeners",
            f"{shown.name}://{shown.host}:{shown.port}",
            f"cannot be the non-routable address {shown.host}, which no client can connect to",
            f"advertised.listeners={shown.name}://127.0.0.1:{shown.port or 9092}, "
            "or the name clients know this machine by",
        )
    return Listener(endpoint.name, endpoint.host, endpoint.port, shown.host, shown.port, protocol)
