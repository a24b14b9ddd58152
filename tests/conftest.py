"""What all tests share: a live Apache Kafka.

It starts when a test first asks and lives as long as the worker. A test that stops, fills or
configures a server starts its own (`tests.live.Server`, `tests.apache.kafka.ApacheKafka`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import needs
from tests.apache.kafka import ApacheKafka


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one live Apache Kafka stay on one worker, so that it starts once in a run."""
    for item in items:
        if "apache_kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("apache_kafka"))


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A live Apache Kafka on defaults, shared: use topics of your own."""
    needs.apache()
    with ApacheKafka(tmp_path_factory.mktemp("apache")) as kafka:
        yield kafka
