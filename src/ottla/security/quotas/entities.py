"""Whom a quota is for: users, client ids, both together, addresses; by name, or all others.

What the configs of such an entity may be, and what Kafka's controller has against others. The
configs are kept as text, as in the tree: there the credentials of a user stand beside its quotas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)  # in this order in an entity

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

LONG_MAX, INT_MAX = 2**63 - 1, 2**31 - 1
FRACTION_MAX = 1e-6  # of a whole number that came as a double

# The type and name of each part; the name None stands for all that have no entity of their own.
Entity = tuple[tuple[str, str | None], ...]
Configs = Mapping[Entity, Mapping[str, str]]
NO_CONFIGS: Configs = {}


class Kind(NamedTuple):
    """A whole number up to a maximum, or any positive number."""

    name: str
    value_max: int | None


LONG, INT, DOUBLE = Kind("LONG", LONG_MAX), Kind("INT", INT_MAX), Kind("DOUBLE", None)
OF_CLIENTS = {
    PRODUCER_BYTE_RATE: LONG,
    CONSUMER_BYTE_RATE: LONG,
    REQUEST_PERCENTAGE: DOUBLE,
    CONTROLLER_MUTATION_RATE: DOUBLE,
}
OF_ADDRESSES = {CONNECTION_CREATION_RATE: INT}


class Alteration(NamedTuple):
    """What AlterClientQuotas asks for one entity: a value for each key, or None to remove it."""

    entity: Entity
    operations: Sequence[tuple[str, float | None]]


class BadQuota(ValueError):
    """What is wrong with an alteration, in Kafka's words."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The parts in their order; of a type given twice the last one counts, as in Kafka."""
    last = dict(parts)
    known = [(kind, last.pop(kind)) for kind in TYPES if kind in last]
    return (*known, *sorted(last.items()))


def shown(entity: Entity) -> str:
    """As Kafka's messages have it."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def kinds_for(entity: Entity) -> Mapping[str, Kind]:
    """The keys that an entity may have. Raises BadQuota for one that may not be."""
    if not entity:
        raise BadQuota("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise BadQuota(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise BadQuota(f"Empty {kind} not supported")
    parts = dict(entity)
    if IP not in parts:
        return OF_CLIENTS
    if len(parts) > 1:
        raise BadQuota(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = parts[IP]
    if address is not None and address_of(address) is None:
        raise BadQuota(f"{address} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def check_value(kinds: Mapping[str, Kind], key: str, value: float) -> None:
    """Raises BadQuota."""
    kind = kinds.get(key)
    if kind is None:
        raise BadQuota(f"Invalid configuration key {key}")
    if not value > 0:  # nor is NaN
        raise BadQuota(f"Quota {key} must be greater than 0")
    if kind.value_max is None:
        return
    if value > kind.value_max:
        article = "an" if kind is INT else "a"
        raise BadQuota(f"Proposed value for {key} is too large for {article} {kind.name}.")
    if value % 1.0 > FRACTION_MAX:
        raise BadQuota(f"{key} cannot be a fractional value.")


def value_text(key: str, value: float) -> str:
    """As Kafka 3 wrote it into ZooKeeper."""
    kind = OF_CLIENTS.get(key) or OF_ADDRESSES.get(key)
    if kind is not None and kind.value_max is not None:
        return str(min(int(value + FRACTION_MAX), kind.value_max))
    return repr(float(value))


def altered(
    old: Mapping[str, str],
    entity: Entity,
    operations: Sequence[tuple[str, float | None]],
) -> dict[str, str]:
    """The configs of an entity after an alteration. Raises BadQuota."""
    kinds = kinds_for(entity)
    new = dict(old)
    for key, value in operations:
        if value is None:
            if key in kinds:
                new.pop(key, None)
        else:
            check_value(kinds, key, value)
            new[key] = value_text(key, value)
    return new


def check_configs(entity: Entity, configs: Mapping[str, str]) -> None:
    """Whether an operator may have written this. Raises BadQuota."""
    kinds = kinds_for(entity)
    for key, value in configs.items():
        if key not in kinds:
            continue  # such as a user's credentials
        try:
            number = float(value)
        except ValueError:
            raise BadQuota(f"{key} is not a number: {value!r}") from None
        check_value(kinds, key, number)


def quotas_of(configs: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the configs of an entity."""
    found: dict[str, float] = {}
    for key, text in configs.items():
        if key in OF_CLIENTS or key in OF_ADDRESSES:
            try:
                value = float(text)
            except ValueError:
                continue  # an operator of ZooKeeper wrote it before there was a controller
            if value > 0 and not math.isinf(value):
                found[key] = value
    return found


def address_of(text: str) -> str | None:
    """An address in its one form, by which connections are known; None for what is none."""
    import ipaddress  # which a broker without quotas need not load

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


class Match(IntEnum):
    """What a component of a filter asks of an entity, by Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class Component(NamedTuple):
    """One type that DescribeClientQuotas asks for."""

    type: str
    match: int
    name: str | None


class UnknownType(ValueError):
    """A filter asks for a type of entity that there is not."""


class Filter:
    """What DescribeClientQuotas asks for. Raises BadQuota or UnknownType."""

    def __init__(self, components: Iterable[Component], strict: bool) -> None:
        self._strict = strict
        self._exact: dict[str, str | None] = {}
        self._present: set[str] = set()
        for each in components:
            self._add(each)
        asked = self._exact.keys() | self._present
        if IP in asked and len(asked) > 1:
            raise BadQuota(
                "Invalid entity filter component combination. IP filter component should not be "
                "used with user or clientId filter component."
            )
        self._size = len(asked)

    def _add(self, component: Component) -> None:
        kind, match, name = component
        if not kind:
            raise BadQuota("Invalid empty entity type.")
        if kind in self._exact or kind in self._present:
            raise BadQuota(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise UnknownType(f"Unsupported entity type {kind}")
        if match not in tuple(Match):
            raise BadQuota(f"Unknown match type {match}")
        if match == Match.EXACT:
            if name is None:
                raise BadQuota("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._exact[kind] = name
            return
        if name is not None:
            raise BadQuota(
                f"Request specified MATCH_TYPE_{Match(match).name}, but also specified a match "
                "string."
            )
        if match == Match.DEFAULT:
            self._exact[kind] = None
        else:
            self._present.add(kind)

    def matches(self, entity: Entity) -> bool:
        if self._strict and len(entity) != self._size:
            return False
        parts = dict(entity)
        return all(kind in parts for kind in self._present) and all(
            kind in parts and parts[kind] == name for kind, name in self._exact.items()
        )
