"""ZooKeeper's own programs, where its jars are: they come with Java, not with this package."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ottla.cli.failure import Failure

SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SHELL = "org.apache.zookeeper.ZooKeeperMain"
HEAP = "-Xmx512M -Xms512M"  # as Kafka's script has it; KAFKA_HEAP_OPTS changes it
HOME = "ZOOKEEPER_HOME"
HINT = (
    "unpack Apache ZooKeeper and set ZOOKEEPER_HOME to its directory, or "
    "pip install 'ottla[spark]', whose PySpark brings its jars"
)


def command(main: str, tool: str) -> list[str]:
    """The start of the command line that runs a class of ZooKeeper. Raises Failure."""
    java = shutil.which("java")
    if java is None:
        raise Failure(f"{tool} needs Java, which is not installed", "install Java 17 or later")
    for folder in folders():
        jars = sorted(map(str, folder.glob("*.jar")))
        if any(os.path.basename(jar).startswith("zookeeper-3") for jar in jars):
            options = (os.environ.get("KAFKA_HEAP_OPTS") or HEAP).split()
            return [java, *options, "-cp", ":".join(jars), main]
    raise Failure(f"{tool}: ZooKeeper's jars are not here", HINT)


def folders() -> Iterator[Path]:
    """Where the jars may be, the best first."""
    home = os.environ.get(HOME)
    if home:
        yield from (Path(home) / "lib", Path(home) / "libs", Path(home))
    spark = importlib.util.find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        yield Path(spark.origin).parent / "jars"
