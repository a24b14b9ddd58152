"""Figures of brokers from their Prometheus endpoints, asked side by side and kept with their age.

An endpoint that does not answer costs nobody else anything: it is read in a thread of its own, at
most `TIMEOUT_S` long and `BYTES_MAX` large.
"""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ..picture import RequestPicture
from .exposition import Figure, figures_in
from .rates import Rates

TIMEOUT_S = 4.0
BYTES_MAX = 64 << 20
CHUNK_BYTES = 1 << 16
THREADS_MAX = 8
KEPT_MS = 5 * 60 * 1000  # older figures are not shown any more
P99 = 0.99


# The brokers' own network: no proxy that the environment names for the web.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class TopicFigures(NamedTuple):
    """Rates of one topic, summed over its brokers."""

    bytes_in: float | None = None
    bytes_out: float | None = None


class BrokerFigures(NamedTuple):
    """What one broker's endpoint says of it."""

    version: str | None = None
    requests: tuple[RequestPicture, ...] = ()
    connections: int | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    age_ms: int | None = None


Key = tuple[str, str, str]  # name, subject, part


class Endpoint:
    """One URL: what it said last, and the rates since the reading before."""

    def __init__(self, url: str) -> None:
        self.url, self._authorization = without_password(url)
        self.read_ms: int | None = None
        self.error: str | None = None
        self.rates: Rates[Key] = Rates()
        self.gauges: dict[Key, float] = {}

    def read(self) -> None:
        """Ask once, and take what comes; runs in a thread."""
        try:
            figures = list(figures_in(self._fetch()))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.error = reason_of(error)
            return
        if not figures:
            self.error = "there are no metrics of a broker"
            return
        self.error = None
        self._take(figures, int(time.time() * 1000))

    def _fetch(self) -> bytes:
        request = urllib.request.Request(self.url, headers={"Accept": "text/plain"})
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        deadline = time.monotonic() + TIMEOUT_S
        chunks, size = [], 0
        with OPENER.open(request, timeout=TIMEOUT_S) as answer:
            while chunk := answer.read(CHUNK_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                if size > BYTES_MAX:
                    raise ValueError(f"more than {BYTES_MAX} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not whole within {TIMEOUT_S:.0f} s")
        return b"".join(chunks)

    def _take(self, figures: Iterable[Figure], now_ms: int) -> None:
        counters: dict[Key, float] = {}
        gauges: dict[Key, float] = {}
        for name, subject, part, value in figures:
            (counters if name in COUNTERS else gauges)[name, subject, part] = value
        self.rates.read(now_ms, counters)
        self.rates.forget_before(now_ms)
        self.gauges = gauges
        self.read_ms = now_ms

    def broker(self, now_ms: int) -> BrokerFigures:
        if self.read_ms is None or now_ms - self.read_ms > KEPT_MS:
            return BrokerFigures()
        connections = [each for key, each in self.gauges.items() if key[0] == "connections"]
        memory = self.gauges.get(("memory", "", ""))
        return BrokerFigures(
            version=next((key[2] for key in self.gauges if key[0] == "version"), None),
            requests=requests_of(self.rates.now, self.gauges),
            connections=int(sum(connections)) if connections else None,
            bytes_in=self._bytes("bytes_in"),
            bytes_out=self._bytes("bytes_out"),
            cpu_cores=self.rates.now.get(("cpu_s", "", "")),
            memory_bytes=None if memory is None else int(memory),
            age_ms=now_ms - self.read_ms,
        )

    def _bytes(self, name: str) -> float | None:
        """Of all topics: as the broker sums them up, else by our own sum."""
        total = self.rates.now.get((name, "", ""))
        if total is not None:
            return total
        return self.rates.sum(key for key in self.rates.now if key[0] == name)

    def topics(self) -> Mapping[str, tuple[float | None, float | None]]:
        """Rates in and out of each topic."""
        found: dict[str, list[float | None]] = defaultdict(lambda: [None, None])
        for (name, topic, _), rate in self.rates.now.items():
            if topic and name in ("bytes_in", "bytes_out"):
                found[topic][name == "bytes_out"] = rate
        return {topic: (each[0], each[1]) for topic, each in found.items()}


COUNTERS = frozenset(
    {"bytes_in", "bytes_out", "requests", "time_sum", "time_count", "time_bucket", "cpu_s"}
)


class Endpoints:
    """All endpoints of a cluster's brokers."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = [split_id(each) for each in given]
        self._endpoints = [Endpoint(url) for _, url in self._given]
        self._pool = (
            ThreadPoolExecutor(min(THREADS_MAX, len(given)), "console-metrics") if given else None
        )
        self._reading: dict[int, Future[None]] = {}

    def start_reading(self) -> None:
        """Ask all that are not being asked already."""
        if self._pool is None:
            return
        for index, endpoint in enumerate(self._endpoints):
            before = self._reading.get(index)
            if before is None or before.done():
                self._reading[index] = self._pool.submit(endpoint.read)

    def finish_reading(self, timeout_s: float = TIMEOUT_S) -> None:
        wait_for(self._reading.values(), timeout_s)

    def by_broker(self, broker_ids: Sequence[int]) -> dict[int, Endpoint]:
        """Which endpoint is whose: as given, the others in the order of the ids left."""
        named = {broker for broker, _ in self._given if broker is not None}
        left = iter([each for each in sorted(broker_ids) if each not in named])
        found = {}
        for (broker, _), endpoint in zip(self._given, self._endpoints, strict=True):
            whose = next(left, None) if broker is None else broker
            if whose is not None:
                found[whose] = endpoint
        return found

    def topics(self) -> dict[str, TopicFigures]:
        """Rates of all topics, summed over their brokers."""
        found: dict[str, TopicFigures] = {}
        for endpoint in self._endpoints:
            for topic, (bytes_in, bytes_out) in endpoint.topics().items():
                before = found.get(topic)
                if before is not None:
                    bytes_in = added(bytes_in, before.bytes_in)
                    bytes_out = added(bytes_out, before.bytes_out)
                found[topic] = TopicFigures(bytes_in, bytes_out)
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def added(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def split_id(given: str) -> tuple[int | None, str]:
    """`3=http://…` as (3, URL); without an id (None, URL)."""
    head, equals, rest = given.partition("=")
    return (int(head), rest) if equals and head.isdigit() else (None, given)


def reason_of(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return str(error.reason)
    return str(error) or type(error).__name__


def without_password(url: str) -> tuple[str, str]:
    """The URL without user and password, which no page and no log shows, and their header."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, ""
    secret, _, host = parts.netloc.rpartition("@")
    header = "Basic " + base64.b64encode(secret.encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), header


def requests_of(
    rates: Mapping[Key, float], gauges: Mapping[Key, float]
) -> tuple[RequestPicture, ...]:
    """Of each API that was asked lately: how often, and how long it took."""
    counts: dict[str, float] = defaultdict(float)
    buckets: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (name, api, part), rate in rates.items():
        if name == "requests":  # one of each version
            counts[api] += rate
        elif name == "time_bucket":
            buckets[api].append((float(part.replace("+Inf", "inf")), rate))
    found = []
    for api, rate in sorted(counts.items()):
        if not rate:
            continue
        timed = rates.get(("time_count", api, ""))
        spent = rates.get(("time_sum", api, ""))
        mean = spent / timed if timed and spent is not None else gauges.get(("time_mean", api, ""))
        p99 = quantile(buckets[api], P99)
        if p99 is None:
            p99 = gauges.get(("time_p99", api, ""), gauges.get(("time_quantile", api, "0.99")))
        found.append(RequestPicture(api, rate, mean, p99))
    return tuple(found)


def quantile(buckets: list[tuple[float, float]], share: float) -> float | None:
    """As Prometheus estimates it: linear within the bucket that holds it; the last finite bound
    where it lies above all."""
    buckets = sorted(buckets)
    if not buckets or not buckets[-1][1]:
        return None
    wanted = buckets[-1][1] * share
    low, below = 0.0, 0.0
    for bound, upto in buckets:
        if upto >= wanted:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / (upto - below)
        low, below = bound, upto
    return low
