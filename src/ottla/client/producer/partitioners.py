"""Which partition a record goes to, when the caller does not say.

By key: murmur2, so that a key has the same partition as with Java's clients. Without a key the
default stays with one partition until its batch is full or sent and then moves on (sticky,
KIP-480): full batches, all partitions in the long run. `RoundRobinPartitioner` takes the next
partition for each record. A function `f(key_bytes, all_partitions, available_partitions)` may
decide, or an object with kafka-python's `partition(topic, key, serialized_key, value,
serialized_value, cluster)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..codec.records import murmur2
from ..network.cluster_metadata import Cluster

__all__ = ["DefaultPartitioner", "RoundRobinPartitioner", "murmur2", "partitioner_option"]


class DefaultPartitioner:
    """By key with murmur2; without a key sticky. The producer does this itself, quickly."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int | None:
        return None if key is None else all_partitions[murmur2(key) % len(all_partitions)]


class RoundRobinPartitioner:
    """The next partition for each record, whatever its key."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        choice = available or all_partitions
        return choice[next(self.numbers) % len(choice)]


class ClusterView:
    """What kafka-python's partitioners ask of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def topics(self) -> set[str]:
        return set(self.cluster.topics)

    def partitions_for_topic(self, topic: str) -> set[int]:
        found = self.cluster.topics.get(topic)
        return set() if found is None else {each.partition for each in found.partitions}

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        found = self.cluster.topics.get(topic)
        return set() if found is None else set(found.available)


BY_NAME = {
    "default": DefaultPartitioner,
    "sticky": DefaultPartitioner,
    "murmur2": DefaultPartitioner,
    "round_robin": RoundRobinPartitioner,
    "roundrobin": RoundRobinPartitioner,
    "org.apache.kafka.clients.producer.roundrobinpartitioner": RoundRobinPartitioner,
}


def partitioner_option(value: object) -> object:
    """What the option takes."""
    if value is None:
        return DefaultPartitioner()
    if isinstance(value, str) and value.lower() in BY_NAME:
        return BY_NAME[value.lower()]()
    if isinstance(value, type):
        value = value()
    if callable(value) or (hasattr(value, "partition") and not isinstance(value, str)):
        return value
    raise ValueError(
        "'default', 'round_robin', a function (key, all_partitions, available) or an object "
        "with .partition()"
    )
