"""Stretches of partitions, from one offset to another, by column: for readers that know the end.

A range is done when the position has reached its end, whether a record sits there or not (a
compacted log has gaps, a transactional one markers); nothing is asked for beyond it, so nothing
waits for records that are not wanted. One thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ..codec.columns import RecordColumns
from ..codec.records import Columns
from ..errors import KafkaError, KafkaTimeoutError
from ..network.cluster_client import ConsumerClient
from ..structs import TopicPartition
from .consumer import Consumer


class RangeReader:
    """A consumer that reads one range after the other, of one partition or another."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        """`properties` are Kafka's; what decides about positions is not the caller's here."""
        self.consumer: Consumer[bytes, bytes] = Consumer(
            config=properties,
            auto_offset_reset="none",
            enable_auto_commit=False,
            group_id=None,
            allow_auto_create_topics=False,
        )

    @property
    def client(self) -> ConsumerClient:
        """The consumer's connections and metadata."""
        return self.consumer._client

    @property
    def partition(self) -> TopicPartition | None:
        """The partition read last."""
        return next(iter(self.consumer.assignment()), None)

    def read(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        rows: int,
        value_bytes: int,
        timeout_ms: float,
        stalled: Callable[[int], None] | None = None,
    ) -> Iterator[RecordColumns]:
        """The records of `[start, end)`, in pieces of at least so many rows or bytes of values
        (the last, and one before the kind of timestamp changes, may be smaller).

        `timeout_ms` is for each step forward. When it has passed, KafkaTimeoutError is raised; or
        `stalled` is called with the offset, and returns to wait as long again, or raises. Raises
        OffsetOutOfRangeError where there is nothing at the position any more. Whatever is raised,
        all before `position` was given out.
        """
        consumer = self.consumer
        if self.partition != partition:
            self._assign(partition)
        state = consumer._subscription.state(partition)
        # The end first: a fetch sent before the seek finds records there, and is not held.
        state.stop_at = end
        consumer.seek(partition, start)
        delivery = consumer._delivery
        while state.position is not None and state.position < end:
            columns = Columns()
            before = state.position
            add = partial(
                delivery.add_range, state, columns, end, rows=rows, value_bytes=value_bytes
            )
            problem = None
            try:
                done = consumer._wait_for(add, time.monotonic() + timeout_ms / 1000)
            except KafkaError as raised:
                if not columns.count:
                    raise
                problem = raised  # of what comes after these records
            if columns.count:
                found = RecordColumns(partition, columns, state.append_time)
                found.cut(end)
                if len(found):
                    yield found
            elif not done and state.position == before:
                if stalled is None:
                    raise nothing_came(partition, before, end, timeout_ms)
                stalled(before)
            if problem is not None:
                raise problem

    def _assign(self, partition: TopicPartition) -> None:
        """Take the partition, at no position yet, once its leader is known: before that, fetching
        would only warn."""
        consumer, client = self.consumer, self.consumer._client
        client.metadata.topics = {partition.topic}
        if client.cluster.leader(*partition) < 0:
            client.wait(client.refresh(), client.config["request_timeout_ms"])
        subscription = consumer._subscription
        subscription.by_user = True
        subscription.topics = frozenset({partition.topic})
        subscription.replace([partition], held=True)

    def position(self, partition: TopicPartition) -> int | None:
        """How far the last range was read."""
        return self.consumer._subscription.state(partition).position

    def close(self) -> None:
        self.consumer.close(autocommit=False)


def nothing_came(
    partition: TopicPartition, offset: int, end: int, timeout_ms: float
) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"nothing came of {partition.topic}-{partition.partition} at offset {offset} within "
        f"{timeout_ms:.0f} ms, although it goes on to {end}\n"
        "Try: see whether its leader is up, or allow more time"
    )
