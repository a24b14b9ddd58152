"""A topic that is deleted and made anew under its readers and writers: they go on with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.client import errors
from ottla.testing import Broker, broker
from tests.client.reading import read_values

WAIT_S = 60
CAREFUL: dict[str, Any] = {"allow_auto_create_topics": False, "retry_backoff_ms": 20}


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    """One that may be restarted, so that leader epochs grow."""
    with broker() as running:
        yield running


def read(consumer: Consumer, count: int) -> list[bytes]:
    return read_values(consumer, count, wait_s=WAIT_S)


@pytest.mark.parametrize("poll_between", [False, True], ids=["asleep", "awake"])
@pytest.mark.parametrize("epoch_grows", [False, True], ids=["same-epoch", "later-epoch"])
@pytest.mark.parametrize("group", [None, "readers"])
def test_readers_begin_anew(
    server: Broker, group: str | None, epoch_grows: bool, poll_between: bool, topic: str
) -> None:
    """Offsets of the old topic mean nothing in the new one, neither read on from nor committed: all
    of the new records come."""
    place = {"bootstrap_servers": server.bootstrap_servers, **CAREFUL}
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        with Producer(**place) as producer:
            for n in range(10):
                producer.send(topic, b"old-%d" % n).get(WAIT_S)
            if epoch_grows:
                server.restart()
            options = {"group_id": group and f"{group}-{topic}", "auto_offset_reset": "earliest"}
            with Consumer(topic, **place, **options, heartbeat_interval_ms=100) as consumer:
                assert len(read(consumer, 10)) == 10
                admin.delete_topics([topic])
                for _ in range(5 if poll_between else 0):
                    consumer.poll(20)
                admin.create_topics([NewTopic(topic, 1, 1)])
                for n in range(4):
                    producer.send(topic, b"new-%d" % n).get(WAIT_S)
                assert read(consumer, 4) == [b"new-%d" % n for n in range(4)]


def test_without_a_policy_the_reader_gets_an_error(server: Broker, topic: str) -> None:
    """It may have lost records, and decides itself where to go on."""
    place = {"bootstrap_servers": server.bootstrap_servers, **CAREFUL}
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin, Producer(**place) as producer:
        admin.create_topics([NewTopic(topic, 1, 1)])
        producer.send(topic, b"old").get(WAIT_S)
        with Consumer(**place, auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(errors.NoOffsetForPartitionError):
                read(consumer, 1)
            consumer.seek_to_beginning()
            assert read(consumer, 1) == [b"old"]
            admin.delete_topics([topic])
            admin.create_topics([NewTopic(topic, 1, 1)])
            producer.send(topic, b"new").get(WAIT_S)
            with pytest.raises(errors.LogTruncationError, match="was deleted and made anew"):
                read(consumer, 1)
            consumer.seek_to_beginning()
            assert read(consumer, 1) == [b"new"]
