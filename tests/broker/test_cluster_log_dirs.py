"""Replicas that move between directories of their brokers, in a cluster whose leaders change."""

from __future__ import annotations

import pytest

from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import Cluster, led_by, produce, read

ONE, TWO = "/data/one", "/data/two"


def move(cluster: Cluster, broker_id: int, path: str) -> int:
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    return int(cluster.ask(broker_id, request, 2).results[0].partitions[0].error_code)


def directory(cluster: Cluster, broker_id: int) -> str:
    partition = cluster.brokers[broker_id].broker.partitions.get("t", 0)
    assert partition is not None
    return partition.log.directory.rpartition("/")[0]


def test_replicas_move_while_leaders_change() -> None:
    """Leader and follower move, the leader dies meanwhile: nothing that was acknowledged is lost.

    The broker that died goes on with its move when it is back, and follows in the new directory.
    """
    settings = {"log_dirs": f"{ONE},{TWO}", "min_insync_replicas": 2}
    with Cluster(3, **settings) as cluster:  # type: ignore[arg-type]
        cluster.create("t", 1, 3, through=1, replicas=[2, 1, 3])
        cluster.wait(lambda: led_by(cluster, 2, seen_by=3))
        written = [f"before {number} {'x' * 50_000}" for number in range(10)]
        for value in written:
            produce(cluster, 2, value)
        slow = {"replica.alter.log.dirs.io.max.bytes.per.second": "0"}
        dying = cluster.brokers[2].broker.logs
        dying.reconfigure(cluster.brokers[2].broker.settings.with_dynamic({}, slow))
        targets = {}
        for broker_id in (1, 2, 3):
            targets[broker_id] = TWO if directory(cluster, broker_id) == ONE else ONE
            assert move(cluster, broker_id, targets[broker_id]) == ErrorCode.NONE
            value = f"while {broker_id} moves"
            produce(cluster, 2, value)
            written.append(value)
        assert directory(cluster, 2) != targets[2]
        cluster.brokers[2].crash()
        cluster.wait(lambda: led_by(cluster, 1, seen_by=3) and led_by(cluster, 1, seen_by=1))
        produce(cluster, 1, "after")
        written.append("after")
        for broker_id in (1, 3):
            cluster.wait(lambda of=broker_id: directory(cluster, of) == targets[of])  # type: ignore[misc]
        cluster.brokers[2].start()
        cluster.wait(lambda: cluster.brokers[2].started)
        cluster.wait(lambda: directory(cluster, 2) == targets[2])
        cluster.wait(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        produce(cluster, 1, "at the end")
        assert read(cluster, 1) == [*written, "at the end"]
        moved = cluster.brokers[2].broker.partitions.get("t", 0)
        assert moved is not None
        cluster.wait(lambda: moved.high_watermark == len(written) + 1)


def test_a_broker_without_a_replica_says_so() -> None:
    """REPLICA_NOT_AVAILABLE, which the reassignment tool takes for: not yet."""
    with Cluster(2, log_dirs=f"{ONE},{TWO}") as cluster:
        cluster.create("t", 1, 1, through=1, replicas=[2])
        cluster.wait(lambda: led_by(cluster, 2, seen_by=1))
        assert move(cluster, 1, TWO) == ErrorCode.REPLICA_NOT_AVAILABLE


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_broker_with_a_new_disk_for_one_of_two_is_not_eligible(stop: str) -> None:
    """The other directory is as it was, and says that the stop lost nothing; but brokers register
    the ids of their directories (KIP-858's directory.id), and one of these is unknown."""
    settings = {"log_dirs": f"{ONE},{TWO}", "min_insync_replicas": 2}
    with Cluster(3, **settings) as cluster:  # type: ignore[arg-type]
        cluster.create("t", 1, 2, through=1, replicas=[2, 3])
        cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
        for value in ("one", "two"):
            produce(cluster, 2, value)
        lost, disk = directory(cluster, 3), cluster.brokers[3].node.disk
        before = cluster.controller.image.brokers[3].directories
        assert len(before) == 2
        for broker_id in (2, 3):
            if stop == "clean":
                cluster.run(cluster.brokers[broker_id].node, cluster.brokers[broker_id].stop())
            cluster.brokers[broker_id].crash()
        cluster.wait(lambda: cluster.partition("t").leader == -1)
        assert 3 in (*cluster.partition("t").isr, *cluster.partition("t").elr)
        disk.rmtree(lost)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert len({*before} & {*cluster.controller.image.brokers[3].directories}) == 1
        assert cluster.partition("t").leader == -1
        assert cluster.partition("t").wiped == (3,), "an unclean election takes it last"
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(cluster.partition("t").isr) == [2, 3])
        assert cluster.partition("t").leader == 2
        assert read(cluster, 2) == ["one", "two"]
