"""`python -m tests.apache.fetch`: bring the jars of Apache Kafka, ZooKeeper and Flume, and warm the
starts of the first two, once.

Exit code 0 when all can be started afterwards; otherwise one sentence says what is missing.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.apache import flume, jars, zookeeper
from tests.apache.kafka import ApacheKafka


def main() -> int:
    if shutil.which("java") is None:
        print("Java is not installed: tests that need Apache Kafka will be skipped")
        return 1
    try:
        jars.fetch()
        zookeeper.fetch()
        flume.fetch()
    except jars.JarsMissing as missing:
        print(missing)
        return 1
    with TemporaryDirectory() as scratch, ApacheKafka(Path(scratch) / "kafka") as kafka:
        print(f"Apache Kafka {jars.KAFKA_VERSION} starts here in {kafka.started_in_s:.1f} s")
    zookeeper.make_archive()
    return 0


if __name__ == "__main__":
    sys.exit(main())
