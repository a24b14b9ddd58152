"""One Spark session and one broker for all the tests here: both are dear to start.

Whatever asks for the session is kept on one worker of pytest-xdist. A test that kills something
starts its own.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import Broker
from ottla.testing import broker as start_broker
from tests import needs
from tests.spark.settings import CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.standalone import Standalone

NAMES = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark cluster"))
            item.add_marker(pytest.mark.spark)
        elif "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on `local[2]`, as anybody gets it where the package is installed."""
    needs.java()
    from pyspark.sql import SparkSession

    from ottla.spark.home import quick_home

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each Python of Spark's would compile us anew
    os.environ.setdefault("SPARK_HOME", str(quick_home(tmp_path_factory.mktemp("home"))))
    # The warehouse and Derby's files must not fall into the working directory.
    home: Path = tmp_path_factory.mktemp("spark")
    # Where tests of the sink ask for faults (ottla.spark.sink.faultpoints).
    os.environ["OTTLA_FAULTS"] = str(tmp_path_factory.mktemp("faults"))
    builder = SparkSession.builder.master("local[2]").appName("ottla tests")
    places = {"spark.sql.warehouse.dir": home / "warehouse", "spark.local.dir": home / "scratch"}
    for name, value in {**CONF, **places}.items():
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Standalone]:
    """A real cluster: a master and two workers with a core each. One driver at a time.

    A test here runs its driver in a process of its own (this one may have a session already).
    """
    needs.java()
    from ottla.spark.standalone import standalone

    with standalone(workers=2) as started:
        yield started


@pytest.fixture
def faults(spark: SparkSession) -> Iterator[Path]:
    """The directory in which a file asks for a fault in the session's jobs; empty before, after."""
    directory = Path(os.environ["OTTLA_FAULTS"])
    for path in directory.iterdir():
        path.unlink()
    yield directory
    for path in directory.iterdir():
        path.unlink()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A live Ottla for the session's jobs: use topics of your own."""
    with start_broker(num_partitions=4, log_retention_ms=-1) as started:
        yield started


@pytest.fixture
def topic() -> str:
    """A topic name nobody else uses."""
    return f"spark-{os.getpid()}-{next(NAMES)}"
