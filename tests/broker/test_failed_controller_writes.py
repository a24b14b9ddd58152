"""A controller that cannot write its tree for a moment: brokers ask again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.metadata_store.tree import ConnectionLoss, Operation
from tests.broker.cluster_harness import Cluster, ClusterBroker, led_by


def fail_writes(cluster: Cluster, count: int) -> list[int]:
    """The controller's next writes have no answer and no effect; those that failed are counted."""
    tree: Any = cluster.controller._state.tree
    multi, failed = tree.multi, [0]

    async def fail(operations: Sequence[Operation]) -> Any:
        if failed[0] < count:
            failed[0] += 1
            raise ConnectionLoss("/", "no answer")
        return await multi(operations)

    tree.multi = fail
    return failed


def fail_log(broker: ClusterBroker) -> None:
    async def fail() -> None:
        partition = broker.broker.partitions.get("t", 0)
        assert partition is not None
        partition.log.fail("cannot append: no space left on device")

    broker.node.run(fail())


def test_a_broker_registers_all_the_same() -> None:
    """Its start does not end because the tree was away for a moment."""
    with Cluster(3) as cluster:
        cluster.brokers[3].crash()
        cluster.wait(lambda: cluster.image(1).brokers[3].fenced)
        failed = fail_writes(cluster, 3)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started and not cluster.image(1).brokers[3].fenced)
        assert failed == [3]


def test_a_failed_log_is_reported_until_the_controller_has_written_it() -> None:
    """Else its broker would lead it for as long as its process lives."""
    with Cluster(3) as cluster:
        cluster.create("t", 1, 3, through=1, replicas=(2, 1, 3))
        cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
        failed = fail_writes(cluster, 2)
        fail_log(cluster.brokers[2])
        cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
        assert failed == [2]


@pytest.mark.parametrize("fault", ["controller", "session", "alone"])
def test_a_failed_log_does_not_lead_again(fault: str) -> None:
    """Not under the next controller, nor after its broker was silent, nor when the others are
    gone, until it is started again."""
    with Cluster(3, broker_session_timeout_ms=3_000) as cluster:
        cluster.create("t", 1, 3, through=1, replicas=(2, 1, 3))
        cluster.wait(lambda: all(led_by(cluster, 2, seen_by=each) for each in (1, 2, 3)))
        fail_log(cluster.brokers[2])
        cluster.wait(lambda: cluster.partition("t", seen_by=3).leader in (1, 3))
        if fault == "controller":
            cluster.brokers[1].crash()
            cluster.host(3)
        elif fault == "session":
            cluster.brokers[2].node.pause()
            cluster.wait(lambda: cluster.image(1).brokers[2].fenced)
            cluster.brokers[2].node.resume()
            cluster.wait(lambda: not cluster.image(1).brokers[2].fenced)
        elif fault == "alone":
            cluster.brokers[3].crash()
            cluster.run(cluster.brokers[1].node, cluster.brokers[1].broker.controlled_shutdown())
        cluster.simulation.run_for(10)
        seen_by = cluster.controller_id
        assert cluster.partition("t", seen_by=seen_by).leader != 2
        assert 2 not in cluster.partition("t", seen_by=seen_by).isr
