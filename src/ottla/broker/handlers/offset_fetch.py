"""OffsetFetch: committed offsets of groups; -1 for a partition without one (KIP-709: many groups).

A request of the old form, for one group, is converted to the new form, and its response back. With
`require_stable` an offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT, and
the coordinator first makes sure that it still is one: a client that goes on from an offset which a
later coordinator has replaced would transform records twice. If it cannot, it is NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets import Committed
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import NO_UUID

BATCHED_FROM = 8
GROUP_ERROR_FROM = 2
TOPIC_IDS_FROM = 10


def handle(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse | Pending:
    groups = in_new_form(request, context)
    if not groups:
        return in_old_form([], context)
    pending = Pending()
    gather = Gather(len(groups), lambda answers: pending.resolve(in_old_form(answers, context)))
    for number, group in enumerate(groups):
        part = gather.part(number, partial(nothing, group, context))
        coordinator = context.broker.coordinators.groups.coordinator_for(group.group_id)
        if isinstance(coordinator, ErrorCode):
            part.fail(coordinator)
        elif request.require_stable:
            read_confirmed(coordinator, group, context, part)
        else:
            read(coordinator, group, False, context, part)
    return pending


def read_confirmed(
    coordinator: CoordinatorPartition[GroupShard],
    group: OffsetFetchRequestGroup,
    context: Context,
    part: Part,
) -> None:
    """Read the stable offsets, if no other coordinator can have committed any before."""
    broker = context.broker

    def then(confirmed: bool) -> None:
        now = broker.coordinators.groups.coordinator_for(group.group_id)
        if not confirmed or now is not coordinator:
            part.fail(now if isinstance(now, ErrorCode) else ErrorCode.NOT_COORDINATOR)
        else:
            read(coordinator, group, True, context, part)

    broker.leader_confirmations.confirm(coordinator.partition, then)


def read(
    coordinator: CoordinatorPartition[GroupShard],
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    context: Context,
    part: Part,
) -> None:
    shard = coordinator.shard

    def decide(effects: Effects, now_ms: int) -> None:
        error = shard.fetch_error(group.group_id, group.member_id, group.member_epoch)
        if error:
            effects.reply(part, nothing(group, context, error))
            return
        topics = group.topics
        if topics is None:
            topics = all_topics(shard, group.group_id, context)
        answer = OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=[
                topic_answer(shard, group.group_id, topic, require_stable, context)
                for topic in topics
            ],
        )
        effects.reply(part, answer)

    coordinator.run(decide)


def all_topics(
    shard: GroupShard, group_id: str, context: Context
) -> list[OffsetFetchRequestTopics]:
    """Every partition with an offset of the group."""
    by_topic: dict[str, set[int]] = {}
    for topic, partition in shard.offsets.of(group_id):
        by_topic.setdefault(topic, set()).add(partition)
    image = context.broker.image
    asked = []
    for name, partitions in by_topic.items():
        known = image.topics.get(name)
        if known is None and context.api_version >= TOPIC_IDS_FROM:
            continue  # a deleted topic has no id
        asked.append(
            OffsetFetchRequestTopics(
                name=name,
                topic_id=known.id if known is not None else NO_UUID,
                partition_indexes=sorted(partitions),
            )
        )
    return asked


def topic_answer(
    shard: GroupShard,
    group_id: str,
    topic: OffsetFetchRequestTopics,
    require_stable: bool,
    context: Context,
) -> OffsetFetchResponseTopics:
    name = topic.name
    image = context.broker.image
    error = ErrorCode.NONE
    if context.api_version >= TOPIC_IDS_FROM:
        known = image.topics_by_id.get(topic.topic_id)
        name = known.name if known is not None else ""
        error = ErrorCode.NONE if known is not None else ErrorCode.UNKNOWN_TOPIC_ID
    else:
        known = image.topics.get(name)
    topic_id = known.id if known is not None else NO_UUID
    partitions = []
    for index in topic.partition_indexes:
        found: Committed | ErrorCode | None = error
        if not error:
            found = shard.fetch_offset(
                group_id, (name, index), topic_id, require_stable=require_stable
            )
        partitions.append(
            one_offset(index, found)
            if isinstance(found, Committed)
            else no_offset(index, found or ErrorCode.NONE)
        )
    return OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=partitions)


def no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )


def refused_topic(
    topic: Any, error: ErrorCode, context: Context
) -> OffsetFetchResponseTopics | OffsetFetchResponseTopic:
    """The same error for every partition of a topic, in the form of the request's version."""
    partitions = [no_offset(index, error) for index in topic.partition_indexes]
    if context.api_version >= BATCHED_FROM:
        return OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        )
    return topic_in_old_form(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))


def one_offset(index: int, found: Committed) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


# ---- the old form, for one group -----------------------------------------------------------------


def in_new_form(request: OffsetFetchRequest, context: Context) -> list[OffsetFetchRequestGroup]:
    if context.api_version >= BATCHED_FROM:
        return request.groups
    topics = request.topics
    return [
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in topics
            ],
        )
    ]


def in_old_form(
    groups: Sequence[OffsetFetchResponseGroup], context: Context
) -> OffsetFetchResponse:
    if context.api_version >= BATCHED_FROM:
        return OffsetFetchResponse(groups=list(groups))
    [only] = groups
    return OffsetFetchResponse(
        error_code=only.error_code,
        topics=[topic_in_old_form(topic) for topic in only.topics],
    )


def topic_in_old_form(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )


def nothing(
    group: OffsetFetchRequestGroup, context: Context, error_code: ErrorCode
) -> OffsetFetchResponseGroup:
    """An error for a group; before version 2 errors are per partition only."""
    answer = OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code)
    if context.api_version < GROUP_ERROR_FROM:
        answer.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[no_offset(each, error_code) for each in topic.partition_indexes],
            )
            for topic in group.topics or ()
        ]
    return answer


def failure(
    request: OffsetFetchRequest, error_code: ErrorCode, context: Context
) -> OffsetFetchResponse:
    """The same error for every group."""
    groups = [nothing(each, context, error_code) for each in in_new_form(request, context)]
    return in_old_form(groups, context)
