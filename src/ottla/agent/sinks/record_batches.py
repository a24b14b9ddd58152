"""Events into whole record batches: one loop over the bodies, no object per record.

Events without a key and without a partition fill one batch after the other, each of the next
partition, as Kafka's default partitioner has it; those with a key go by its hash. The batches
belong to no producer yet: `RawProducer` stamps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.client.codec.records import BatchBuilder, murmur2
from ottla.client.producer.batch_encoding import seal

from .routing import Route

RECORD_OVERHEAD_BYTES = 24  # of a record's own numbers, usually fewer
FIRST_BYTES = 4096


class EncodedBatch(NamedTuple):
    topic: str
    partition: int
    data: bytearray
    records: int


class RecordBatches:
    """The record batches of one delivery.

    `partition_count` may wait for a topic's metadata. After `finish` it begins anew with the next
    partition: the counter of each topic outlives a delivery.
    """

    def __init__(
        self,
        partition_count: Callable[[str], int],
        *,
        codec: int,
        level: int | None,
        batch_bytes: int,
    ) -> None:
        self._partition_count = partition_count
        self._codec = codec
        self._level = level
        self._batch_bytes = batch_bytes
        self._open: dict[tuple[str, int], Any] = {}
        self._next: dict[str, int] = {}  # partition for events without a key, by topic
        self._done: list[EncodedBatch] = []

    def add(
        self,
        route: Route,
        bodies: Sequence[bytes],
        timestamp_ms: int,
        size: int,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Events of one route, with the same headers; `size` is about how many bytes they are."""
        topic, partition, key = route
        if partition is None and key is not None:
            partition = murmur2(key) % self._partition_count(topic)
        spread = partition is None
        place = (topic, self._spread_to(topic) if partition is None else partition)
        builder = self._open.get(place)
        if builder is None:
            wanted = max(FIRST_BYTES, size + RECORD_OVERHEAD_BYTES * len(bodies))
            builder = self._open[place] = BatchBuilder(min(self._batch_bytes, wanted))
        append = builder.append
        for body in bodies:
            used = append(timestamp_ms, key, body, headers)
            if used < 0:
                place = self._with_space(place, spread, RECORD_OVERHEAD_BYTES - used)
                append = self._open[place].append
                append(timestamp_ms, key, body, headers)

    def _with_space(self, place: tuple[str, int], spread: bool, needed: int) -> tuple[str, int]:
        """Lets the open batch grow to hold so many bytes more, or begins another."""
        builder = self._open[place]
        if builder.record_count and builder.byte_count + needed > self._batch_bytes:
            self._seal(place)
            if spread:
                topic = place[0]
                self._next[topic] += 1
                place = (topic, self._spread_to(topic))
            builder = self._open.get(place)
            if builder is None:
                self._open[place] = BatchBuilder(max(needed, self._batch_bytes))
                return place
            if builder.byte_count + needed > self._batch_bytes:  # one with keys is open there
                return self._with_space(place, False, needed)
        wanted = builder.byte_count + needed
        builder.grow(max(wanted, min(self._batch_bytes, 4 * wanted)))
        return place

    def _spread_to(self, topic: str) -> int:
        return self._next.setdefault(topic, 0) % self._partition_count(topic)

    def _seal(self, place: tuple[str, int]) -> None:
        builder = self._open.pop(place)
        count = builder.record_count
        self._done.append(EncodedBatch(*place, seal(builder, self._codec, self._level), count))

    def finish(self) -> list[EncodedBatch]:
        """All batches, those of one partition in order."""
        for place in list(self._open):
            self._seal(place)
        for topic in self._next:
            self._next[topic] += 1
        done, self._done = self._done, []
        return done
