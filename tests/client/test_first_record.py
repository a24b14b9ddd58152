"""How soon the first record comes: nobody waits for a retry when the answer is on its way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from ottla import Consumer, Producer, TopicPartition

TRIES = 5
SOON_S = 0.09  # less than retry_backoff_ms; a busy machine may miss it once, not always


def sought(bootstrap: str, partition: TopicPartition) -> Consumer:
    consumer: Consumer = Consumer(bootstrap_servers=bootstrap)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    return consumer


def assigned(bootstrap: str, partition: TopicPartition) -> Consumer:
    consumer: Consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([partition])
    return consumer


def subscribed(bootstrap: str, partition: TopicPartition) -> Consumer:
    return Consumer(partition.topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")


@pytest.mark.parametrize("start", [sought, assigned, subscribed])
def test_a_new_consumer_waits_for_no_retry(
    bootstrap: str,
    topic: str,
    start: Callable[[str, TopicPartition], Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However it begins, the first record comes as soon as the broker has answered, and no warning
    tells of a topic that is only not known yet."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first").get(10)
    took_s = []
    with caplog.at_level(logging.WARNING, "ottla.client"):
        for _ in range(TRIES):
            began = time.monotonic()
            with start(bootstrap, TopicPartition(topic, 0)) as consumer:
                assert next(consumer).value == b"first"
                took_s.append(time.monotonic() - began)
    assert min(took_s) < SOON_S
    assert not caplog.records
