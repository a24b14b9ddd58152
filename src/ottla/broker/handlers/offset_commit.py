"""OffsetCommit: stores offsets of a group in the coordinator's log."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.commit_fencing import Caller
from ottla.coordinator.effects import Effects
from ottla.coordinator.offsets import NO_EXPIRY, Committed, TopicPartition
from ottla.coordinator.rebalance import group_error
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.errors import ErrorCode

TOPIC_IDS_FROM = 10


class Accepted(NamedTuple):
    """One partition of the request that exists, and its part of the response."""

    partition: TopicPartition
    topic_id: bytes
    asked: OffsetCommitRequestPartition
    answer: OffsetCommitResponsePartition


def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse | Pending:
    response, accepted = sort_out(request, context)
    if not accepted:
        return response
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return with_error(response, accepted, coordinator)
    shard = coordinator.shard
    caller = Caller(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    reply = PendingReply(lambda error: with_error(response, accepted, group_error(error)))

    def decide(effects: Effects, now_ms: int) -> None:
        retention_ms = request.retention_time_ms
        expires_ms = NO_EXPIRY if retention_ms == -1 else now_ms + retention_ms
        offsets = [
            (
                partition,
                Committed(
                    asked.committed_offset,
                    asked.committed_leader_epoch,
                    asked.committed_metadata or "",
                    now_ms,
                    expires_ms,
                    topic_id,
                ),
            )
            for partition, topic_id, asked, _ in accepted
        ]
        errors = shard.commit(request.group_id, caller, offsets, effects, context.api_version)
        if isinstance(errors, ErrorCode):
            with_error(response, accepted, errors)
        else:
            for each, error in zip(accepted, errors, strict=True):
                each.answer.error_code = error
        effects.reply(reply, response)

    coordinator.run(decide)
    return reply.pending


def sort_out(
    request: OffsetCommitRequest, context: Context
) -> tuple[OffsetCommitResponse, list[Accepted]]:
    """The response without errors of the coordinator, and the partitions that exist."""
    image = context.broker.image
    accepted: list[Accepted] = []
    topics = []
    for topic in request.topics:
        if context.api_version >= TOPIC_IDS_FROM:
            known = image.topics_by_id.get(topic.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = image.topics.get(topic.name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers = []
        for asked in topic.partitions:
            index = asked.partition_index
            answer = OffsetCommitResponsePartition(partition_index=index)
            answers.append(answer)
            if known is None:
                answer.error_code = missing
            elif not 0 <= index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                accepted.append(Accepted((known.name, index), known.id, asked, answer))
        if known is not None and not answers:
            continue  # Kafka leaves it out of the response too
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return OffsetCommitResponse(topics=topics), accepted


def with_error(
    response: OffsetCommitResponse, accepted: list[Accepted], error: ErrorCode
) -> OffsetCommitResponse:
    """The response with one error for every partition that exists."""
    for each in accepted:
        each.answer.error_code = error
    return response


def failure(
    request: OffsetCommitRequest, error_code: ErrorCode, context: Context
) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error_code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
