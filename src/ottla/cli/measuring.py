"""Measures producers and consumers: how many, how fast, how long each took."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer
    from ottla.client.producer import Producer

MB = 1024 * 1024
LETTERS = 26


class Window(NamedTuple):
    """What happened in a stretch of time."""

    record_count: int
    size_bytes: int
    seconds: float
    latencies_ms: Sequence[float]

    @property
    def per_second(self) -> float:
        return self.record_count / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        return self.size_bytes / MB / self.seconds if self.seconds > 0 else 0.0

    @property
    def average_ms(self) -> float:
        return sum(self.latencies_ms) / len(self.latencies_ms) if self.latencies_ms else 0.0

    @property
    def largest_ms(self) -> float:
        return max(self.latencies_ms, default=0.0)


def percentiles(latencies_ms: Sequence[float], *wanted: float) -> list[int]:
    """Latencies that this share of records stayed within."""
    ordered = sorted(latencies_ms) or [0.0]
    return [int(ordered[min(int(share * len(ordered)), len(ordered) - 1)]) for share in wanted]


def random_payload(size: int) -> bytes:
    """Letters, as Kafka's tool sends them."""
    return bytes(random.randrange(LETTERS) + 65 for _ in range(size))


class Throttle:
    """Keeps to so many a second; below 0 there is no limit."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self.began = time.monotonic()
        self.sent = 0

    def wait(self) -> None:
        self.sent += 1
        if self.per_second > 0:
            ahead_s = self.sent / self.per_second - (time.monotonic() - self.began)
            if ahead_s > 0.002:
                time.sleep(ahead_s)


class ProducerRun:
    """One run of a producer; `report` is called with each window as it ends."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        topic: str,
        payloads: Iterator[bytes],
        *,
        throughput: float = -1,
        interval_s: float = 5.0,
        report: Callable[[Window], object] = lambda window: None,
    ) -> None:
        self.producer = producer
        self.topic = topic
        self.payloads = payloads
        self.throttle = Throttle(throughput)
        self.interval_s = interval_s
        self.report = report
        self.latencies_ms: list[float] = []
        self.size_bytes = 0
        self.errors: list[Exception] = []
        self.began = time.perf_counter()
        self._window_began = self.began
        self._window_first = 0
        self._window_bytes = 0

    def run(self, count: int, transaction_ms: int = 0) -> Window:
        """Send so many records, in transactions of so long if wanted."""
        opened = time.monotonic()
        if transaction_ms:
            self.producer.begin_transaction()
        for _ in range(count):
            self._send(next(self.payloads))
            self.throttle.wait()
            if transaction_ms and (time.monotonic() - opened) * 1000 >= transaction_ms:
                self.producer.commit_transaction()
                self.producer.begin_transaction()
                opened = time.monotonic()
            if time.perf_counter() - self._window_began >= self.interval_s:
                self._end_window()
        if transaction_ms:
            self.producer.commit_transaction()
        self.producer.flush()
        return self.total()

    def total(self) -> Window:
        seconds = time.perf_counter() - self.began
        return Window(len(self.latencies_ms), self.size_bytes, seconds, self.latencies_ms)

    def _send(self, payload: bytes) -> None:
        sent = time.perf_counter()
        size = len(payload)

        def delivered(_: Any, error: Exception | None) -> None:
            if error is not None:
                self.errors.append(error)
                return
            self.latencies_ms.append((time.perf_counter() - sent) * 1000)
            self.size_bytes += size

        self.producer.send(self.topic, payload, on_delivery=delivered)

    def _end_window(self) -> None:
        now = time.perf_counter()
        latencies = self.latencies_ms[self._window_first :]
        size = self.size_bytes - self._window_bytes
        self.report(Window(len(latencies), size, now - self._window_began, latencies))
        self._window_began = now
        self._window_first += len(latencies)
        self._window_bytes += size


class Consumed(NamedTuple):
    """What a consumer has read so far."""

    record_count: int
    size_bytes: int
    began: float  # wall clock
    ended: float
    joining_s: float


def consume(
    consumer: Consumer,
    count: int,
    *,
    timeout_ms: float,
    interval_s: float = 5.0,
    report: Callable[[Consumed], object] = lambda so_far: None,
) -> Consumed:
    """Read until there are so many records, or none has come for `timeout_ms`."""
    began = time.time()
    clock = time.monotonic()
    quiet_since = reported = clock
    joined: float | None = None
    found = size = 0
    while found < count and (time.monotonic() - quiet_since) * 1000 < timeout_ms:
        batches = consumer.poll(timeout_ms=100)
        now = time.monotonic()
        if joined is None and consumer.assignment():
            joined = now
        for records in batches.values():
            found += len(records)
            for record in records:
                size += max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
        if batches:
            quiet_since = now
        if now - reported >= interval_s:
            reported = now
            report(Consumed(found, size, began, time.time(), (joined or now) - clock))
    return Consumed(found, size, began, time.time(), (joined or clock) - clock)
