"""OffsetDelete (KIP-496): deletes a group's offsets of topics that it is not subscribed to."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.coordinator.offsets import TopicPartition
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.errors import ErrorCode


def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse | Pending:
    if request.group_id == "":
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return OffsetDeleteResponse(error_code=coordinator)
    reply = PendingReply(lambda error: OffsetDeleteResponse(error_code=error))
    shard = coordinator.shard
    known, unknown = sort_out(request, context)

    def decide(effects: Effects, now_ms: int) -> None:
        outcome = shard.delete_offsets(request.group_id, known, effects)
        if isinstance(outcome, ErrorCode):
            effects.reply(reply, OffsetDeleteResponse(error_code=outcome))
        else:
            effects.reply(reply, respond(request, outcome | unknown))

    coordinator.run(decide)
    return reply.pending


def sort_out(
    request: OffsetDeleteRequest, context: Context
) -> tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]:
    """Partitions that exist, and the error for those that do not."""
    known: list[TopicPartition] = []
    unknown: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            partition = (topic.name, asked.partition_index)
            if context.broker.image.partition(*partition) is not None:
                known.append(partition)
            else:
                unknown[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return known, unknown


def refused_topic(topic: OffsetDeleteRequestTopic, error: ErrorCode) -> OffsetDeleteResponseTopic:
    """The same error for every partition of a topic."""
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def respond(
    request: OffsetDeleteRequest, errors: dict[TopicPartition, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
