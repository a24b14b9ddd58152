"""How soon the first record comes: nobody waits for a retry when the answer is on its way."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from ottla import Consumer, Producer, TopicPartition

# A retry comes far behind the time after which the iterator gives up.
OPTIONS = {
    "retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000, "consumer_timeout_ms": 60_000,
}  # fmt: skip


def sought(bootstrap: str, partition: TopicPartition) -> Consumer:
    consumer: Consumer = Consumer(bootstrap_servers=bootstrap, **OPTIONS)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    return consumer


def assigned(bootstrap: str, partition: TopicPartition) -> Consumer:
    consumer: Consumer = Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", **OPTIONS
    )
    consumer.assign([partition])
    return consumer


def subscribed(bootstrap: str, partition: TopicPartition) -> Consumer:
    return Consumer(
        partition.topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", **OPTIONS
    )


@pytest.mark.parametrize("start", [sought, assigned, subscribed])
def test_a_new_consumer_waits_for_no_retry(
    bootstrap: str,
    topic: str,
    start: Callable[[str, TopicPartition], Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However it begins, the first record comes when the broker has answered, without any retry,
    and no warning is logged for a topic that is only not known yet."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first").get(60)
    with (
        caplog.at_level(logging.WARNING, "ottla.client"),
        start(bootstrap, TopicPartition(topic, 0)) as consumer,
    ):
        assert next(consumer).value == b"first"
    assert not caplog.records
