"""Which quota holds for a client, and what the clients that share it have used.

The most specific quota holds, in Kafka's order:

    user and client id, user and any client id, user,
    any user and client id, any user and any client id, any user,
    client id, any client id

Who is found by a user, with whatever client id, shares one quota with all client ids of that user;
in the same way clients share one that is found by a client id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.security.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    NO_CONFIGS,
    OF_CLIENTS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Configs,
    Entity,
    address_of,
    quotas_of,
)
from ottla.security.quotas.rates import Rate, TokenBucket, Windows

# Clients that are known with their quotas; at more, all are looked up again.
CLIENTS_MAX = 10_000
# What clients have used is kept for so many; at more, those that were quiet lately are forgotten.
METERS_MAX = 10_000

Tags = tuple[str, str]  # user and client id; empty: it is shared by all
Limits = Mapping[Entity, float]


class Meter:
    """What the clients that share one quota have used. Without a limit nothing is measured."""

    __slots__ = ("bucket", "limit", "rate", "tags", "throttled_ms")

    def __init__(self, tags: Tags, rate: Rate, bucket: TokenBucket | None) -> None:
        self.tags = tags
        self.rate = rate
        self.bucket = bucket  # of topic changes
        self.limit = 0.0
        self.throttled_ms = 0.0  # all of it


class Client(NamedTuple):
    """The quotas of one user with one client id; None where there is no limit."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutation: Meter | None


class ClientQuotas:
    """All quotas of clients, and what was used of them at one broker."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.windows = windows
        self._mutation_windows = mutation_windows
        self._configs: Configs = NO_CONFIGS
        self._limits: dict[str, dict[Entity, float]] = {}
        self._clients: dict[Tags, Client] = {}
        self._meters: dict[tuple[str, Tags], Meter] = {}

    @property
    def any(self) -> bool:
        """Whether there is a quota for any client."""
        return bool(self._limits)

    def configure(self, configs: Configs) -> None:
        """These are the configs of all entities now."""
        if configs is self._configs:
            return
        self._configs = configs
        self._limits = {}
        self._clients.clear()
        for entity, values in configs.items():
            if entity and entity[0][0] != IP:
                for key, value in quotas_of(values).items():
                    if key in OF_CLIENTS:
                        self._limits.setdefault(key, {})[entity] = value
        for (key, tags), meter in list(self._meters.items()):
            limit = limit_of(self._limits.get(key, {}), tags)
            if limit is None:
                del self._meters[key, tags]
            else:
                meter.limit = limit

    def client(self, user: str, client_id: str, now_ms: int) -> Client:
        found = self._clients.get((user, client_id))
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            found = self._clients[user, client_id] = Client(
                *(
                    self._meter(key, user, client_id, now_ms)
                    for key in (
                        PRODUCER_BYTE_RATE,
                        CONSUMER_BYTE_RATE,
                        REQUEST_PERCENTAGE,
                        CONTROLLER_MUTATION_RATE,
                    )
                )
            )
        return found

    def meters(self) -> Iterator[tuple[str, Meter]]:
        """What is measured now, by key."""
        for (key, _), meter in self._meters.items():
            yield key, meter

    def _meter(self, key: str, user: str, client_id: str, now_ms: int) -> Meter | None:
        limits = self._limits.get(key)
        if not limits:
            return None
        tags = tags_of(limits, user, client_id)
        limit = limit_of(limits, tags)
        if limit is None:
            return None
        meter = self._meters.get((key, tags))
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                self._forget_quiet(now_ms)
            mutates = key == CONTROLLER_MUTATION_RATE
            windows = self._mutation_windows if mutates else self.windows
            bucket = TokenBucket(windows) if mutates else None
            meter = self._meters[key, tags] = Meter(tags, Rate(windows), bucket)
            meter.limit = limit
        return meter

    def _forget_quiet(self, now_ms: int) -> None:
        self._clients.clear()
        for place, meter in list(self._meters.items()):
            meter.rate.window_ms(now_ms)  # what is over is left out
            if meter.rate.quiet:
                del self._meters[place]


def tags_of(limits: Limits, user: str, client_id: str) -> Tags:
    """Which clients share the quota that holds."""
    named, any_user = (USER, user), (USER, None)
    known, any_client = (CLIENT_ID, client_id), (CLIENT_ID, None)
    if (named, known) in limits or (named, any_client) in limits:
        return user, client_id
    if (named,) in limits:
        return user, ""
    if (any_user, known) in limits or (any_user, any_client) in limits:
        return user, client_id
    if (any_user,) in limits:
        return user, ""
    return "", client_id


def limit_of(limits: Limits, tags: Tags) -> float | None:
    """The quota that those share; None: there is none."""
    user, client_id = tags
    named, any_user = (USER, user), (USER, None)
    known, any_client = (CLIENT_ID, client_id), (CLIENT_ID, None)
    entities: tuple[Entity, ...]
    if user and client_id:
        entities = (
            (named, known),
            (named, any_client),
            (any_user, known),
            (any_user, any_client),
        )
    elif user:
        entities = (named,), (any_user,)
    elif client_id:
        entities = (known,), (any_client,)
    else:
        return None
    for entity in entities:
        limit = limits.get(entity)
        if limit is not None:
            return limit
    return None


class AddressRates(NamedTuple):
    """How many connections a second may come from one address."""

    default: float | None = None
    own: Mapping[str, float] = {}

    def of(self, address: str) -> float | None:
        """None: as many as it likes."""
        return self.own.get(address, self.default)


def address_rates(configs: Configs) -> AddressRates:
    default: float | None = None
    own: dict[str, float] = {}
    for entity, values in configs.items():
        rate = quotas_of(values).get(CONNECTION_CREATION_RATE)
        if rate is None or len(entity) != 1 or entity[0][0] != IP:
            continue
        name = entity[0][1]
        if name is None:
            default = rate
        elif (address := address_of(name)) is not None:
            own[address] = rate
    return AddressRates(default, own)
