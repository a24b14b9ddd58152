"""The helpers and fixtures that read: consume_all, wait_for_lag_zero, ottla_consumer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.testing import Broker, consume_all, wait_for_lag_zero


def test_all_of_a_topic(
    ottla_broker: Broker, ottla_topic: str, ottla_producer: Producer[Any, Any]
) -> None:
    """consume_all gives what is there; with a count it waits; what does not come is an error."""
    assert consume_all(ottla_broker, ottla_topic) == []
    for n in range(10):
        ottla_producer.send(ottla_topic, b"%d" % n)
    ottla_producer.flush()
    assert [each.value for each in consume_all(ottla_broker, ottla_topic)] == [
        b"%d" % n for n in range(10)
    ]
    later = threading.Timer(0.2, lambda: ottla_producer.send(ottla_topic, b"late"))
    later.start()
    assert consume_all(ottla_broker.bootstrap_servers, [ottla_topic], count=11)[-1].value == b"late"
    with pytest.raises(AssertionError, match="11 of 12 records"):
        consume_all(ottla_broker, ottla_topic, count=12, timeout_s=0.3)


def test_waiting_for_a_group(
    ottla_broker: Broker, ottla_topic: str, ottla_producer: Producer[Any, Any]
) -> None:
    """wait_for_lag_zero ends when the group has committed the end, and tells what is missing."""
    for n in range(20):
        ottla_producer.send(ottla_topic, b"%d" % n)
    ottla_producer.flush()
    group = f"reads-{ottla_topic}"
    with pytest.raises(AssertionError, match="committed nothing"):
        wait_for_lag_zero(ottla_broker, group, timeout_s=0.2)
    with Consumer(bootstrap_servers=ottla_broker.bootstrap_servers, group_id=group) as consumer:
        consumer.assign([TopicPartition(ottla_topic, 0)])
        consumer.commit({TopicPartition(ottla_topic, 0): 15})  # type: ignore[dict-item]
        with pytest.raises(AssertionError, match=f"{ottla_topic}-0 by 5"):
            wait_for_lag_zero(ottla_broker, group, timeout_s=0.2)
        begun = threading.Event()

        def commit_end() -> None:
            begun.set()
            consumer.commit({TopicPartition(ottla_topic, 0): 20})  # type: ignore[dict-item]

        timer = threading.Timer(0.2, commit_end)
        timer.start()
        wait_for_lag_zero(ottla_broker, group, ottla_topic)
        assert begun.is_set()
        timer.join()


def test_ready_clients(
    ottla_topic: str, ottla_producer: Producer[Any, Any], ottla_consumer: Consumer
) -> None:
    """What the ready producer sends, the ready consumer reads, and then its loop ends."""
    for n in range(5):
        ottla_producer.send(ottla_topic, b"%d" % n)
    assert [each.value for each in ottla_consumer] == [b"%d" % n for n in range(5)]
