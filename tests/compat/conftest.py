"""One live broker for all client tests of a worker, and topic names that never collide.

`OTTLA_COMPAT_BOOTSTRAP=host:port` runs the same tests against another broker, such as Apache
Kafka: what passes there and fails here is our fault, what fails in both is the test's.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.live import Server

LARGE_VALUE_BYTES = 5_000_000
SETTINGS = {
    # Records with old times must outlast a check of retention, which comes every five minutes.
    "log.retention.ms": -1,
    "message.max.bytes": 8_000_000,
    "num.partitions": 2,
    # A client over its quota does not wait for long; without quotas it changes nothing.
    "quota.window.num": 2,
    "auto.create.topics.enable": "true",
}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that lives as long as the test session."""
    if outside := os.environ.get("OTTLA_COMPAT_BOOTSTRAP"):
        yield outside
        return
    with Server(tmp_path_factory.mktemp("compat") / "data", settings=SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Topic names nobody used before, in this run or another."""
    return lambda stem: f"{stem}-{os.getpid()}-{next(_numbers)}"
