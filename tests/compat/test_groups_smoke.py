"""A first look at consumer groups with a real client."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck

from tests.compat.test_confluent import WAIT_S, make_topic, produce


def test_subscribe_commit_and_resume(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """A group's consumer reads by subscription, commits, and its successor goes on from there."""
    topic, group = new_name("grouped"), new_name("group")
    make_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [{"value": b"%d" % i, "partition": i % 2} for i in range(20)])
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    seen: list[bytes] = []
    for _ in range(2):
        consumer = ck.Consumer(config)
        consumer.subscribe([topic])
        for message in consumer.consume(10, WAIT_S):
            assert message.error() is None
            seen.append(message.value())
            consumer.commit(message, asynchronous=False)
        consumer.close()
    assert sorted(map(int, seen)) == list(range(20))
