"""Changes of the feed as messages (`wire/feed_records.py`), and back. Pure.

A whole image is written as the changes that make it from an empty one, so there is one form for
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.cluster.feed import Batch
from ottla.cluster.image import (
    BrokerConfigured,
    BrokerGone,
    BrokerInfo,
    BrokerRegistered,
    Change,
    ClusterImage,
    ClusterNamed,
    ControllerChanged,
    DeletionDone,
    Endpoint,
    FeatureImage,
    FeaturesChanged,
    GroupConfigured,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.cluster.requests import ResourceType
from ottla.wire import feed_records as wire
from ottla.wire.malformed import Buffer, MalformedMessage
from ottla.wire.schema import Struct

# Of one topic in one change of a whole image, so that no piece of it becomes too large.
PARTITIONS_PER_CHANGE = 500

CONFIGURED: dict[int, type[TopicConfigured | BrokerConfigured | GroupConfigured]] = {
    ResourceType.TOPIC: TopicConfigured,
    ResourceType.BROKER: BrokerConfigured,
    ResourceType.GROUP: GroupConfigured,
}


def write_batch(batch: Batch) -> bytes:
    """A batch as bytes."""
    return wire.write(
        wire.FeedBatch(
            number=batch.number,
            controller_epoch=batch.controller_epoch,
            records=[wire.pack(to_message(change)) for change in batch.changes],
        )
    )


def read_batch(data: Buffer) -> Batch:
    """The inverse of `write_batch`. Raises MalformedMessage."""
    batch = wire.whole(wire.FeedBatch, data)
    return Batch(
        batch.number,
        batch.controller_epoch,
        [from_message(wire.unpack(record)) for record in batch.records],
    )


def changes_of(image: ClusterImage) -> Iterator[Change]:
    """The changes that lead from an empty image to this one."""
    yield ControllerChanged(image.controller_id, image.controller_epoch)
    yield ClusterNamed(image.cluster_id)
    for broker in image.brokers.values():
        yield BrokerRegistered(broker)
    # Before the topics: one of the same name may exist again.
    for topic_id, name in image.deletions.items():
        yield TopicDeleted(name, topic_id, 0)
    for topic in image.topics.values():
        first = topic._replace(partitions=topic.partitions[:PARTITIONS_PER_CHANGE])
        yield TopicCreated(first, image.configs_of(topic.name))
        for start in range(PARTITIONS_PER_CHANGE, len(topic.partitions), PARTITIONS_PER_CHANGE):
            more = topic.partitions[start : start + PARTITIONS_PER_CHANGE]
            yield PartitionsCreated(topic.name, topic.id, more)
    for name, configs in image.broker_configs.items():
        yield BrokerConfigured(name, configs)
    for name, configs in image.group_configs.items():
        yield GroupConfigured(name, configs)
    yield FeaturesChanged(image.features)


def to_message(change: Change) -> Struct:
    """The message that carries a change."""
    match change:
        case ControllerChanged(id=controller_id, epoch=epoch):
            return wire.ControllerRecord(id=controller_id, epoch=epoch)
        case ClusterNamed(cluster_id=cluster_id):
            return wire.ClusterRecord(cluster_id=cluster_id)
        case BrokerRegistered(broker=broker):
            return broker_record(broker)
        case BrokerGone(id=broker_id):
            return wire.BrokerGoneRecord(id=broker_id)
        case TopicCreated(topic=topic, configs=configs):
            return wire.TopicRecord(
                name=topic.name,
                id=topic.id,
                partitions=partition_records(topic.partitions),
                configs=config_records(configs),
            )
        case TopicDeleted(name=name, id=topic_id, partition_count=count):
            return wire.TopicDeletedRecord(name=name, id=topic_id, partition_count=count)
        case DeletionDone(name=name, id=topic_id):
            return wire.DeletionDoneRecord(name=name, id=topic_id)
        case PartitionsCreated(name=name, id=topic_id, partitions=partitions):
            return wire.PartitionsCreatedRecord(
                name=name, id=topic_id, partitions=partition_records(partitions)
            )
        case PartitionsChanged(name=name, id=topic_id, partitions=partitions):
            return wire.PartitionsChangedRecord(
                name=name, id=topic_id, partitions=partition_records(partitions)
            )
        case TopicConfigured(name=name, configs=configs):
            return configs_record(ResourceType.TOPIC, name, configs)
        case BrokerConfigured(name=name, configs=configs):
            return configs_record(ResourceType.BROKER, name, configs)
        case GroupConfigured(name=name, configs=configs):
            return configs_record(ResourceType.GROUP, name, configs)
        case FeaturesChanged(features=features):
            levels = [
                wire.RecordFeature(name=name, level=level)
                for name, level in features.levels.items()
            ]
            return wire.FeaturesRecord(levels=levels, epoch=features.epoch)


def from_message(message: Struct) -> Change:
    """The change that a message carries. Raises MalformedMessage."""
    match message:
        case wire.ControllerRecord():
            return ControllerChanged(message.id, message.epoch)
        case wire.ClusterRecord():
            return ClusterNamed(message.cluster_id)
        case wire.BrokerRecord():
            return BrokerRegistered(broker_of(message))
        case wire.BrokerGoneRecord():
            return BrokerGone(message.id)
        case wire.TopicRecord():
            topic = TopicImage(message.name, message.id, partitions_of(message.partitions))
            return TopicCreated(topic, configs_of(message.configs))
        case wire.TopicDeletedRecord():
            return TopicDeleted(message.name, message.id, message.partition_count)
        case wire.DeletionDoneRecord():
            return DeletionDone(message.name, message.id)
        case wire.PartitionsCreatedRecord():
            return PartitionsCreated(message.name, message.id, partitions_of(message.partitions))
        case wire.PartitionsChangedRecord():
            return PartitionsChanged(message.name, message.id, partitions_of(message.partitions))
        case wire.ConfigsRecord():
            configured = CONFIGURED.get(message.resource_type)
            if configured is None:
                raise MalformedMessage(f"configs of resource type {message.resource_type}")
            return configured(message.name, configs_of(message.configs))
        case wire.FeaturesRecord():
            levels = {feature.name: feature.level for feature in message.levels}
            return FeaturesChanged(FeatureImage(levels, message.epoch))
    raise MalformedMessage(f"{type(message).__name__} is no change")


def broker_record(broker: BrokerInfo) -> wire.BrokerRecord:
    return wire.BrokerRecord(
        id=broker.id,
        endpoints=[
            wire.RecordEndpoint(
                listener=listener,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=endpoint.security_protocol,
            )
            for listener, endpoint in broker.endpoints.items()
        ],
        rack=broker.rack,
        epoch=broker.epoch,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        incarnation=broker.incarnation,
        directories=list(broker.directories),
    )


def broker_of(record: wire.BrokerRecord) -> BrokerInfo:
    endpoints = {
        each.listener: Endpoint(each.host, each.port, each.security_protocol)
        for each in record.endpoints
    }
    return BrokerInfo(
        record.id,
        endpoints,
        record.rack,
        record.epoch,
        record.fenced,
        record.in_controlled_shutdown,
        record.incarnation,
        tuple(record.directories),
    )


def partition_records(partitions: Sequence[PartitionImage]) -> list[wire.RecordPartition]:
    return [
        wire.RecordPartition(
            index=each.index,
            leader=each.leader,
            leader_epoch=each.leader_epoch,
            partition_epoch=each.partition_epoch,
            replicas=list(each.replicas),
            isr=list(each.isr),
            adding_replicas=list(each.adding_replicas),
            removing_replicas=list(each.removing_replicas),
            elr=list(each.elr),
            last_known_leader=each.last_known_leader,
            recovering=each.recovering,
        )
        for each in partitions
    ]


def partitions_of(records: Sequence[wire.RecordPartition]) -> tuple[PartitionImage, ...]:
    # Thousands of partitions have few different lists of replicas among them: one tuple each.
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}

    def ids(given: Sequence[int]) -> tuple[int, ...]:
        found = tuple(given)
        return shared.setdefault(found, found)

    return tuple(
        PartitionImage(
            each.index,
            each.leader,
            each.leader_epoch,
            each.partition_epoch,
            ids(each.replicas),
            ids(each.isr),
            ids(each.adding_replicas),
            ids(each.removing_replicas),
            ids(each.elr),
            each.last_known_leader,
            each.recovering,
        )
        for each in records
    )


def configs_record(
    resource_type: ResourceType, name: str, configs: Mapping[str, str]
) -> wire.ConfigsRecord:
    return wire.ConfigsRecord(
        resource_type=resource_type, name=name, configs=config_records(configs)
    )


def config_records(configs: Mapping[str, str]) -> list[wire.RecordConfig]:
    return [wire.RecordConfig(name=name, value=value) for name, value in configs.items()]


def configs_of(records: Sequence[Any]) -> dict[str, str]:
    return {record.name: record.value for record in records}
