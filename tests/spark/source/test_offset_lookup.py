"""The driver's questions while the broker is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ottla.client.errors import KafkaTimeoutError
from ottla.client.structs import TopicPartition
from ottla.spark import broker_wait
from ottla.spark.broker_wait import BrokerAway
from ottla.spark.source.offset_lookup import OffsetLookup
from ottla.spark.source.options import read_options
from ottla.testing import Broker
from ottla.testing import broker as start_broker

from ..warned import warnings_of_spark
from .helpers import make_topic, produce

TOPIC = "orders"


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker that may be stopped."""
    with start_broker() as started:
        make_topic(started, TOPIC, 1)
        produce(started, TOPIC, [b"a", b"b"])
        yield started


def lookup_of(broker: Broker, **options: str) -> OffsetLookup:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": TOPIC,
        "partition.metadata.cache.ttl.ms": "-1",
        **options,
    }
    return OffsetLookup(read_options(given, "stream"))


def test_a_broker_that_is_away_is_waited_for(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a wait for it ran out, the answer comes when the broker does; the log says what
    is waited for, and that it is over."""
    monkeypatch.setattr(broker_wait, "AWAY_AFTER_S", 0.05)
    monkeypatch.setattr(broker_wait, "WARN_EVERY_S", 0.05)
    asked = lookup_of(own_broker, **{"fetchOffset.numRetries": "1"})
    place = TopicPartition(TOPIC, 0)
    assert asked.latest() == {place: 2}
    own_broker.stop()
    found: list[object] = []
    with warnings_of_spark() as warned:
        waiting = threading.Thread(target=lambda: found.append(asked.latest()), daemon=True)
        waiting.start()
        warned.wait_for(3)  # more than once, so nothing counts the tries
        assert not found
        own_broker.start()
        waiting.join(60)
    asked.close()
    assert found == [{place: 2}]
    servers = own_broker.bootstrap_servers
    assert any(f"no broker answers at {servers}" in each for each in warned.texts)
    assert "a broker answers again" in warned.texts[-1]


def test_the_wait_ends_with_its_cause(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After brokerTimeout the error names the broker, why it is not reached, and the option; a wait
    of the client alone names why as well."""
    asked = lookup_of(own_broker, brokerTimeout="200ms", **{"fetchOffset.numRetries": "3"})
    asked.latest()
    own_broker.stop()
    try:
        with pytest.raises(BrokerAway) as raised:
            asked.latest()
        client = asked._bootstrapped()
        with pytest.raises(KafkaTimeoutError, match=r"not done within 1 ms \(.*refused"):
            client.wait(client.refresh(), 1)
    finally:
        asked.close()
    fact, advice = str(raised.value).split("\n")
    assert fact.startswith(f"no broker answers at {own_broker.bootstrap_servers} (")
    assert "refused" in fact
    assert "brokerTimeout" in fact
    assert advice.startswith("Try: start the broker")
