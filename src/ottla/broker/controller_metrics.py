"""The metrics of the controller, under the names of Kafka's KafkaController.

A broker that is not the controller shows 0 for each: their sum over all brokers is the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cluster.controller import Controller
from ottla.metrics import Sample

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage

NAMES = (
    "ActiveControllerCount",
    "OfflinePartitionsCount",
    "PreferredReplicaImbalanceCount",
    "GlobalPartitionCount",
    "GlobalTopicCount",
    "ActiveBrokerCount",
    "FencedBrokerCount",
)


def watch(broker: Broker) -> None:
    """Show what the controller knows, while it runs in this process."""
    broker.metrics.collect("gauge", lambda: samples(broker))


def samples(broker: Broker) -> Iterator[Sample]:
    controller = active_controller(broker)
    values = (0,) * len(NAMES) if controller is None else counts(controller.image)
    for name, value in zip(NAMES, values, strict=True):
        yield Sample(f"kafka_controller_KafkaController_{name}", value)


def active_controller(broker: Broker) -> Controller | None:
    """The cluster's controller, if it runs in this process."""
    service = broker.controller_service
    # Before its start a broker has none; in a cluster it is the way to the one of another process.
    found = getattr(broker, "controller", None) if service is None else service.controller
    return found if isinstance(found, Controller) and found.active else None


def counts(image: ClusterImage) -> tuple[int, ...]:
    """In the order of NAMES; looked up when somebody asks."""
    offline = imbalanced = partitions = 0
    for topic in image.topics.values():
        partitions += len(topic.partitions)
        for each in topic.partitions:
            offline += each.leader < 0
            imbalanced += each.leader != each.replicas[0]
    fenced = sum(each.fenced for each in image.brokers.values())
    active = len(image.brokers) - fenced
    return (1, offline, imbalanced, partitions, len(image.topics), active, fenced)
