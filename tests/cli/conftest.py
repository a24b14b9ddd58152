"""What the tests of the tools share: one broker with a rich state, and Kafka's tools in one JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import needs
from tests.cli.apache_tools import ApacheTools
from tests.cli.state import SETTINGS, State
from tests.live import Server


@pytest.fixture(scope="session")
def rich_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker for the tools."""
    with Server(tmp_path_factory.mktemp("tools") / "data", settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def state(rich_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """That broker with topics, groups and transactions."""
    made = State(rich_server.bootstrap, tmp_path_factory.mktemp("files"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def apache_tools() -> Iterator[ApacheTools]:
    """Apache Kafka's own tools."""
    needs.apache()
    with ApacheTools() as tools:
        yield tools
