"""Metadata (KIP-516 topic ids): brokers, topics, leaders; and topics made by being asked for.

A client is told addresses of the listener it came through. A topic that is created on the way is
in this very answer, with its leader: the next request of the client can go there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

from ottla.broker.context import Context
from ottla.broker.endpoints import nodes
from ottla.cluster.image import ZERO_ID, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.names import INTERNAL, name_error
from ottla.cluster.requests import NewTopic
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.errors import ErrorCode

TOPIC_IDS_FROM = 12
LISTENER_ERROR_FROM = 6
AUTHORIZED_OPERATIONS_FROM = 8
CLUSTER_OPERATIONS_UP_TO = 10

# Bits by AclOperation: without an authorizer a client may do all there is to do.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(1 << 31)


def handle(
    request: MetadataRequest, context: Context
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """At once when every topic is there, after their creation when some must be made."""
    version = context.api_version
    topics = request.topics
    image = context.broker.image
    if topics is None or (not topics and version == 0):
        return respond(request, context, _topics(image.topics.values(), context))
    if version < TOPIC_IDS_FROM and any(_needs_ids(topic) for topic in topics):
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    topic_ids = [topic.topic_id for topic in topics if topic.topic_id != ZERO_ID]
    if topic_ids:
        return respond(request, context, _by_id(dict.fromkeys(topic_ids), context))
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    settings = context.broker.settings
    if request.allow_auto_topic_creation and settings.flag("auto.create.topics.enable"):
        new = [name for name in names if name not in image.topics and name_error(name) is None]
        if new:
            return _create(new, names, request, context)
    return respond(request, context, _by_name(names, context))


def failure(request: MetadataRequest, error_code: ErrorCode, context: Context) -> MetadataResponse:
    """The same error for every topic asked for."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=error_code,
                name=topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ]
    )


def respond(
    request: MetadataRequest, context: Context, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    """The brokers and the cluster around the topics."""
    image = context.broker.image
    version = context.api_version
    cluster_operations = NOT_ASKED
    if version >= AUTHORIZED_OPERATIONS_FROM:
        if version <= CLUSTER_OPERATIONS_UP_TO and request.include_cluster_authorized_operations:
            cluster_operations = CLUSTER_OPERATIONS
        if request.include_topic_authorized_operations:
            for topic in topics:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in nodes(image, context.peer.listener_name)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


async def _create(
    new: Sequence[str], names: Sequence[str], request: MetadataRequest, context: Context
) -> MetadataResponse:
    """Make the topics with the broker's defaults; what cannot be made stays unknown."""
    await context.broker.controller.create_topics([NewTopic(name) for name in new])
    return respond(request, context, _by_name(names, context))


def _needs_ids(topic: MetadataRequestTopic) -> bool:
    """The fields for ids came in version 10, but asking by id only works since 12."""
    return topic.name is None or topic.topic_id != ZERO_ID


def _by_id(topic_ids: Iterable[bytes], context: Context) -> list[MetadataResponseTopic]:
    image = context.broker.image
    known = [each for each in topic_ids if each in image.topics_by_id]
    unknown = [
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        for topic_id in topic_ids
        if topic_id not in image.topics_by_id
    ]
    return unknown + _topics((image.topics_by_id[each] for each in known), context)


def _by_name(names: Iterable[str], context: Context) -> list[MetadataResponseTopic]:
    topics = context.broker.image.topics
    answers = []
    for name in names:
        topic = topics.get(name)
        if topic is not None:
            answers += _topics((topic,), context)
            continue
        bad_name = name_error(name) is not None
        answers.append(
            MetadataResponseTopic(
                error_code=(
                    ErrorCode.INVALID_TOPIC_EXCEPTION
                    if bad_name
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ),
                name=name,
                is_internal=name in INTERNAL,
            )
        )
    return answers


def _topics(topics: Iterable[TopicImage], context: Context) -> list[MetadataResponseTopic]:
    image = context.broker.image
    alive = {each.id for each in nodes(image, context.peer.listener_name)}
    return [
        MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL,
            partitions=[
                _sound(each)
                if alive.issuperset(each.replicas) and each.leader >= 0
                else _partition(image, each, alive, context.api_version)
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def _sound(partition: PartitionImage) -> MetadataResponsePartition:
    """All its replicas are reached through this listener: nothing needs a second look."""
    return MetadataResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
    )


def _partition(
    image: ClusterImage, partition: PartitionImage, living: set[int], version: int
) -> MetadataResponsePartition:
    """With an error, or without those that version 0 cannot be told of."""
    alive = [each for each in partition.replicas if each in living]
    # Version 0 cannot tell a client of replicas without an address, so it leaves them out.
    replicas = alive if version == 0 else list(partition.replicas)
    in_sync = [each for each in partition.isr if version > 0 or each in alive]
    error = ErrorCode.NONE
    leader = partition.leader
    if leader not in alive:
        leader = -1
        listener_gone = partition.leader in image.brokers and version >= LISTENER_ERROR_FROM
        error = ErrorCode.LISTENER_NOT_FOUND if listener_gone else ErrorCode.LEADER_NOT_AVAILABLE
    elif len(replicas) < len(partition.replicas) or len(in_sync) < len(partition.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        offline_replicas=[each for each in partition.replicas if each not in alive],
    )
