"""Client quotas of one broker (KIP-13, KIP-124, KIP-599): what clients use, and who must wait.

While there is any quota the dispatcher makes its contexts `Metered`, and has `charge` look at each
answer before it is encoded: it says how long the client is to wait, and the connection reads
nothing for that time (KIP-219). Nothing is queued. Without quotas `active` is None, and nobody
asks for more than that.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.broker.context import Context, Encoded, Peer
from ottla.metrics import Metrics, Sample
from ottla.security.quotas.client_quotas import (
    AddressRates,
    Client,
    ClientQuotas,
    Meter,
    address_rates,
)
from ottla.security.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    NO_CONFIGS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Configs,
)
from ottla.security.quotas.rates import MS_PER_S, Windows
from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.seams.clock import Clock
    from ottla.settings import Settings
    from ottla.wire.apis import Api

PRODUCE, FETCH, METADATA, SHARE_FETCH = 0, 1, 3, 78
# Of brokers among themselves, and those before a login: never throttled, nor counted.
EXEMPT = frozenset((17, 27, 36, 56, 67, 83, 84, 85, 86, 87))
BROKERS_OWN_FROM = 10_000
# Metadata has it first in the body, which is encoded once for many: before it there is no field.
METADATA_THROTTLE_FROM = 3
PERCENT_PER_S = 100
INT_MAX = 2**31 - 1
# What is around the records of one partition in an answer, about.
PARTITION_BYTES = 60

KINDS = {
    PRODUCER_BYTE_RATE: ("Produce", "byte_rate"),
    CONSUMER_BYTE_RATE: ("Fetch", "byte_rate"),
    REQUEST_PERCENTAGE: ("Request", "request_time"),
    CONTROLLER_MUTATION_RATE: ("ControllerMutation", "mutation_rate"),
}


class Metered(Context):
    """A request of a client while there are quotas."""

    __slots__ = ("frame_bytes", "quotas", "spent_s", "started_s", "throttle_ms")

    def __init__(
        self,
        broker: Broker,
        peer: Peer,
        api_version: int,
        correlation_id: int = 0,
        client_id: str | None = None,
    ) -> None:
        super().__init__(broker, peer, api_version, correlation_id, client_id)
        self.quotas = broker.quotas
        self.frame_bytes = 0
        self.started_s = 0.0
        self.spent_s = -1.0  # handling it; below 0 while it is handled
        self.throttle_ms = 0  # as far as its handler has found out

    @property
    def client(self) -> Client:
        return self.quotas.client(self)

    @property
    def fetch_bytes_max(self) -> int:
        """More than this at once would be throttled however long the client had waited."""
        meter = self.client.fetch
        if meter is None:
            return INT_MAX
        return min(int(meter.limit * self.quotas.windows.whole_s), INT_MAX)

    def throttles_fetch(self, size_bytes: int) -> bool:
        """Whether an answer of that size must not go out now; if not, it is counted."""
        found_ms = self.quotas.fetched(self, size_bytes)
        self.throttle_ms = max(self.throttle_ms, found_ms)
        return found_ms > 0


class Quotas:
    """The quotas of one broker's clients."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        self.windows = Windows(
            settings.integer("quota.window.num"),
            settings.integer("quota.window.size.seconds") * MS_PER_S,
        )
        mutation_windows = Windows(
            settings.integer("controller.quota.window.num"),
            settings.integer("controller.quota.window.size.seconds") * MS_PER_S,
        )
        self._all = ClientQuotas(self.windows, mutation_windows)
        self._clock = clock
        self._configs: Configs = NO_CONFIGS
        self.active: Quotas | None = None  # itself while there is a quota for clients
        # Called with the rates of addresses when they may have changed.
        self.on_address_rates: list[Callable[[AddressRates], object]] = []
        metrics.collect("gauge", self._samples)

    def configure(self, configs: Configs) -> None:
        """These are the configs of all entities in the image."""
        if configs is self._configs:
            return
        self._configs = configs
        self._all.configure(configs)
        self.active = self if self._all.any else None
        rates = address_rates(configs)
        for callback in self.on_address_rates:
            callback(rates)

    @property
    def now_ms(self) -> int:
        return int(self._clock.monotonic() * MS_PER_S)

    def client(self, context: Context) -> Client:
        name = context.peer.principal.name
        return self._all.client(name, context.client_id or "", self.now_ms)

    def charge(self, context: Metered, api: Api, response: Any) -> Any:
        """Count what a request has used; the answer with the time that its client is to wait."""
        key = api.key
        if key in EXEMPT or key >= BROKERS_OWN_FROM:
            return response
        client, now_ms = self.client(context), self.now_ms
        throttle_ms = context.throttle_ms
        if key == PRODUCE and client.produce is not None:
            throttle_ms = max(throttle_ms, self._used(client.produce, context.frame_bytes, now_ms))
        if key == SHARE_FETCH and client.fetch is not None and response is not None:
            # It goes out whole: its records are this client's now, and nobody else gets them.
            throttle_ms = max(
                throttle_ms, self._used(client.fetch, size_of_shared(response), now_ms)
            )
        if key != FETCH and client.request is not None and response is not None:
            throttle_ms = max(throttle_ms, self._spent(client.request, context, now_ms))
        if throttle_ms <= 0:
            return response
        if context.peer.throttle is not None:
            context.peer.throttle(throttle_ms / MS_PER_S)
        return with_throttle(response, throttle_ms, context.api_version, key)

    def fetched(self, context: Metered, size_bytes: int) -> int:
        client, now_ms = context.client, self.now_ms
        fetch_ms = request_ms = 0
        if client.request is not None:
            request_ms = self._spent(client.request, context, now_ms)
        if client.fetch is not None:
            fetch_ms = self._used(client.fetch, size_bytes, now_ms)
            if max(fetch_ms, request_ms) > 0:
                client.fetch.rate.record(-size_bytes, now_ms)  # it does not go out
        return max(fetch_ms, request_ms)

    def _used(self, meter: Meter, amount: float, now_ms: int) -> int:
        meter.rate.record(amount, now_ms)
        found_ms = meter.rate.throttle_ms(meter.limit, now_ms)
        meter.throttled_ms += found_ms
        return found_ms

    def _spent(self, meter: Meter, context: Metered, now_ms: int) -> int:
        """Time of handling, of which a client may use so many percent."""
        spent_s = context.spent_s
        if spent_s < 0:
            spent_s = self._clock.monotonic() - context.started_s
        meter.rate.record(spent_s * PERCENT_PER_S, now_ms)
        found_ms = meter.rate.throttle_ms(meter.limit, now_ms)
        found_ms = min(found_ms, self.windows.sample_ms)
        meter.throttled_ms += found_ms
        return found_ms

    def _samples(self) -> Iterator[Sample]:
        now_ms = self.now_ms
        found: dict[str, list[Sample]] = {}

        def add(name: str, value: float, meter: Meter) -> None:
            user, client_id = meter.tags
            labels = {"user": user, "client_id": client_id}
            found.setdefault(name, []).append(Sample(f"kafka_server_{name}", value, labels))

        for key, meter in self._all.meters():
            kind, name = KINDS[key]
            add(f"{kind}_{name}", meter.rate.value(now_ms), meter)
            add(f"{kind}_throttle_time_ms_sum", meter.throttled_ms, meter)
            if meter.bucket is not None:
                add(f"{kind}_tokens", meter.bucket.tokens(meter.limit, now_ms), meter)
        for samples in found.values():
            yield from samples


