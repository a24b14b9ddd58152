"""How far partitions reach, as their leaders know it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

LATEST = -1
CONSUMER = -1
TopicPartition = tuple[str, int]


def end_offsets(
    broker: Broker,
    partitions: Collection[TopicPartition],
    then: Callable[[dict[TopicPartition, int]], object],
) -> None:
    """Ask the leaders; what they do not answer is left out."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for name, index in partitions:
        known = broker.image.partition(name, index)
        if known is not None and known.leader >= 0:
            by_leader.setdefault(known.leader, {}).setdefault(name, []).append(index)
    found: dict[TopicPartition, int] = {}
    left = len(by_leader)
    if not left:
        then(found)
        return

    def answered(response: Any) -> None:
        nonlocal left
        if not isinstance(response, ErrorCode):
            for topic in response.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        found[topic.name, each.partition_index] = each.offset
        left -= 1
        if not left:
            then(found)

    for leader, topics in by_leader.items():
        broker.peers.send(leader, latest_request(topics), answered)


def latest_request(topics: dict[str, list[int]]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )
