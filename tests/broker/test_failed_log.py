"""A log that fails in a cluster: others lead, and nobody waits for the broker that has it."""

from __future__ import annotations

from tests.broker.cluster_harness import Cluster


def test_others_lead_when_a_log_has_failed() -> None:
    """Long before the leader's session or the follower's lag would end its part: it is alive.

    Its disk is full, say. It leaves the ISRs of what it follows as well, and is back once it was
    started again.
    """
    with Cluster(3, replica_lag_time_max_ms=60_000) as cluster:
        for topic, replicas in (("led", (2, 1, 3)), ("followed", (3, 2, 1))):
            cluster.create(topic, 1, 3, through=1, replicas=replicas)
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        broken = cluster.brokers[2]

        async def fail() -> None:
            partition = broken.broker.partitions.get("led", 0)
            assert partition is not None
            partition.log.fail("cannot append: no space left on device")

        cluster.run(broken.node, fail())

        def isrs(size: int) -> bool:
            return all(
                len(cluster.partition(topic, seen_by=3).isr) == size
                for topic in ("led", "followed")
            )

        cluster.wait(lambda: isrs(2), limit_s=1.0)
        assert cluster.partition("led", seen_by=3).leader == 1
        cluster.simulation.run_for(5)
        assert isrs(2)
        broken.crash()
        broken.start()
        cluster.wait(lambda: isrs(3))
