"""DeleteShareGroupOffsets (KIP-932): a share group without members forgets topics."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.broker.shares.sessions import Place
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import Refused
from ottla.coordinator.share_group_offsets import (
    begin_deletion,
    end_deletion,
    topics_with_state,
)
from ottla.wire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.wire.errors import ErrorCode

NOTHING_TO_DELETE = "There is no offset information to delete."


def handle(
    request: DeleteShareGroupOffsetsRequest, context: Context
) -> DeleteShareGroupOffsetsResponse | Pending:
    group_id = request.group_id
    if not group_id:
        return failure(request, ErrorCode.INVALID_GROUP_ID, context)
    coordinator = context.broker.coordinators.groups.coordinator_for(group_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    if not request.topics:
        return DeleteShareGroupOffsetsResponse()
    reply = PendingReply(lambda error: failure(request, error, context))
    shares = coordinator.shard.shares
    persister = context.broker.coordinators.share_manager.persister
    image = context.broker.image

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            known = topics_with_state(shares, group_id)
        except Refused as refused:
            effects.reply(reply, failure(request, refused.error, context, refused.message))
            return
        topics = [answer_for(each.topic_name, context) for each in request.topics]
        partitions = {}
        for topic in topics:
            if topic.error_code:
                continue
            if topic.topic_id in known:
                partitions[topic.topic_id] = sorted(known[topic.topic_id].partitions)
            else:
                topic.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topic.error_message = NOTHING_TO_DELETE
        if not partitions:
            effects.reply(reply, DeleteShareGroupOffsetsResponse(responses=topics))
            return
        begin_deletion(shares, group_id, partitions, effects)
        effects.after_commit(
            lambda: persister.delete(group_id, partitions, lambda errors: deleted(topics, errors))
        )

    def deleted(
        topics: list[DeleteShareGroupOffsetsResponseTopic], errors: dict[Place, ErrorCode]
    ) -> None:
        failed = {topic_id: error for (topic_id, _), error in errors.items() if error}
        for topic in topics:
            error = failed.get(topic.topic_id)
            if error is not None:
                topic.error_code, topic.error_message = error, error.message
        done = {topic_id for topic_id, _ in errors} - failed.keys()

        def end(effects: Effects, now_ms: int) -> None:
            end_deletion(shares, group_id, done, effects)
            effects.reply(reply, DeleteShareGroupOffsetsResponse(responses=topics))

        coordinator.run(end)

    def answer_for(name: str, context: Context) -> DeleteShareGroupOffsetsResponseTopic:
        topic = image.topics.get(name)
        if topic is not None:
            return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic.id)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=error, error_message=error.message
        )

    coordinator.run(decide)
    return reply.pending


def failure(
    request: DeleteShareGroupOffsetsRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        error_code=error_code, error_message=message or error_code.message
    )


def refused_topic(
    topic: DeleteShareGroupOffsetsRequestTopic, error: ErrorCode
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, error_code=error, error_message=error.message
    )
