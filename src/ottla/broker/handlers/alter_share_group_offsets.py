"""AlterShareGroupOffsets (KIP-932): a share group without members begins elsewhere."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.broker.shares.persister import by_topic
from ottla.broker.shares.sessions import Place
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import Refused
from ottla.coordinator.share_group_offsets import begin_offsets
from ottla.wire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: AlterShareGroupOffsetsRequest, context: Context
) -> AlterShareGroupOffsetsResponse | Pending:
    group_id = request.group_id
    if not group_id:
        return failure(request, ErrorCode.INVALID_GROUP_ID, context)
    coordinator = context.broker.coordinators.groups.coordinator_for(group_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    reply = PendingReply(lambda error: failure(request, error, context))
    shares = coordinator.shard.shares
    persister = context.broker.coordinators.share_manager.persister
    offsets = offsets_in(request, context)

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            epoch = begin_offsets(shares, group_id, by_topic(offsets), effects, now_ms)
        except Refused as refused:
            effects.records.clear()
            effects.reply(reply, failure(request, refused.error, context, refused.message))
            return

        def begun(errors: dict[Place, ErrorCode]) -> None:
            persister.initialized(group_id, errors)
            reply.resolve(respond(request, errors, context))

        effects.after_commit(lambda: persister.begin(group_id, epoch, offsets, begun))

    coordinator.run(decide)
    return reply.pending


def offsets_in(request: AlterShareGroupOffsetsRequest, context: Context) -> dict[Place, int]:
    """The new offsets of the partitions that exist."""
    image = context.broker.image
    return {
        (image.topics[topic.topic_name].id, each.partition_index): each.start_offset
        for topic in request.topics
        for each in topic.partitions
        if image.partition(topic.topic_name, each.partition_index) is not None
    }


def respond(
    request: AlterShareGroupOffsetsRequest, errors: dict[Place, ErrorCode], context: Context
) -> AlterShareGroupOffsetsResponse:
    topics = []
    for topic in request.topics:
        known = context.broker.image.topics.get(topic.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        if known is not None:
            answer.topic_id = known.id
        for each in topic.partitions:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if known is not None:
                error = errors.get((known.id, each.partition_index), error)
            answer.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=each.partition_index,
                    error_code=error,
                    error_message=error.message if error else None,
                )
            )
        topics.append(answer)
    return AlterShareGroupOffsetsResponse(responses=topics)


def failure(
    request: AlterShareGroupOffsetsRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        error_code=error_code, error_message=message or error_code.message
    )


def refused_topic(
    topic: AlterShareGroupOffsetsRequestTopic, error: ErrorCode
) -> AlterShareGroupOffsetsResponseTopic:
    """The same error for every partition of a topic."""
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=error, error_message=error.message
            )
            for each in topic.partitions
        ],
    )
