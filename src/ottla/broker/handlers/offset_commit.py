"""OffsetCommit: how far a group has read, kept in the coordinator's log."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_shard import Caller
from ottla.coordinator.offsets import NO_EXPIRY, Committed, TopicPartition, metadata_too_long
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
    """One partition of the request that exists, and its place in the answer."""

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
        return refused(response, accepted, coordinator)
    shard = coordinator.shard
    caller = Caller(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    error = shard.commit_error(
        request.group_id, caller, transactional=False, api_version=context.api_version
    )
    if error:
        return refused(response, accepted, error)
    reply = PendingReply(lambda error: refused(response, accepted, group_error(error)))
    length_max = shard.offset_rules.metadata_bytes_max

    def decide(effects: Effects, now_ms: int) -> None:
        retention_ms = request.retention_time_ms
        expires_ms = NO_EXPIRY if retention_ms == -1 else now_ms + retention_ms
        offsets = []
        for partition, topic_id, asked, answer in accepted:
            metadata = asked.committed_metadata or ""
            if metadata_too_long(metadata, length_max):
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            offset, epoch = asked.committed_offset, asked.committed_leader_epoch
            committed = Committed(offset, epoch, metadata, now_ms, expires_ms, topic_id)
            offsets.append((partition, committed))
        shard.commit(request.group_id, caller, offsets, None, effects)
        effects.reply(reply, response)

    coordinator.run(decide)
    return reply.pending


def sort_out(
    request: OffsetCommitRequest, context: Context
) -> tuple[OffsetCommitResponse, list[Accepted]]:
    """The answer as it will be if all goes well, and what of the request can be done."""
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
            continue  # Kafka does not speak of it either
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return OffsetCommitResponse(topics=topics), accepted


def refused(
    response: OffsetCommitResponse, accepted: list[Accepted], error: ErrorCode
) -> OffsetCommitResponse:
    """The same error for every partition that exists; the others have theirs."""
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
