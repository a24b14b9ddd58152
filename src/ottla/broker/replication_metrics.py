"""The metrics of replication, under the names of Kafka's MBeans.

Counted: ISR changes that this broker proposed as a leader, and the bytes that followers fetched.
Looked up when somebody asks: how many partitions that it leads are at or below their min-ISR, and
how far each replica is behind its leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.metrics import Metrics, Sample
from ottla.replica.leader import effective_min_isr

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import PartitionImage

MANAGER = "kafka_server_ReplicaManager"
TOPICS = "kafka_server_BrokerTopicMetrics"
# The label that Kafka's fetcher threads have; here one loop of the event loop does their work.
CLIENT_ID = "ReplicaFetcherThread-0-{leader_id}"


class ReplicationMetrics:
    """What replication counts."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "isr_expands",
        "isr_shrinks",
        "isr_updates_failed",
        "truncations_below_watermark",
    )

    def __init__(self, metrics: Metrics) -> None:
        self.isr_shrinks = metrics.counter(
            f"{MANAGER}_IsrShrinksPerSec", "ISRs that a follower has left."
        )
        self.isr_expands = metrics.counter(
            f"{MANAGER}_IsrExpandsPerSec", "ISRs that a follower has joined."
        )
        self.isr_updates_failed = metrics.counter(
            f"{MANAGER}_FailedIsrUpdatesPerSec", "ISR changes that the controller did not accept."
        )
        self.bytes_in = metrics.counter(
            f"{TOPICS}_ReplicationBytesInPerSec", "Bytes that this broker fetched as a follower."
        )
        self.bytes_out = metrics.counter(
            f"{TOPICS}_ReplicationBytesOutPerSec", "Bytes that followers were sent."
        )
        self.truncations_below_watermark = metrics.counter(
            "ottla_replica_TruncationsBelowHighWatermark",
            "Logs cut below their high watermark without an unclean election. Should be 0.",
        )


def watch(broker: Broker) -> None:
    """Show the state of this broker's replicas."""
    metrics = broker.metrics
    metrics.collect("gauge", lambda: min_isr_counts(broker))
    metrics.collect("gauge", lambda: fetcher_lags(broker))
    metrics.collect("gauge", lambda: follower_lags(broker))
    metrics.collect("gauge", lambda: moves(broker))


def min_isr_counts(broker: Broker) -> Iterator[Sample]:
    """The partitions led here whose ISR is smaller than, or just as large as, their min-ISR, and
    those that are on their way to other replicas."""
    under = at = reassigning = 0
    for topic in broker.image.topics.values():
        min_isr = broker.log_config(topic.name).min_insync_replicas
        for each in topic.partitions:
            if each.leader == broker.node_id:
                needed = effective_min_isr(len(each.replicas), min_isr)
                under += len(each.isr) < needed
                at += len(each.isr) == needed
                reassigning += bool(each.adding_replicas or each.removing_replicas)
    yield Sample(f"{MANAGER}_UnderMinIsrPartitionCount", under)
    yield Sample(f"{MANAGER}_AtMinIsrPartitionCount", at)
    yield Sample(f"{MANAGER}_ReassigningPartitions", reassigning)


def missing_replicas(partition: PartitionImage) -> int:
    """How many replicas the ISR lacks; those that a reassignment adds are not due yet (KIP-455)."""
    return max(0, len(partition.replicas) - len(partition.adding_replicas) - len(partition.isr))


def fetcher_lags(broker: Broker) -> Iterator[Sample]:
    """How many records each follower here lacks of what its leader has committed."""
    fetchers = broker.replication.fetchers
    lags = [lag for fetcher in fetchers for lag in fetcher.lags.values()]
    replica = {"clientId": "Replica"}
    yield Sample("kafka_server_ReplicaFetcherManager_MaxLag", max(lags, default=0), replica)
    failed = sum(len(fetcher.delayed) for fetcher in fetchers)
    yield Sample("kafka_server_ReplicaFetcherManager_FailedPartitionsCount", failed, replica)
    for fetcher in fetchers:
        client_id = CLIENT_ID.format(leader_id=fetcher.leader_id)
        for partition, lag in fetcher.lags.items():
            labels = {
                "clientId": client_id,
                "topic": partition.topic,
                "partition": str(partition.index),
            }
            yield Sample("kafka_server_FetcherLagMetrics_ConsumerLag", lag, labels)


def follower_lags(broker: Broker) -> Iterator[Sample]:
    """How many records of this leader's log each follower lacks, as its last fetch told."""
    for partition in broker.replication.leading:
        if partition.leading is None:
            continue
        for node_id, follower in partition.leading.followers.items():
            labels = {
                "topic": partition.topic,
                "partition": str(partition.index),
                "replica": str(node_id),
            }
            lag = partition.end_offset - follower.end_offset
            yield Sample("ottla_replica_FollowerLag", lag, labels)


def moves(broker: Broker) -> Iterator[Sample]:
    """How far copies are behind that move between data directories, and how many were given up."""
    copies = {"clientId": "ReplicaAlterLogDirs"}
    name = "kafka_server_ReplicaAlterLogDirsManager"
    yield Sample(f"{name}_MaxLag", broker.logs.moves.max_lag, copies)
    yield Sample(f"{name}_FailedPartitionsCount", len(broker.logs.moves.failed), copies)
