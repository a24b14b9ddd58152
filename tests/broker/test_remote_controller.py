"""Several brokers and one controller over the network: changes, elections, and what must not be."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import fetch_request, produce_request
from tests.sim.cluster import records_in


def produce(cluster: Cluster, leader: int, value: str) -> int:
    batch = write_batch([Record(value.encode(), timestamp=cluster.client.clock.now_ms())])
    answer = cluster.ask(leader, produce_request("t", 0, batch), 9)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code).name
    return int(result.base_offset)


def values(cluster: Cluster, leader: int) -> list[str]:
    answer = cluster.ask(leader, fetch_request(("t", 0, 0)), 11)
    return [value for _, value in records_in(answer.responses[0].partitions[0].records)]


def test_a_topic_outlives_its_leader() -> None:
    """Created through a broker that is not the controller, produced with acks=all; the leader is
    killed, another is elected, and no acknowledged record is lost."""
    with Cluster(3) as cluster:
        result = cluster.create("t", 1, 3, through=2)
        assert (result.error_code, result.replication_factor) == (ErrorCode.NONE, 3)
        assert "t" in cluster.image(2).topics, "who answers has applied the change"
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        first = cluster.partition("t").leader
        sent = [f"record {n}" for n in range(5)]
        assert [produce(cluster, first, value) for value in sent] == list(range(5))
        victim = next(each for each in (2, 3) if each == first) if first != 1 else None
        assert victim is not None, "this seed puts the leader beside the controller"
        cluster.brokers[victim].crash()
        cluster.wait(lambda: cluster.partition("t").leader not in (victim, -1))
        left = cluster.partition("t")
        assert victim not in left.isr
        cluster.wait(lambda: cluster.image(left.leader).partition("t", 0).leader == left.leader)
        assert values(cluster, left.leader) == sent
        assert produce(cluster, left.leader, "after") == 5
