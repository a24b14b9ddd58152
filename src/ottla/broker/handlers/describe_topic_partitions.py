"""DescribeTopicPartitions (KIP-966): topics by name, a page of partitions at a time.

A page that is full ends with a cursor: the first partition of the next page.
"""

from __future__ import annotations

from bisect import bisect_left

from ottla.broker.authorized_operations import NOT_ASKED, topic_operations
from ottla.broker.context import Context
from ottla.broker.endpoints import node
from ottla.cluster.image import PartitionImage
from ottla.cluster.names import INTERNAL, name_error
from ottla.security.acls import Operation, ResourceType
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.errors import ErrorCode

DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC


def handle(
    request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    """The topics named, or all, from the cursor on."""
    asked = {topic.name for topic in request.topics}
    if "" in asked:
        return failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, context)  # as Kafka fails on it
    names = sorted(asked or context.broker.image.topics)
    first_partition = 0
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            return failure(request, ErrorCode.INVALID_REQUEST, context)
        names = names[bisect_left(names, cursor.topic_name) :]
        found = bool(names) and names[0] == cursor.topic_name
        if not found and asked:
            return failure(request, ErrorCode.INVALID_REQUEST, context)
        first_partition = cursor.partition_index if found else 0
    most = context.broker.settings.integer("max.request.partition.size.limit")
    limit = max(1, min(most, request.response_partition_limit))
    if context.rights is None:
        return _page(names, first_partition, limit, context)
    allowed = [each for each in names if context.rights.allows(DESCRIBE, TOPIC, each)]
    if allowed[:1] != names[:1]:
        first_partition = 0
    response = _page(allowed, first_partition, limit, context)
    if asked:
        hidden = asked.intersection(names).difference(allowed)
        response.topics += [_hidden(each) for each in sorted(hidden)]
    return response


def failure(
    request: DescribeTopicPartitionsRequest, error_code: ErrorCode, context: Context
) -> DescribeTopicPartitionsResponse:
    """The same error for every topic."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error_code, name=topic.name)
            for topic in request.topics
        ]
    )


def _page(
    names: list[str], first_partition: int, limit: int, context: Context
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    image = context.broker.image
    left = limit
    for name in names:
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name, context))
            continue
        end = first_partition + left
        partitions = topic.partitions[first_partition:end]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=name in INTERNAL,
                partitions=[_partition(partition, context) for partition in partitions],
                topic_authorized_operations=topic_operations(context, name),
            )
        )
        left -= len(partitions)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        first_partition = 0
    return response


def _unknown(name: str, context: Context) -> DescribeTopicPartitionsResponseTopic:
    bad_name = name_error(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.INVALID_TOPIC_EXCEPTION if bad_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        name=name,
        is_internal=name in INTERNAL,
        topic_authorized_operations=topic_operations(context, name),
    )


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Whether there is such a topic is not told."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_authorized_operations=NOT_ASKED,
    )


def _partition(
    partition: PartitionImage, context: Context
) -> DescribeTopicPartitionsResponsePartition:
    image, listener_name = context.broker.image, context.peer.listener_name
    offline = [each for each in partition.replicas if node(image, each, listener_name) is None]
    # Without a leader there is no error here, unlike in Metadata.
    leader = partition.leader if node(image, partition.leader, listener_name) is not None else -1
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=[partition.last_known_leader] if partition.last_known_leader >= 0 else [],
        offline_replicas=offline,
    )
