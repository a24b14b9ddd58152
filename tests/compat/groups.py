"""Consumers of confluent-kafka for the group tests: several in one thread, polled in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import confluent_kafka as ck

WAIT_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 500,
    "offsets.topic.num.partitions": 4,
    "num.partitions": 2,
}
# Made by the test that runs.
_readers: list[Reader] = []


class Reader:
    """One consumer; knows what it has been given, and how often that changed."""

    def __new__(cls, *_: Any, **__: Any) -> Reader:
        made = super().__new__(cls)
        _readers.append(made)
        return made

    def __init__(self, bootstrap: str, group: str, topics: list[str], **config: Any) -> None:
        named = {
            name if callable(value) else name.replace("_", "."): value
            for name, value in config.items()
        }
        self.consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
                **named,
            }
        )
        self.strategy = named.get("partition.assignment.strategy", "range")
        self.assigned: set[tuple[str, int]] = set()
        self.given = self.taken = 0
        self.emptied = 0
        self.values: list[bytes] = []
        self.consumer.subscribe(topics, on_assign=self._assign, on_revoke=self._revoke)

    @property
    def _cooperative(self) -> bool:
        return bool(self.strategy == "cooperative-sticky")

    def _assign(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.given += 1
        self.assigned |= {(each.topic, each.partition) for each in partitions}
        consumer.incremental_assign(partitions) if self._cooperative else consumer.assign(
            partitions
        )

    def _revoke(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.taken += 1
        self.assigned -= {(each.topic, each.partition) for each in partitions}
        self.emptied += not self.assigned
        consumer.incremental_unassign(partitions) if self._cooperative else consumer.unassign()

    def poll(self, timeout_s: float = 0.02) -> None:
        message = self.consumer.poll(timeout_s)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    def close(self) -> None:
        self.consumer.close()


def close_left() -> None:
    """Close what a test has left open, because it failed.

    Callbacks make cycles of such consumers. When the garbage collector ends one, librdkafka waits
    for its own threads, and the process may stand still for good, whatever pytest's time-out.
    """
    while _readers:
        with suppress(RuntimeError, AttributeError):  # is closed; was not made
            _readers.pop().close()


def spin(readers: Iterable[Reader], until: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Poll all of them in turns until something is so."""
    kept = list(readers)
    deadline = time.monotonic() + wait_s
    while not until():
        if time.monotonic() > deadline:
            shown = [sorted(reader.assigned) for reader in kept]
            raise AssertionError(f"not within {wait_s} s; assigned: {shown}")
        for reader in kept:
            reader.poll()


def shared_out(readers: Iterable[Reader], partitions: int) -> bool:
    """Whether every partition is with exactly one of them, and nobody is without."""
    sets = [reader.assigned for reader in readers]
    together = set().union(*sets)
    return all(sets) and len(together) == sum(map(len, sets)) == partitions
