"""What is in a topic, for tests of the agent."""

from __future__ import annotations

from ottla.client.consumer.consumer import Consumer
from ottla.client.structs import ConsumerRecord, TopicPartition


def records(
    bootstrap: str, topic: str, *, isolation_level: str = "read_committed"
) -> list[ConsumerRecord]:
    """All records of a topic, partition after partition."""
    found: list[ConsumerRecord] = []
    with Consumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation_level,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        for number in sorted(consumer.partitions_for_topic(topic) or ()):
            partition = TopicPartition(topic, number)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            [end] = consumer.end_offsets([partition]).values()
            while (consumer.position(partition) or 0) < end:
                for polled in consumer.poll(timeout_ms=500).values():
                    found.extend(polled)
    return found


def numbers(bootstrap: str, topic: str, *, isolation_level: str = "read_committed") -> list[int]:
    """The values of all records of a topic, which are numbers."""
    found = records(bootstrap, topic, isolation_level=isolation_level)
    return [int(record.value) for record in found]
