"""Measures share consumers: several in one group, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.client.share.share_consumer import ShareConsumer

POLL_MS = 100


class Taken(NamedTuple):
    """What was delivered from `began` to `ended`, on the wall clock, and what had been before."""

    record_count: int
    size_bytes: int
    began: float
    ended: float
    before_count: int = 0
    before_bytes: int = 0


class SharedTaken(NamedTuple):
    """What all consumers got, and each of them."""

    total: Taken
    consumers: list[Taken]


class SharedRun:
    """One run; `report` is called with each consumer's number and each interval as it ends."""

    def __init__(
        self,
        options: dict[str, Any],
        topic: str,
        consumer_count: int,
        *,
        timeout_ms: float,
        interval_s: float,
        report: Callable[[int, Taken], object],
    ) -> None:
        self._options = options
        self._topic = topic
        self._consumer_count = consumer_count
        self._timeout_s = timeout_ms / 1000
        self._interval_s = interval_s
        self._report = report
        self._lock = threading.Lock()
        self._record_count = 0
        name = options["client_id"]
        numbers = range(1, consumer_count + 1)
        self.client_ids = [name] if consumer_count == 1 else [f"{name}-{each}" for each in numbers]

    def run(self, count: int) -> SharedTaken:
        """Until the consumers have so many together, or one has waited for too long."""
        from ottla.client.share.share_consumer import ShareConsumer

        consumers: list[ShareConsumer[bytes, bytes]] = []
        try:
            consumers.extend(
                ShareConsumer(**{**self._options, "client_id": each}) for each in self.client_ids
            )
            began = time.time()
            with ThreadPoolExecutor(self._consumer_count) as threads:
                waiting = [
                    threads.submit(self._consume, number, consumer, count)
                    for number, consumer in enumerate(consumers, 1)
                ]
                taken = [each.result() for each in waiting]
            ended = time.time()
            for consumer in consumers:
                consumer.commit_sync()
        finally:
            for consumer in consumers:
                consumer.close()
        each = [Taken(records, size, began, ended) for records, size in taken]
        records, size = (sum(part) for part in zip(*taken, strict=True))
        return SharedTaken(Taken(records, size, began, ended), each)

    def _consume(
        self, number: int, consumer: ShareConsumer[bytes, bytes], count: int
    ) -> tuple[int, int]:
        consumer.subscribe([self._topic])
        found = size = 0
        quiet_since = time.monotonic()
        last = Taken(0, 0, time.time(), time.time())
        while self._record_count < count and time.monotonic() - quiet_since <= self._timeout_s:
            records = consumer.poll(timeout_ms=POLL_MS)
            if records:
                quiet_since = time.monotonic()
            found += len(records)
            for record in records:
                size += max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
            with self._lock:
                self._record_count += len(records)
            now = time.time()
            if records and now - last.ended >= self._interval_s:
                part = Taken(found, size, last.ended, now, last.record_count, last.size_bytes)
                self._report(number, part)
                last = part
        return found, size
