"""Producers that outlive a task: Spark's Python workers run many, and connecting costs more.

One plain (idempotent) producer per cluster in each process. It also answers how many partitions a
topic has; its client keeps that fresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.raw import RawProducer

_producers: dict[tuple[tuple[str, Any], ...], RawProducer] = {}


def plain_producer(properties: Mapping[str, Any]) -> RawProducer:
    """The process's producer for this cluster and these properties."""
    key = tuple(sorted(properties.items()))
    producer = _producers.get(key)
    if producer is None:
        producer = _producers[key] = RawProducer(dict(properties))
    return producer


def partition_count(properties: Mapping[str, Any], topic: str) -> int:
    """How many partitions the topic has; a missing one is made where the cluster allows it."""
    return len(plain_producer(properties).partitions_for(topic))
