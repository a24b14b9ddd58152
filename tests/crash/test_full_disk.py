"""A real server on a real disk that fills up under its clients."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from ottla.testing import Cluster
from ottla.testing.history import History
from tests.compat.test_confluent import make_topic
from tests.crash.test_cluster import KILLS, PARTITIONS, TOPIC, create_topic, load
from tests.live import Server
from tests.small_disk import remount, small_disk
from tests.waiting import eventually

WAIT_S = 60.0
DISK_KB = 4096
VALUE_BYTES = 10_000


class Writer:
    """One record at a time, each tried once: what was acknowledged, and what each other met."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[str, list[bytes]] = {}
        self.errors: dict[str, set[str]] = {}
        self._producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "retries": 0, "linger.ms": 0, "log_level": 0}
        )

    def write(self, topic: str, value: bytes) -> None:
        def received(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is None:
                self.acknowledged.setdefault(topic, []).append(value)
            else:
                self.errors.setdefault(topic, set()).add(error.name())

        self._producer.produce(topic, value, on_delivery=received)
        assert self._producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    # On a full disk no coordinator can commit.
    options = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = ck.Consumer(options)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, WAIT_S)]
    finally:
        consumer.close()


def test_a_disk_that_fills_up_while_it_runs(tmp_path: Path) -> None:
    """KAFKA_STORAGE_ERROR for what does not fit, the rest goes on; the stop is in order all the
    same, and with space the next start has everything that was acknowledged, and takes more."""
    with small_disk(tmp_path / "disk", DISK_KB) as disk:
        server = Server(disk / "data")
        server.errors_path = tmp_path / "stderr"  # not on the disk that will be full
        with server:
            for topic in ("large", "small"):
                make_topic(server.bootstrap, topic, 1)
            writer = Writer(server.bootstrap)
            writer.write("small", b"before")
            while "large" not in writer.errors:
                writer.write("large", os.urandom(VALUE_BYTES))
            assert writer.errors == {"large": {"KAFKA_STORAGE_ERROR"}}
            # A few bytes are left, for the other partition.
            writer.write("small", b"after")
            assert read(server.bootstrap, "small", 2) == [b"before", b"after"]
            # The partition stays offline, also for what would fit.
            writer.write("large", b"little")
            take_the_rest(disk / "data" / "filler")  # the stop must do without any space
            assert server.stop() == 0, server.errors()
        assert "Traceback" not in server.errors()
        assert server.errors().count("large-0: offline") == 1
        (disk / "data" / "filler").unlink()
        remount(disk, f"size={DISK_KB * 4}k")
        with server:
            for topic, values in writer.acknowledged.items():
                assert read(server.bootstrap, topic, len(values)) == values
            writer.write("large", b"again")
            assert writer.acknowledged["large"][-1] == b"again"
        assert writer.errors == {"large": {"KAFKA_STORAGE_ERROR"}}


class Filler(threading.Thread):
    """Fills the disks of all replicas of a topic, until it is stopped."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._producer = ck.Producer(
            {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0}
        )

    def run(self) -> None:
        while not self.ended.is_set():
            self._producer.produce("filler", os.urandom(VALUE_BYTES))
            self._producer.flush(WAIT_S)


def test_the_disk_of_one_replica_is_full(tmp_path: Path) -> None:
    """Two others go on without it: all that was acknowledged is read once and in order. With space
    and a restart it is in every ISR again."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with (
        small_disk(folder / "broker-2", DISK_KB) as disk,
        Cluster(directory=folder, **KILLS) as cluster,
    ):
        create_topic(cluster)
        create_topic(cluster, "filler", 1)
        filler = Filler(cluster.bootstrap_servers)
        with load(cluster, History()) as writer:
            writer.write_more()
            filler.start()
            eventually(
                lambda: all(2 not in isr for isr in isrs(cluster)), "it is in no ISR any more"
            )
            filler.ended.set()
            filler.join()
            writer.write_more()
            assert all(leader in (1, 3) for leader in leaders(cluster))
            remount(disk, f"size={DISK_KB * 16}k")
            cluster.restart(2)
            for partition in range(PARTITIONS):
                cluster.wait_for_isr(TOPIC, partition)
            cluster.wait_for_isr("filler")
            writer.write_more()
        assert "No space left on device" in cluster.logs(2)
        assert "Traceback" not in cluster.logs(2)


def isrs(cluster: Cluster) -> list[list[int]]:
    return [each["isr_nodes"] for each in described(cluster)]


def leaders(cluster: Cluster) -> list[int]:
    return [each["leader_id"] for each in described(cluster)]


def described(cluster: Cluster) -> list[dict[str, Any]]:
    with cluster.admin() as admin:
        return [
            partition
            for topic in admin.describe_topics([TOPIC, "filler"])
            for partition in topic["partitions"]
        ]


def take_the_rest(path: Path) -> None:
    """All the space that is left."""
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(1024)):
                pass
        except OSError:
            pass
