"""What an operator sees of the controller, under the names of Kafka's MBeans."""

from __future__ import annotations

import pytest

from ottla.broker.replication_metrics import missing_replicas
from ottla.cluster.image import PartitionImage
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.cluster_harness import Cluster, led_by, produce

CONTROLLER = "kafka_controller_KafkaController_"
STATS = "kafka_controller_ControllerStats_"


def shown(cluster: Cluster, broker_id: int) -> dict[str, float]:
    """The controller's metrics at one broker, without what their names have in common."""
    lines = cluster.brokers[broker_id].broker.metrics.text().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if line.startswith("kafka_controller_"))
    return {
        name.removeprefix(CONTROLLER).removeprefix(STATS): float(value)
        for name, value in samples.items()
    }


def test_the_controller_counts_partitions_without_a_leader() -> None:
    """OfflinePartitionsCount and its siblings are 0 at the other brokers, ActiveControllerCount
    too; elections are counted, with how long they took, and by where the leader came from."""
    with Cluster(3) as cluster:
        assert cluster.create("t", 1, 3, through=3, replicas=(2, 3)).error_code == 0
        cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
        produce(cluster, 2, "record")
        assert [shown(cluster, each)["ActiveControllerCount"] for each in (1, 2, 3)] == [1, 0, 0]
        before = shown(cluster, 1)
        assert before["GlobalTopicCount"] == before["GlobalPartitionCount"] == 1
        assert before["OfflinePartitionsCount"] == before["PreferredReplicaImbalanceCount"] == 0
        assert before["LeaderElectionRateAndTimeMs_count"] == 0

        cluster.brokers[2].crash()
        cluster.wait(lambda: cluster.partition("t").leader == 3)
        found = shown(cluster, 1)
        assert (found["ActiveBrokerCount"], found["FencedBrokerCount"]) == (2, 1)
        assert found["PreferredReplicaImbalanceCount"] == 1
        assert found["LeaderElectionRateAndTimeMs_count"] == 1
        assert found["LeaderElectionRateAndTimeMs_sum"] < 1000

        cluster.brokers[3].crash()
        cluster.wait(lambda: cluster.partition("t").leader < 0)
        assert shown(cluster, 1)["OfflinePartitionsCount"] == 1

        cluster.brokers[2].start()  # it left while the ISR was too small, and lost nothing
        cluster.wait(lambda: cluster.partition("t").leader == 2)
        found = shown(cluster, 1)
        assert found["OfflinePartitionsCount"] == 0
        assert found["ElectionFromEligibleLeaderReplicasPerSec_total"] == 1

        cluster.brokers[2].crash(power=True)
        cluster.wait(lambda: cluster.partition("t").leader < 0)
        cluster.brokers[2].start()
        cluster.wait(lambda: not cluster.image(1).brokers[2].fenced)
        assert shown(cluster, 1)["UncleanLeaderElectionsPerSec_total"] == 0
        named = [TopicPartitions(topic="t", partitions=[0])]
        cluster.ask(1, ElectLeadersRequest(election_type=1, topic_partitions=named), 2)
        cluster.wait(lambda: cluster.partition("t").leader == 2)
        found = shown(cluster, 1)
        assert found["UncleanLeaderElectionsPerSec_total"] == 1
        assert found["ElectionFromEligibleLeaderReplicasPerSec_total"] == 1


@pytest.mark.parametrize(
    ("isr", "adding", "missing"),
    [((1, 2, 3), (4,), 0), ((1, 2), (4,), 1), ((1, 2, 4), (4,), 0), ((1,), (), 3)],
)
def test_replicas_that_are_being_added_are_not_missing(
    isr: tuple[int, ...], adding: tuple[int, ...], missing: int
) -> None:
    """A reassignment alone makes no partition under-replicated, as in Kafka (KIP-455)."""
    partition = PartitionImage(0, 1, 0, 0, (1, 2, 3, 4), isr, adding)
    assert missing_replicas(partition) == missing
