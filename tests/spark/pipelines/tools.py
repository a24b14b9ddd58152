"""What the tests of pipelines share: records in, records out, as plain Python sees them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.structs import ConsumerRecord, TopicPartition

Value = dict[str, Any] | bytes | None


def send(
    servers: str,
    topic: str,
    values: Iterable[Value | tuple[bytes | None, Value]],
    headers: Any = None,
) -> None:
    """Write values (objects as JSON), some with a key."""
    with Producer(bootstrap_servers=servers) as producer:
        for each in values:
            key, value = each if isinstance(each, tuple) else (None, each)
            data = json.dumps(value).encode() if isinstance(value, dict) else value
            producer.send(topic, value=data, key=key, headers=headers)
        producer.flush()


def read(servers: str, topic: str) -> list[ConsumerRecord]:
    """All committed records of a topic, in the order of partitions and offsets."""
    consumer = Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    try:
        places = [
            TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[ConsumerRecord] = []
        while any((consumer.position(place) or 0) < end for place, end in ends.items()):
            for records in consumer.poll(timeout_ms=200).values():
                found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


def objects(servers: str, topic: str) -> list[dict[str, Any]]:
    """The JSON values of a topic."""
    return [json.loads(record.value or b"null") for record in read(servers, topic)]


def make_topic(servers: str, name: str, partitions: int = 2, **configs: str) -> None:
    from ottla.client.admin import NewTopic

    chosen = {each.replace("_", "."): value for each, value in configs.items()}
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, None, chosen)])


def lag(servers: str, group: str, topic: str) -> int:
    """How far a group is behind the end of a topic, as every tool shows it."""
    with Admin(bootstrap_servers=servers) as admin:
        committed = admin.list_group_offsets(group)[group]
    consumer = Consumer(bootstrap_servers=servers, isolation_level="read_committed")
    try:
        places = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()
        ]
        ends = consumer.end_offsets(places)
    finally:
        consumer.close()
    return sum(
        end - (committed[place].offset if place in committed else 0) for place, end in ends.items()
    )
