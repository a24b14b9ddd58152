"""What docs/testing.md shows does what it says."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest

from ottla import Consumer, Producer
from tests.testing.docs import blocks, run


def publish_order(servers: str, topic: str, text: str) -> None:
    producer = ck.Producer({"bootstrap.servers": servers})
    producer.produce(topic, text.encode())
    producer.flush(10)


class MyService:
    """A service that bills one order."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def start(self, servers: str, *, group: str) -> None:
        options = {"bootstrap_servers": servers, "group_id": group}
        with (
            Consumer(self.topic, auto_offset_reset="earliest", **options) as consumer,
            Producer(bootstrap_servers=servers) as producer,
        ):
            producer.send("bills", next(consumer).value + b": 1.20").get(60)
            consumer.commit()


SHOWN = [each for each in blocks("testing.md") if "pyspark" not in each]


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_examples(number: int, ottla_topic: str, request: pytest.FixtureRequest) -> None:
    """Each runs with the fixtures it asks for, and passes."""
    names: dict[str, Any] = {"publish_order": publish_order, "my_service": MyService(ottla_topic)}
    assert run(SHOWN[number], request, names)


def test_all_kinds_of_clients_are_shown() -> None:
    """confluent-kafka, aiokafka, Spark and our own, each in a test."""
    text = "\n".join(blocks("testing.md"))
    for word in ("confluent_kafka", "aiokafka", 'format("ottla")', "ottla_producer", "fail("):
        assert word in text, word
