"""What the client tests share: a live Ottla, the same tests on Apache Kafka, names for topics."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.apache.kafka import ApacheKafka
from tests.live import Server

SETTINGS = {
    # Records with old times must outlast a check of retention, which comes every five minutes.
    "log.retention.ms": -1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
numbers = itertools.count(1)


@pytest.fixture(scope="session")
def client_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A live Ottla for the clients of this worker: use topics and groups of your own."""
    with Server(tmp_path_factory.mktemp("clients"), settings=SETTINGS) as server:
        yield server


@pytest.fixture
def bootstrap(client_server: Server) -> str:
    """Where that Ottla listens."""
    return client_server.bootstrap


@pytest.fixture(
    params=["ottla", pytest.param("apache", marks=pytest.mark.xdist_group("apache_kafka"))]
)
def any_bootstrap(request: pytest.FixtureRequest) -> str:
    """The same test on Ottla and on Apache Kafka."""
    if request.param == "ottla":
        server: Server = request.getfixturevalue("client_server")
        return server.bootstrap
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic comes with its first use."""
    test = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return f"{test}-{os.getpid()}-{next(numbers)}"


@pytest.fixture
def members() -> Iterator[list[Any]]:
    """The polling members of a test (members.py); those that still run are stopped after it."""
    members: list[Any] = []
    yield members
    for each in members:
        each.stopping = True
    for each in members:
        each.end()


@pytest.fixture
def make_topic(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Create a topic with so many partitions, on the broker that the test uses."""
    name = "any_bootstrap" if "any_bootstrap" in request.fixturenames else "bootstrap"
    admin = AdminClient({"bootstrap.servers": request.getfixturevalue(name)})

    def make(topic: str, partitions: int, **config: str) -> None:
        made = admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
        made[topic].result(60)

    return make
