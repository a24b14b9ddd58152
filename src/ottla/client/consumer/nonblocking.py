"""The consumer for a caller that waits elsewhere, as the event loop of `ottla.aio` does.

Nothing here waits for records: a call returns what is there. `on_change` says when to call again.
All but `closed` and `fetch` belong to one thread, the one that would call `poll`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic

from ..structs import ConsumerRecord, K, TopicPartition, V
from .consumer import Consumer


class NonblockingConsumer(Generic[K, V]):
    """Reads from `consumer` without waiting; partitions named limit a call to these."""

    def __init__(self, consumer: Consumer[K, V], on_change: Callable[[], object]) -> None:
        """`on_change` is called in the background thread when a call may find something new."""
        self.consumer = consumer
        consumer._signal.listener = on_change

    @property
    def closed(self) -> bool:
        return self.consumer._closed

    def poll(
        self, partitions: tuple[TopicPartition, ...] = (), max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Records that are there, by partition."""
        with self._only(partitions):
            return self.consumer.poll(0, max_records)

    def next_records(
        self, partitions: tuple[TopicPartition, ...] = ()
    ) -> Iterator[ConsumerRecord[K, V]] | None:
        """Records of one partition, to iterate over; the position follows the iteration."""
        with self._only(partitions):
            consumer = self.consumer
            consumer._check_open()
            consumer._delivery.end()
            found: Iterator[ConsumerRecord[K, V]] | None = consumer._wait_for(consumer._begin, 0.0)
            return found

    def fetch(self) -> None:
        """Let the background thread ask for more, if it has not."""
        self.consumer._fetcher.wake()

    @contextmanager
    def _only(self, partitions: tuple[TopicPartition, ...]) -> Iterator[None]:
        """Pause all other partitions for one call; none if no partition is named."""
        others = [
            state
            for partition, state in self.consumer._subscription.states.items()
            if partitions and partition not in partitions and not state.paused
        ]
        for state in others:
            state.paused = True
        try:
            yield
        finally:
            for state in others:
                state.paused = False
