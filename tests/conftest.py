"""What all tests share: a live Apache Kafka, and a live ZooKeeper.

Each starts when a test first asks and lives as long as the worker. A test that stops, fills or
configures a server starts its own (`tests.live.Server`, `tests.apache.kafka.ApacheKafka`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import hypothesis
import pytest

from tests import needs
from tests.apache.kafka import ApacheKafka
from tests.apache.zookeeper import ZooKeeper

# No example of a property fails for its time: a busy machine is not a fault.
hypothesis.settings.register_profile("ottla", deadline=None)
hypothesis.settings.load_profile("ottla")

# A shell that starts a run in the background lets it ignore SIGINT, and what it starts inherits
# that: commands that Ctrl-C must stop would not end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what only `make test-long` runs; keep the tests of one live Apache Kafka on one worker.

    So that it starts once in a run.
    """
    for item in items:
        if not needs.LONG and item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip(reason=needs.LONG_REASON))
        for server in ("apache_kafka", "zookeeper"):
            if server in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(server))
        if getattr(config.option, "loadgroup", False):
            name_group(item)


def name_group(item: pytest.Item) -> None:
    """Put a test's group behind its id, where xdist's scheduler looks for it.

    xdist 3.8 does so itself by writing `_nodeid`, which pytest 9.2 no longer reads: without this
    the tests of a group are spread over the workers, and each starts the group's servers again.
    """
    group = next(item.iter_markers("xdist_group"), None)
    if group is not None and hasattr(item, "_id") and "@" not in item.nodeid.rpartition("]")[2]:
        from _pytest.nodeid import coerce_node_id

        item._id = coerce_node_id(f"{item.nodeid}@{group.args[0]}")


@pytest.fixture(autouse=True)
def no_consumer_stays() -> Iterator[None]:
    """Consumers that a test has not closed end with it."""
    yield
    if (groups := sys.modules.get("tests.compat.groups")) is not None:
        groups.close_left()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A live Apache Kafka on defaults, shared: use topics of your own."""
    needs.apache()
    with ApacheKafka(tmp_path_factory.mktemp("apache")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A live ZooKeeper of one node, shared: use a chroot of your own."""
    needs.zookeeper_server()
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
