"""A whole cluster stops, in order or not, and comes back with its topics and records."""

from __future__ import annotations

import pytest

from tests.broker.cluster_harness import Cluster, produce, read


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2)])
def test_all_brokers_are_killed(order: tuple[int, ...]) -> None:
    """Each replica may lack records, so the last known leader leads; all join it again."""
    with Cluster(3) as cluster:
        cluster.create("t", 1, 3, through=2)
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        before = cluster.partition("t")
        sent = [f"record {n}" for n in range(5)]
        for value in sent:
            produce(cluster, before.leader, value)
        for broker in cluster.brokers.values():
            broker.crash()
        for broker_id in order:
            cluster.brokers[broker_id].start()
        cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
        cluster.wait(lambda: len(cluster.controller.image.partition("t", 0).isr) == 3)  # type: ignore[union-attr]
        after = cluster.controller.image.partition("t", 0)
        assert after is not None
        assert after.leader_epoch > before.leader_epoch
        assert not after.elr
        assert not after.recovering
        cluster.wait(lambda: cluster.image(after.leader).partition("t", 0) == after)
        assert read(cluster, after.leader) == sent
        assert produce(cluster, after.leader, "after") == len(sent)
