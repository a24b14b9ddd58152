"""When a committed offset has outlived its use (KIP-211). Pure.

A group that still consumes a topic keeps its offsets for ever; one that no longer subscribes to it
keeps them for `offsets.retention.minutes` after the last commit; a group without members keeps them
for as long after it became empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.group import EMPTY, STABLE, Group
from ottla.coordinator.offsets import NO_EXPIRY, Committed, TopicPartition
from ottla.wire.consumer_protocol import read_subscription
from ottla.wire.malformed import WireError

CONSUMER_PROTOCOL = "consumer"


def expired_offsets(
    group: Group | None,
    offsets: Mapping[TopicPartition, Committed],
    *,
    now_ms: int,
    retention_ms: int,
) -> list[TopicPartition]:
    """The partitions whose offsets are to be forgotten."""
    used: set[str] = set()
    empty_since_ms = -1
    if group is not None and group.protocol_type is not None:
        if group.state is EMPTY:
            empty_since_ms = group.state_since_ms
        else:
            subscribed = subscribed_topics(group)
            if group.state is not STABLE or subscribed is None:
                return []  # in the middle of a rebalance, or of a kind nobody can look into
            used = subscribed

    def expired(topic: str, committed: Committed) -> bool:
        if topic in used:
            return False
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        since_ms = committed.commit_timestamp_ms if empty_since_ms < 0 else empty_since_ms
        return now_ms - since_ms >= retention_ms

    return [partition for partition, offset in offsets.items() if expired(partition[0], offset)]


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that the members of a consumer group subscribe to; None where nobody can know."""
    if group.protocol_type != CONSUMER_PROTOCOL or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(read_subscription(member.protocols[group.protocol_name]).topics)
        except (WireError, KeyError):
            return None
    return topics
