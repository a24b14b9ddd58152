"""DescribeShareGroupOffsets (KIP-932): where share groups begin, and how much is left (KIP-1226).

The share coordinators know where; how far the partitions reach is known by their leaders.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.broker.shares.end_offsets import end_offsets
from ottla.broker.shares.sessions import Place
from ottla.broker.shares.state_calls import error_of
from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import Refused
from ottla.coordinator.share_state import NO_START_OFFSET
from ottla.wire.api import describe_share_group_offsets as api
from ottla.wire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.wire.errors import ErrorCode

Group = api.DescribeShareGroupOffsetsResponseGroup
AskedGroup = api.DescribeShareGroupOffsetsRequestGroup
NO_LAG = -1


def handle(
    request: DescribeShareGroupOffsetsRequest, context: Context
) -> DescribeShareGroupOffsetsResponse | Pending:
    if not request.groups:
        return DescribeShareGroupOffsetsResponse()
    pending = Pending()

    def respond(groups: list[Group]) -> None:
        pending.resolve(DescribeShareGroupOffsetsResponse(groups=groups))

    gather = Gather(len(request.groups), respond)
    for number, asked in enumerate(request.groups):
        describe_one(asked, context, gather.part(number, partial(nothing, asked.group_id)))
    return pending


def describe_one(asked: AskedGroup, context: Context, part: Part) -> None:
    coordinator = context.broker.coordinators.groups.coordinator_for(asked.group_id)
    if isinstance(coordinator, ErrorCode):
        part.fail(coordinator)
        return
    shares = coordinator.shard.shares

    def decide(effects: Effects, now_ms: int) -> None:
        if asked.topics is not None:
            effects.after_commit(lambda: Description(asked.group_id, names, context, part).start())
            return
        try:
            group = shares.known_group(asked.group_id)
        except Refused as refused:
            # A group that is not there has no offsets: that is no error here.
            answer = Group(group_id=asked.group_id)
            if refused.error != ErrorCode.GROUP_ID_NOT_FOUND:
                answer = nothing(asked.group_id, refused.error)
                answer.error_message = refused.message
            effects.reply(part, answer)
            return
        for topic in group.state.initialized.values():
            names[topic.name] = sorted(topic.partitions)
        effects.after_commit(lambda: Description(asked.group_id, names, context, part).start())

    names = {each.topic_name: each.partitions for each in asked.topics or ()}
    coordinator.run(decide)


class Description:
    """The answer for one group in the making."""

    def __init__(
        self, group_id: str, topics: dict[str, list[int]], context: Context, part: Part
    ) -> None:
        self._group_id = group_id
        self._topics = topics
        self._context = context
        self._part = part
        image = context.broker.image
        self._places: dict[Place, tuple[str, int]] = {
            (image.topics[name].id, each): (name, each)
            for name, partitions in topics.items()
            for each in partitions
            if image.partition(name, each) is not None
        }

    def start(self) -> None:
        persister = self._context.broker.coordinators.share_manager.persister
        persister.summarize(self._group_id, list(self._places), self._summarized)

    def _summarized(self, results: dict[Place, Any]) -> None:
        known = [
            self._places[place]
            for place, result in results.items()
            if not error_of(result) and result.start_offset != NO_START_OFFSET
        ]
        end_offsets(self._context.broker, known, partial(self._answer, results))

    def _answer(self, results: dict[Place, Any], ends: dict[tuple[str, int], int]) -> None:
        topics = []
        for name, partitions in self._topics.items():
            topic = self._context.broker.image.topics.get(name)
            answer = api.DescribeShareGroupOffsetsResponseTopic(topic_name=name)
            for index in partitions:
                result = results.get((topic.id, index)) if topic is not None else None
                answer.partitions.append(described(index, result, ends.get((name, index))))
            if topic is not None:
                answer.topic_id = topic.id
            topics.append(answer)
        self._part.resolve(Group(group_id=self._group_id, topics=topics))


def described(
    index: int, result: Any, end_offset: int | None
) -> api.DescribeShareGroupOffsetsResponsePartition:
    answer = api.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=NO_START_OFFSET, lag=NO_LAG
    )
    if result is None:
        return answer  # there is no such partition, so it has no start
    error = error_of(result)
    if error:
        answer.error_code, answer.error_message = error, error.message
        answer.start_offset = 0
        return answer
    answer.start_offset = result.start_offset
    answer.leader_epoch = result.leader_epoch
    if end_offset is not None and result.delivery_complete_count >= 0:
        answer.lag = end_offset - result.start_offset - result.delivery_complete_count
    return answer


def nothing(group_id: str, error: ErrorCode) -> Group:
    return Group(group_id=group_id, error_code=error, error_message=error.message)


def refused_topic(
    topic: api.DescribeShareGroupOffsetsRequestTopic, error: ErrorCode
) -> api.DescribeShareGroupOffsetsResponseTopic:
    """The same error for every partition of a topic."""
    return api.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            api.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=NO_START_OFFSET,
                error_code=error,
                error_message=error.message,
            )
            for index in topic.partitions
        ],
    )


def failure(
    request: DescribeShareGroupOffsetsRequest, error_code: ErrorCode, context: Context
) -> DescribeShareGroupOffsetsResponse:
    """The same error for every group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[Group(group_id=each.group_id, error_code=error_code) for each in request.groups]
    )
