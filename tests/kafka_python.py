"""kafka-python's consumer, started so that its first join sees the topic."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer

from tests.waiting import eventually


def subscribed(topic: str, **options: Any) -> Any:
    """A consumer that is subscribed and has the topic's metadata before it polls.

    Without the metadata its first join assigns nothing; when the metadata comes, it joins again as
    leader, and if `poll` times out during that SyncGroup, kafka-python 3.0.12 never applies the
    assignment and sends no more heartbeats.
    """
    consumer = KafkaConsumer(**options)
    consumer.subscribe([topic])
    eventually(lambda: consumer.partitions_for_topic(topic), f"kafka-python knows {topic}")
    return consumer
