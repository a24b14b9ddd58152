"""The pytest plugin: a real broker as a fixture, known as soon as the package is installed.

    def test_orders(ottla_broker, ottla_topic):
        producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers})

    @pytest.mark.ottla(num_partitions=3)
    def test_with_options(ottla_broker): ...

    def test_a_dead_leader(ottla_cluster):
        ottla_cluster.kill(ottla_cluster.leader("orders"))

Tests without options share one broker per worker (topics keep them apart); a test with options, or
one that asks for `ottla_own_broker`, gets its own. A cluster of several brokers is a test's own
too. The brokers' logs are shown with a failed test.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer
    from ottla.client.producer import Producer
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster

LOG_LINES_SHOWN = 40
JOIN_TIMEOUT_S = 10.0
_numbers = itertools.count()
# Of each log to show when the test fails: its title, how it is read, and where the test began.
_logs = pytest.StashKey[list[tuple[str, Callable[[], str], int]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ottla(**options): the test's own Ottla broker, with these options"
    )


@pytest.fixture(scope="session")
def ottla_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole session of this worker."""
    yield from _running(tmp_path_factory.mktemp("ottla"), {})


@pytest.fixture
def ottla_own_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker for this test alone: to be killed, restarted, or made to fail."""
    marker = request.node.get_closest_marker("ottla")
    options = dict(marker.kwargs) if marker is not None else {}
    for broker in _running(tmp_path_factory.mktemp("ottla"), options):
        _remember(request, broker)
        yield broker


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Broker:
    """A real broker: shared, or the test's own if `@pytest.mark.ottla(...)` gives options."""
    own = request.node.get_closest_marker("ottla") is not None
    name = "ottla_own_broker" if own else "ottla_shared_broker"
    broker: Broker = request.getfixturevalue(name)
    if not own:
        _remember(request, broker)
    return broker


@pytest.fixture
def ottla_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers that form a cluster, for this test alone: to be killed, paused, restarted.

    `@pytest.mark.ottla(brokers=5, …)` gives another number, and options of every broker.
    """
    from ottla.testing.cluster import Cluster

    marker = request.node.get_closest_marker("ottla")
    options = dict(marker.kwargs) if marker is not None else {}
    with Cluster(directory=tmp_path_factory.mktemp("ottla-cluster"), **options) as cluster:
        for node_id in cluster.node_ids:
            _show(
                request, f"log of broker {node_id} of {cluster!r}", partial(cluster.logs, node_id)
            )
        yield cluster


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has; the topic makes itself when first used."""
    stem = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:100]
    return f"{stem}-{next(_numbers)}"


@pytest.fixture
def ottla_producer(ottla_broker: Broker) -> Iterator[Producer[Any, Any]]:
    """A producer of the test's broker; closed (and so flushed) after the test."""
    from ottla.client.producer import Producer

    producer: Producer[Any, Any]
    with Producer(bootstrap_servers=ottla_broker.bootstrap_servers, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def ottla_consumer(
    request: pytest.FixtureRequest, ottla_broker: Broker, ottla_topic: str
) -> Iterator[Consumer]:
    """A consumer of `ottla_topic` from its beginning, in a group of its own, joined already; an
    iteration ends after a second without records."""
    from ottla.client.consumer import Consumer

    with Consumer(
        ottla_topic,
        bootstrap_servers=ottla_broker.bootstrap_servers,
        group_id=f"group-of-{ottla_topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    ) as consumer:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(50)
        if consumer.assignment():
            consumer.seek_to_beginning()
        yield consumer


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for title, read, start in item.stash.get(_logs, []):
            lines = read()[start:].splitlines()[-LOG_LINES_SHOWN:]
            report.sections.append((title, "\n".join(lines)))


def _running(directory: Any, options: dict[str, object]) -> Iterator[Broker]:
    from ottla.testing.broker import Broker

    with Broker(directory=directory, **options) as broker:
        yield broker


def _remember(request: pytest.FixtureRequest, broker: Broker) -> None:
    """Show what this broker logs from now on if the test fails."""
    _show(request, f"log of {broker!r}", broker.logs)


def _show(request: pytest.FixtureRequest, title: str, read: Callable[[], str]) -> None:
    request.node.stash.setdefault(_logs, []).append((title, read, len(read())))
