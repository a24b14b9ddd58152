"""OffsetForLeaderEpoch (KIP-101, KIP-320): where the records of an epoch end in this log.

A reader that knows the epoch of its last record learns here whether the log was cut behind it.
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.partitions import missing
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.wire.errors import ErrorCode


def handle(request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    """Every partition on its own."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_look_up(topic.topic, each, context) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def failure(
    request: OffsetForLeaderEpochRequest, error_code: ErrorCode, context: Context
) -> OffsetForLeaderEpochResponse:
    """The same error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=each.partition, error_code=error_code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _look_up(topic: str, asked: OffsetForLeaderPartition, context: Context) -> EpochEndOffset:
    broker = context.broker
    index = asked.partition
    partition = broker.partitions.get(topic, index)
    if partition is None:
        error = missing(broker.image, topic, index, broker.node_id)
    else:
        error = partition.error_for_client(asked.current_leader_epoch)
    if error or partition is None:
        return EpochEndOffset(partition=index, error_code=error)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=index, leader_epoch=epoch, end_offset=end_offset)
