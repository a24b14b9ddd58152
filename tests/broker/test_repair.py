"""A replica that finds damage on its disk leaves the ISR and copies the range from a good one."""

from __future__ import annotations

import logging
from unittest.mock import patch

import pytest

from ottla.replica.partition import Partition
from ottla.seams.simulated.disk import SimulatedDisk
from tests.broker.cluster_harness import Cluster, produce, read
from tests.broker.harness import DATA

LOG_FILE = f"{DATA}/t-0/00000000000000000000.log"
VALUES = ["a", "b", "c"]
SCRUB = {"log_scrub_interval_ms": 1000}


def partition(cluster: Cluster, broker_id: int) -> Partition:
    found = cluster.brokers[broker_id].broker.partitions.get("t", 0)
    assert found is not None
    return found


def content(cluster: Cluster, broker_id: int) -> bytes:
    return cluster.brokers[broker_id].node.disk.read(LOG_FILE)


def written(cluster: Cluster, *replicas: int) -> None:
    """Three batches on these replicas, the first of which leads; synced and committed on all."""
    cluster.create("t", 1, 0, through=1, replicas=replicas)
    for value in VALUES:
        produce(cluster, replicas[0], value)
    cluster.wait(lambda: all(partition(cluster, each).high_watermark == 3 for each in replicas))
    for each in replicas:
        partition(cluster, each).log.flush()


def damage(cluster: Cluster, broker_id: int) -> None:
    """Flip a bit of the second batch."""
    size = partition(cluster, broker_id).size_bytes // 3
    cluster.brokers[broker_id].node.disk.flip_bit(LOG_FILE, (size + 65) * 8)


def repaired(cluster: Cluster, broker_id: int) -> bool:
    text = cluster.brokers[broker_id].broker.metrics.text()
    return "ottla_log_DamageRepaired_total 1" in text


def isr(cluster: Cluster) -> set[int]:
    return set(cluster.partition("t").isr)


def kept(cluster: Cluster, broker_id: int) -> list[str]:
    names = cluster.brokers[broker_id].node.disk.listdir(f"{DATA}/t-0")
    return [each for each in names if each.endswith(".corrupt")]


def test_a_damaged_follower_is_repaired() -> None:
    """It leaves the ISR before, is the same as the leader byte by byte afterwards, keeps what was
    damaged, and joins again.
    """
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage(cluster, 3)
        assert content(cluster, 3) != content(cluster, 1)
        cluster.wait(lambda: isr(cluster) == {1, 2})
        assert not repaired(cluster, 3)
        assert 3 not in cluster.partition("t").elr
        cluster.wait(lambda: repaired(cluster, 3))
        assert content(cluster, 3) == content(cluster, 1)
        assert kept(cluster, 3) == [f"{1:020d}.log.corrupt"]
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert cluster.partition("t").leader == 1


def test_a_damaged_leader_gives_leadership_away_first() -> None:
    """Another member of the ISR leads, and readers get every record."""
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage(cluster, 1)
        cluster.wait(lambda: cluster.partition("t").leader != 1)
        leader = cluster.partition("t").leader
        assert not repaired(cluster, 1)
        assert isr(cluster) == {2, 3}
        cluster.wait(lambda: cluster.partition("t", seen_by=leader).leader == leader)
        assert read(cluster, leader) == VALUES
        cluster.wait(lambda: repaired(cluster, 1))
        assert content(cluster, 1) == content(cluster, leader)
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})


def test_the_last_member_of_the_isr_stays(caplog: pytest.LogCaptureFixture) -> None:
    """It says that it is damaged, leads on, and is repaired when another one is in sync again."""
    with Cluster(2, min_insync_replicas=1, **SCRUB) as cluster:
        written(cluster, 1, 2)
        cluster.brokers[2].crash()
        cluster.wait(lambda: isr(cluster) == {1})
        with caplog.at_level(logging.ERROR):
            damage(cluster, 1)
            cluster.wait(lambda: "alone in its ISR" in caplog.text)
        assert cluster.partition("t").leader == 1
        assert isr(cluster) == {1}
        cluster.brokers[2].start()
        cluster.wait(lambda: repaired(cluster, 1))
        assert content(cluster, 1) == content(cluster, 2)


def test_a_log_that_was_compacted_otherwise_is_copied_again() -> None:
    """The damaged segment and what follows is kept, and all of it comes from the leader."""
    with (
        Cluster(3, **SCRUB) as cluster,
        patch("ottla.broker.repairs.fits", lambda *_: False),
    ):
        written(cluster, 1, 2, 3)
        log = partition(cluster, 3).log
        log.config = log.config._replace(cleanup_policy=frozenset({"compact"}))
        damage(cluster, 3)
        damaged = content(cluster, 3)
        cluster.wait(lambda: repaired(cluster, 3))
        assert 3 not in isr(cluster)
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert content(cluster, 3) == content(cluster, 1)
        [name] = kept(cluster, 3)
        assert cluster.brokers[3].node.disk.read(f"{DATA}/t-0/{name}") == damaged


def test_a_leader_checks_what_a_follower_refuses() -> None:
    """A follower that has to copy a damaged batch finds it before the leader's scrubber does."""
    with Cluster(3, log_scrub_interval_ms=10**9) as cluster:
        written(cluster, 1, 2, 3)
        cluster.brokers[3].crash()
        cluster.wait(lambda: isr(cluster) == {1, 2})
        damage(cluster, 1)
        cluster.brokers[3].node.disk = SimulatedDisk()
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.partition("t").leader == 2)
        assert cluster.brokers[1].broker.repairs.scrubber.passes == 0
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert content(cluster, 1) == content(cluster, 2) == content(cluster, 3)


def test_both_copies_are_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """What no replica has is reported with what to try, and the replica joins the ISR again."""
    with Cluster(2, min_insync_replicas=1, **SCRUB) as cluster:
        written(cluster, 1, 2)
        with caplog.at_level(logging.ERROR):
            damage(cluster, 1)
            damage(cluster, 2)
            cluster.wait(lambda: "no other replica has the same batches" in caplog.text)
        cluster.wait(lambda: isr(cluster) == {1, 2})
        assert "kafka-delete-records.sh, offset 2" in caplog.text
