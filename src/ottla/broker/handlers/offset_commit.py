"""OffsetCommit: how far a group has read, kept in the coordinator's log."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import Reply
from ottla.coordinator.effects import Effects
from ottla.coordinator.groups import Caller
from ottla.coordinator.offsets import NO_EXPIRY, Committed, TopicPartition
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.errors import ErrorCode

TOPIC_IDS_FROM = 10


def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse | Pending:
    response, accepted = sort_out(request, context)
    if not accepted:
        return response
    seat = context.broker.coordinators.groups.seat_for(request.group_id)
    if request.group_id == "":
        return failure(request, ErrorCode.INVALID_GROUP_ID, context)
    if isinstance(seat, ErrorCode):
        return failure(request, seat, context)
    shard = seat.shard
    caller = Caller(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    error = shard.commit_error(request.group_id, caller, transactional=False)
    if error:
        return failure(request, error, context)
    reply = Reply(lambda error: failure(request, commit_failure(error), context))

    def decide(effects: Effects, now_ms: int) -> None:
        retention_ms = request.retention_time_ms
        expires_ms = now_ms + retention_ms if retention_ms >= 0 else NO_EXPIRY
        offsets = [
            (partition, committed(asked, now_ms, expires_ms)) for partition, asked in accepted
        ]
        shard.commit(request.group_id, caller, offsets, None, effects)
        effects.reply(reply, response)

    seat.run(decide)
    return reply.pending


def committed(asked: OffsetCommitRequestPartition, now_ms: int, expires_ms: int) -> Committed:
    return Committed(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
        expires_ms,
    )


def sort_out(
    request: OffsetCommitRequest, context: Context
) -> tuple[OffsetCommitResponse, list[tuple[TopicPartition, OffsetCommitRequestPartition]]]:
    """The answer as it will be if all goes well, and what of the request can be done."""
    broker = context.broker
    image = broker.image
    metadata_bytes_max = broker.settings.integer("offset.metadata.max.bytes")
    accepted: list[tuple[TopicPartition, OffsetCommitRequestPartition]] = []
    topics = []
    for topic in request.topics:
        if context.api_version >= TOPIC_IDS_FROM:
            known = image.topics_by_id.get(topic.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = image.topics.get(topic.name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = []
        for asked in topic.partitions:
            error = ErrorCode.NONE
            if known is None:
                error = missing
            elif not 0 <= asked.partition_index < len(known.partitions):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len((asked.committed_metadata or "").encode()) > metadata_bytes_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted.append(((known.name, asked.partition_index), asked))
            partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=asked.partition_index, error_code=error
                )
            )
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return OffsetCommitResponse(topics=topics), accepted


def commit_failure(error: ErrorCode) -> ErrorCode:
    """What a committer is told when its record could not be appended."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


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
