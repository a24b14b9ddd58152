"""Real clients over a quota: held to its rate, told so, and losing nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest

import ottla
from ottla.admin import Admin, ClientQuotaAlteration, ClientQuotaEntity
from tests.compat.conftest import SETTINGS
from tests.compat.test_confluent import consume, make_topic
from tests.waiting import eventually

RATE = 200_000  # bytes a second
WINDOWS = int(str(SETTINGS["quota.window.num"]))  # of a second each; may come at once
RECORD_BYTES = 20_000
COUNT = 32


@pytest.fixture
def client_id(bootstrap: str, new_name: Callable[[str], str]) -> Iterator[str]:
    """One that has a quota for what it sends, as long as the test lasts."""
    name = new_name("limited")
    entity = ClientQuotaEntity({"client-id": name})
    with Admin(bootstrap_servers=bootstrap) as admin:
        rates = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        alteration = ClientQuotaAlteration(entity, rates)
        assert admin.alter_client_quotas([alteration]) == {entity: None}
        eventually(lambda: admin.describe_client_quotas().get(entity) == rates)
        yield name
        admin.alter_client_quotas([ClientQuotaAlteration(entity, dict.fromkeys(rates))])


def by_librdkafka(bootstrap: str, topic: str, client_id: str) -> list[float]:
    """Sends all; how long its answers told it to wait, in seconds."""
    told: list[float] = []
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "batch.size": RECORD_BYTES,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    for _ in range(COUNT):
        producer.produce(topic, b"x" * RECORD_BYTES)
    assert producer.flush(120) == 0
    producer.poll(0)
    return told


def by_ottla(bootstrap: str, topic: str, client_id: str) -> list[float] | None:
    """The same with our own client, which does not show it."""
    with ottla.Producer(
        bootstrap_servers=bootstrap, client_id=client_id, batch_size=RECORD_BYTES, linger_ms=0
    ) as producer:
        for _ in range(COUNT):
            producer.send(topic, b"x" * RECORD_BYTES)
        producer.flush(timeout=120)
    return None


@pytest.mark.parametrize("send", [by_librdkafka, by_ottla])
def test_a_producer_is_held_to_its_rate(
    bootstrap: str,
    new_name: Callable[[str], str],
    client_id: str,
    send: Callable[[str, str, str], list[float] | None],
) -> None:
    """By the broker's own stamps: no more came in a time than the quota allows for it."""
    topic = new_name("held")
    make_topic(bootstrap, topic, **{"message.timestamp.type": "LogAppendTime"})
    told = send(bootstrap, topic, client_id)
    assert told is None or max(told) > 0
    stamps = [message.timestamp()[1] for message in consume(bootstrap, topic, COUNT)]
    assert len(stamps) == COUNT
    span_s = (max(stamps) - min(stamps)) / 1000
    # Two requests may be on their way when the client first learns of it.
    assert RATE * (span_s + WINDOWS) + 2 * RECORD_BYTES >= COUNT * RECORD_BYTES


def test_a_consumer_over_its_quota_gets_everything_in_the_end(
    bootstrap: str, new_name: Callable[[str], str], client_id: str
) -> None:
    """librdkafka takes the empty answers as what they are, and asks again."""
    topic = new_name("read")
    make_topic(bootstrap, topic)
    by_ottla(bootstrap, topic, "unlimited")
    told: list[float] = []
    found = consume(
        bootstrap,
        topic,
        COUNT,
        **{
            "client.id": client_id,
            "fetch.message.max.bytes": 100_000,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        },
    )
    assert len(found) == COUNT
    assert max(told) > 0
