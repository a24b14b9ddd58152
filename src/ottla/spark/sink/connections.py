"""Producers kept for the life of a Python worker: it runs many tasks, and connecting costs more.

One plain (idempotent) producer per cluster in each process. It also answers how many partitions a
topic has; its client keeps that fresh. `send_all` and `settled` are how batches go through any
producer, this one or the driver's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.errors import KafkaTimeoutError
from ottla.client.producer.raw_producer import BatchFuture, RawProducer

from .. import broker_wait
from .rows import Piece

log = logging.getLogger("ottla.spark")

PRODUCERS_MAX = 8  # clusters that one process keeps a producer for

_producers: dict[tuple[tuple[str, Any], ...], RawProducer] = {}


def plain_producer(properties: Mapping[str, Any]) -> RawProducer:
    """The process's producer for this cluster and these properties."""
    key = tuple(sorted(properties.items()))
    producer = _producers.get(key)
    if producer is None:
        while len(_producers) >= PRODUCERS_MAX:
            _producers.pop(next(iter(_producers))).close()
        producer = _producers[key] = RawProducer(dict(properties))
    return producer


def send_all(producer: RawProducer, pieces: Iterable[Piece]) -> list[BatchFuture]:
    """Send batches, each to its place."""
    return [
        producer.send_batch(piece.topic, piece.partition, piece.data, piece.records)
        for piece in pieces
    ]


def settled(producer: RawProducer, futures: Iterable[BatchFuture]) -> list[list[tuple[int, int]]]:
    """Wait until all are acknowledged; of each, first offset and number of records of what it
    became (see `BatchFuture.stored`). Raises what went wrong with any part of any of them."""
    while True:
        try:
            producer.flush(broker_wait.WARN_EVERY_S)
            break
        except KafkaTimeoutError as problem:  # each batch has its own end, delivery.timeout.ms
            reasons = "; ".join(producer.connection_failures()) or "no answer"
            log.warning("%s (%s): waiting for it", problem, reasons)
    return [future.stored(0) for future in futures]


def partition_count(properties: Mapping[str, Any], topic: str) -> int:
    """How many partitions the topic has; a missing one is made where the cluster allows it."""
    return len(plain_producer(properties).partitions_for(topic))
