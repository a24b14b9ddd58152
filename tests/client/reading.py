"""Read back what a producer wrote: with a client that is not ours, or by polling ours."""

from __future__ import annotations

import time
from typing import NamedTuple

import confluent_kafka as ck

from ottla import Consumer
from ottla.client.config import COMMON, parse
from ottla.client.errors import raise_for
from ottla.client.network.cluster_client import CONTROLLER, Client
from ottla.testing.history import History
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

POLL_S = 10.0


class Seen(NamedTuple):
    """A record as librdkafka read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def read_all(bootstrap: str, topic: str, *, committed: bool = True) -> list[Seen]:
    """All records of a topic, by partition and offset."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reading",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        metadata = consumer.list_topics(topic, timeout=POLL_S).topics[topic]
        places = [ck.TopicPartition(topic, index, 0) for index in metadata.partitions]
        consumer.assign(places)
        seen: list[Seen] = []
        open_ends = {place.partition for place in places}
        deadline = time.monotonic() + POLL_S
        while open_ends:
            assert time.monotonic() < deadline, f"no end within {POLL_S} s; open: {open_ends}"
            for message in consumer.consume(1000, timeout=0.02):
                error = message.error()
                if error is not None:
                    assert error.code() == ck.KafkaError._PARTITION_EOF, error
                    open_ends.discard(message.partition())
                    continue
                seen.append(
                    Seen(
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.headers() or [],
                        message.timestamp()[1],
                    )
                )
    finally:
        consumer.close()
    return sorted(seen, key=lambda each: each[:2])


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **config: object) -> None:
    """Create a topic, with Kafka's configs (`_` for `.`)."""
    client = Client(parse(COMMON, {"bootstrap_servers": bootstrap, "reconnect_backoff_max_ms": 50}))
    try:
        client.bootstrap()
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=str(value))
                for name, value in config.items()
            ],
        )
        answer = client.call(CONTROLLER, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
        for made in answer.topics:
            raise_for(made.error_code, made.error_message)
    finally:
        client.close()


def record_all(history: History, bootstrap: str, topic: str) -> None:
    """Let a reader of the history read the whole topic."""
    for record in read_all(bootstrap, topic):
        found = (record.offset, (record.value or b"").decode())
        history.polled("reader", record.partition, [found])


def read_values(consumer: Consumer, count: int, *, wait_s: float) -> list[bytes]:
    """So many values by polling, or as many as come in that time."""
    found: list[bytes] = []
    deadline = time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(50).values():
            found += [record.value for record in records]
    return found
