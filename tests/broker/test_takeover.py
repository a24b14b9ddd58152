"""A controller that takes over from one that died."""

from __future__ import annotations

from tests.broker.cluster_harness import Cluster


def test_the_next_controller_knows_at_once_who_died_with_the_last_one() -> None:
    """It dials every broker that was alive: the one that is gone is fenced long before its session
    ends, and the one that answers is not."""
    with Cluster(3, broker_session_timeout_ms=60_000) as cluster:
        cluster.create("t", 3, 3, through=2)
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        cluster.brokers[1].crash()
        cluster.controller_id = 2
        cluster.run(cluster.brokers[2].node, cluster.brokers[2].host())
        cluster.wait(lambda: cluster.image(3).brokers[1].fenced, limit_s=2.0)

        def without_it() -> bool:
            partitions = cluster.image(3).topics["t"].partitions
            return all(each.leader in (2, 3) and 1 not in each.isr for each in partitions)

        cluster.wait(without_it, limit_s=2.0)
        cluster.simulation.run_for(30)
        assert not cluster.image(3).brokers[3].fenced
        assert not cluster.image(3).brokers[2].fenced
