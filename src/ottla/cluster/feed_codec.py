"""Changes of the feed as messages (`wire/feed_records.py`), and back. Pure.

A whole image is written as the changes that make it from an empty one, so there is one form for
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.cluster.features import metadata_level
from ottla.cluster.feed import Batch
from ottla.cluster.image import (
    AclsChanged,
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
    EntityConfigured,
    FeatureImage,
    FeaturesChanged,
    GroupConfigured,
    Levels,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    SecretChanged,
    TokenChanged,
    TokenGone,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.cluster.requests import ResourceType
from ottla.security.acls import (
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from ottla.security.acls import ResourceType as AclResourceType
from ottla.security.principal import Principal
from ottla.security.tokens import Token
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


def write_batch(batch: Batch, level: int = wire.HIGHEST_LEVEL) -> bytes:
    """A batch as bytes, for a cluster with this finalized level."""
    return wire.write(
        wire.FeedBatch(
            number=batch.number,
            controller_epoch=batch.controller_epoch,
            records=[wire.pack(to_message(change), level) for change in batch.changes],
        )
    )


def read_batch(data: Buffer, level: int = wire.HIGHEST_LEVEL) -> Batch:
    """The inverse of `write_batch`, up to the level understood. Raises MalformedMessage."""
    batch = wire.whole(wire.FeedBatch, data)
    return Batch(
        batch.number,
        batch.controller_epoch,
        [from_message(wire.unpack(record, level)) for record in batch.records],
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
    for pattern, acls in image.acls.items():
        yield AclsChanged(pattern, acls)
    for entity, configs in image.entity_configs.items():
        yield EntityConfigured(entity, configs)
    # Every tree has it from its first controller on; brokers learn of it when they all can.
    if image.scram_secret and metadata_level(image.features) >= wire.SECURITY_LEVEL:
        yield SecretChanged(image.scram_secret)
    # So may a tree that Kafka has left have tokens before the brokers can all know them.
    if metadata_level(image.features) >= wire.TOKENS_LEVEL:
        yield from map(TokenChanged, image.tokens.values())
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
        case AclsChanged(pattern=pattern, acls=acls):
            return acls_record(pattern, acls)
        case EntityConfigured(entity=entity, configs=configs):
            return wire.EntityConfigsRecord(
                entity=[wire.RecordEntityPart(type=kind, name=part) for kind, part in entity],
                configs=config_records(configs),
            )
        case SecretChanged(secret=secret):
            return wire.SecretRecord(secret=secret)
        case TokenChanged(token=token):
            return token_record(token)
        case TokenGone(id=token_id):
            return wire.TokenGoneRecord(id=token_id)
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
        case wire.AclsRecord():
            return acls_of(message)
        case wire.EntityConfigsRecord():
            entity = tuple((each.type, each.name) for each in message.entity)
            return EntityConfigured(entity, configs_of(message.configs))
        case wire.SecretRecord():
            return SecretChanged(bytes(message.secret))
        case wire.TokenRecord():
            return TokenChanged(token_of(message))
        case wire.TokenGoneRecord():
            return TokenGone(message.id)
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
        lowest_level=broker.levels.lowest,
        highest_level=broker.levels.highest,
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
        Levels(record.lowest_level, record.highest_level),
    )


def acls_record(pattern: ResourcePattern, acls: Sequence[Acl]) -> wire.AclsRecord:
    return wire.AclsRecord(
        resource_type=pattern.type,
        name=pattern.name,
        pattern_type=pattern.pattern,
        acls=[
            wire.RecordAcl(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission=acl.permission,
            )
            for acl in acls
        ],
    )


def acls_of(record: wire.AclsRecord) -> AclsChanged:
    try:
        return AclsChanged(
            ResourcePattern(
                AclResourceType(record.resource_type),
                record.name,
                PatternType(record.pattern_type),
            ),
            tuple(
                Acl(
                    each.principal,
                    each.host,
                    Operation(each.operation),
                    Permission(each.permission),
                )
                for each in record.acls
            ),
        )
    except ValueError as error:
        raise MalformedMessage(f"ACLs of an unknown kind: {error}") from None


def token_record(token: Token) -> wire.TokenRecord:
    return wire.TokenRecord(
        id=token.id,
        owner=principal_record(token.owner),
        requester=principal_record(token.requester),
        renewers=[principal_record(each) for each in token.renewers],
        issued_ms=token.issued_ms,
        expires_ms=token.expires_ms,
        max_ms=token.max_ms,
    )


def token_of(record: wire.TokenRecord) -> Token:
    return Token(
        record.id,
        principal_of(record.owner),
        principal_of(record.requester),
        tuple(map(principal_of, record.renewers)),
        record.issued_ms,
        record.expires_ms,
        record.max_ms,
    )


def principal_record(principal: Principal) -> wire.RecordPrincipal:
    return wire.RecordPrincipal(type=principal.kind, name=principal.name)


def principal_of(record: wire.RecordPrincipal) -> Principal:
    return Principal(record.type, record.name)


def partition_records(partitions: Sequence[PartitionImage]) -> wire.RecordPartitions:
    # All that partitions often have in common: what comes after the four numbers.
    shapes: dict[tuple[Any, ...], int] = {}
    return wire.RecordPartitions(
        indexes=[each.index for each in partitions],
        leaders=[each.leader for each in partitions],
        leader_epochs=[each.leader_epoch for each in partitions],
        partition_epochs=[each.partition_epoch for each in partitions],
        shapes_of=[shapes.setdefault(each[4:], len(shapes)) for each in partitions],
        shapes=[
            wire.RecordShape(
                replicas=list(replicas),
                isr=list(isr),
                adding_replicas=list(adding),
                removing_replicas=list(removing),
                elr=list(elr),
                last_known_leader=last_known_leader,
                recovering=recovering,
                wiped=list(wiped),
            )
            for replicas, isr, adding, removing, elr, last_known_leader, recovering, wiped in shapes
        ],
    )


def partitions_of(record: wire.RecordPartitions) -> tuple[PartitionImage, ...]:
    shapes = [
        (
            tuple(each.replicas),
            tuple(each.isr),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
            tuple(each.elr),
            each.last_known_leader,
            each.recovering,
            tuple(each.wiped),
        )
        for each in record.shapes
    ]
    try:
        columns = zip(
            record.indexes,
            record.leaders,
            record.leader_epochs,
            record.partition_epochs,
            record.shapes_of,
            strict=True,
        )
        if min(record.shapes_of, default=0) < 0:
            raise IndexError
        return tuple(
            PartitionImage(index, leader, leader_epoch, partition_epoch, *shapes[shape])
            for index, leader, leader_epoch, partition_epoch, shape in columns
        )
    except (ValueError, IndexError):
        raise MalformedMessage("partitions in columns of different lengths or shapes") from None


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
