"""A real server and a real client: a topic is made, written and read, also after a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.live import Server

COUNT = 1_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


def create(server: Server, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def produce(server: Server, topic: str, partitions: int, **options: object) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, **options})
    failures: list[object] = []
    for number in range(COUNT):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert failures == []


def consume(server: Server, topic: str, partitions: int) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[int]] = {index: [] for index in range(partitions)}
    while sum(map(len, found.values())) < COUNT:
        message = consumer.poll(10)
        assert message is not None, f"only {found} came"
        assert message.error() is None, message.error()
        found[message.partition()].append(int(message.value()))
        assert message.offset() == len(found[message.partition()]) - 1
    consumer.close()
    return found


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_produced_is_consumed_also_after_a_restart(
    server: Server, idempotent: bool
) -> None:
    """Every value, in order, with dense offsets, once; the same again after a clean restart."""
    create(server, "first", 3)
    produce(server, "first", 3, **{"acks": "all", "enable.idempotence": idempotent})
    expected = {index: list(range(index, COUNT, 3)) for index in range(3)}
    assert consume(server, "first", 3) == expected
    server.stop()
    server.start()
    assert consume(server, "first", 3) == expected


def test_a_topic_is_made_by_being_written_to(server: Server) -> None:
    """The first produce to a topic that is not there creates it and works."""
    produce(server, "unheard.of", 1)
    assert consume(server, "unheard.of", 1) == {0: list(range(COUNT))}
