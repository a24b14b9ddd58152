"""DescribeProducers (KIP-664): who writes to a partition, as far as the log remembers."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.partitions import missing
from ottla.cluster.names import name_error
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.errors import ErrorCode


def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    """Every partition on its own; a bad or unknown topic fails all of its partitions."""
    topics = []
    for topic in request.topics:
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, name_error(topic.name)
        if message is None and topic.name not in context.broker.image.topics:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            message = "This server does not host this topic-partition."
        if message is not None:
            answers = [
                PartitionResponse(partition_index=index, error_code=error, error_message=message)
                for index in topic.partition_indexes
            ]
        else:
            answers = [_describe(topic.name, index, context) for index in topic.partition_indexes]
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return DescribeProducersResponse(topics=topics)


def failure(
    request: DescribeProducersRequest, error_code: ErrorCode, context: Context
) -> DescribeProducersResponse:
    """The same error for every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(
                        partition_index=index,
                        error_code=error_code,
                        error_message=error_code.message,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, context: Context) -> PartitionResponse:
    broker = context.broker
    partition = broker.partitions.get(topic, index)
    if partition is None:
        error = missing(broker.image, topic, index, broker.node_id)
    else:
        # A follower tells of its own replica, as Kafka's does.
        error = ErrorCode.NONE if partition.offline is None else ErrorCode.KAFKA_STORAGE_ERROR
    if error or partition is None:
        return PartitionResponse(partition_index=index, error_code=error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer_id, producer in partition.producers.items()
        ],
    )
