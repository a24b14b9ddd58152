"""What an operator sees of replication, under the names of Kafka's MBeans."""

from __future__ import annotations

from tests.replica.brokers import Brokers


def shown(brokers: Brokers, broker_id: int) -> dict[str, float]:
    """All samples of a broker, by name and labels."""
    lines = brokers.brokers[broker_id].metrics.text().splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in samples}


def test_partitions_at_and_under_their_min_isr() -> None:
    """AtMinIsrPartitionCount and UnderMinIsrPartitionCount, of those that the broker leads."""
    with Brokers(3, partitions=4, min_insync_replicas=2) as brokers:
        for index, isr in enumerate([(1, 2, 3), (1, 2), (1,)]):
            brokers.script.accepts = False
            brokers.lead(1, index, isr=isr)
        brokers.lead(2, 3, isr=(2,))
        found = shown(brokers, 1)
        assert found["kafka_server_ReplicaManager_UnderMinIsrPartitionCount"] == 1
        assert found["kafka_server_ReplicaManager_AtMinIsrPartitionCount"] == 1


def test_a_min_isr_above_the_replicas_counts_as_all_of_them() -> None:
    """As for acks=all: a topic with fewer replicas is not for ever under its min-ISR."""
    with Brokers(2, min_insync_replicas=3) as brokers:
        brokers.lead(1)
        found = shown(brokers, 1)
        assert found["kafka_server_ReplicaManager_UnderMinIsrPartitionCount"] == 0
        assert found["kafka_server_ReplicaManager_AtMinIsrPartitionCount"] == 1


def test_how_far_replicas_are_behind() -> None:
    """At the follower MaxLag and ConsumerLag, at the leader each follower's lag."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.cut(3)
        for number in range(4):
            brokers.produce(1, b"%d" % number, acks=1)
        brokers.run(1)
        at_leader = shown(brokers, 1)
        lag = 'ottla_replica_FollowerLag{topic="t",partition="0",replica="%d"}'
        assert (at_leader[lag % 2], at_leader[lag % 3]) == (0, 4)
        brokers.heal(3)
        brokers.run_until(lambda: brokers.at(3).end_offset == 4)
        at_follower = shown(brokers, 3)
        assert at_follower['kafka_server_ReplicaFetcherManager_MaxLag{clientId="Replica"}'] == 0
        labels = 'clientId="ReplicaFetcherThread-0-1",topic="t",partition="0"'
        assert f"kafka_server_FetcherLagMetrics_ConsumerLag{{{labels}}}" in at_follower


def test_bytes_of_replication_are_counted_apart() -> None:
    """ReplicationBytesOut at the leader, ReplicationBytesIn at followers, beside the consumers'."""
    prefix = "kafka_server_BrokerTopicMetrics_"
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"value")
        brokers.run(1)
        at_leader, at_follower = shown(brokers, 1), shown(brokers, 2)
        sent = at_leader[f"{prefix}ReplicationBytesOutPerSec_total"]
        size = at_leader[f"{prefix}BytesInPerSec_total"]
        assert sent == 2 * size > 0
        assert at_follower[f"{prefix}ReplicationBytesInPerSec_total"] == size
        assert at_leader[f"{prefix}BytesOutPerSec_total"] == 0
        brokers.read(1)
        assert shown(brokers, 1)[f"{prefix}BytesOutPerSec_total"] == size