class MutationQuota:
    """Partitions that a client may create and delete, during one request (KIP-599).

    Of clients that know THROTTLING_QUOTA_EXCEEDED the first request beyond the quota is refused;
    others go on, and wait.
    """

    def __init__(self, context: Metered, meter: Meter, strict: bool) -> None:
        assert meter.bucket is not None
        self._context = context
        self._meter = meter
        self._bucket = meter.bucket
        self._strict = strict
        self._throttle_ms = self._noted_ms = 0

    def take(self, partitions: int) -> bool:
        """Whether so many may be created or deleted; they are counted then."""
        meter, bucket, now_ms = self._meter, self._bucket, self._context.quotas.now_ms
        if self._strict and (wait_ms := bucket.throttle_ms(meter.limit, now_ms)) > 0:
            self._note(wait_ms, now_ms)
            return False
        bucket.take(partitions, meter.limit, now_ms)
        meter.rate.record(partitions, now_ms)
        if not self._strict and (wait_ms := bucket.throttle_ms(meter.limit, now_ms)) > 0:
            self._note(wait_ms, now_ms)
        return True

    def _note(self, wait_ms: int, now_ms: int) -> None:
        self._throttle_ms, self._noted_ms = wait_ms, now_ms

    def done(self) -> None:
        """The answer is there: have the client wait for what is left of the time."""
        left_ms = self._throttle_ms - (self._context.quotas.now_ms - self._noted_ms)
        if self._throttle_ms and left_ms > 0:
            self._meter.throttled_ms += left_ms
            self._context.throttle_ms = max(self._context.throttle_ms, left_ms)


def size_of_shared(response: Any) -> int:
    """About how large an answer to ShareFetch is."""
    return sum(
        PARTITION_BYTES
        + (each.records.size if isinstance(each.records, FileRange) else len(each.records or b""))
        for topic in response.responses
        for each in topic.partitions
    )


def mutation_quota(context: Context, strict_from: int) -> MutationQuota | None:
    """None: the client may change as many topics as it likes."""
    if not isinstance(context, Metered) or context.client.mutation is None:
        return None
    return MutationQuota(context, context.client.mutation, context.api_version >= strict_from)


def with_throttle(response: Any, throttle_ms: int, api_version: int, key: int) -> Any:
    """The answer, saying how long to wait; it may be one that others share."""
    if isinstance(response, Encoded):
        if key != METADATA or api_version < METADATA_THROTTLE_FROM:
            return response
        return Encoded(struct.pack(">i", throttle_ms) + response.body[4:])
    if response is None or not hasattr(response, "throttle_time_ms"):
        return response
    told = copy.copy(response)
    told.throttle_time_ms = throttle_ms
    return told
