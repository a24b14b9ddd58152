"""When a committed offset expires (KIP-211). Pure.

The offsets of a topic that the group subscribes to never expire; those of other topics expire
`offsets.retention.minutes` after the last commit, those of a group without members as long after it
became empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    """The partitions whose offsets have expired."""
    used: set[str] = set()
    empty_since_ms = -1
    if group is not None and group.protocol_type is not None:
        if group.state is EMPTY:
            empty_since_ms = group.state_since_ms
        else:
            subscribed = subscribed_topics(group)
            if group.state is not STABLE or subscribed is None:
                return []  # in a rebalance, or of a protocol whose subscriptions are not known
            used = subscribed

    def expired(committed: Committed) -> bool:
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        since_ms = committed.commit_timestamp_ms if empty_since_ms < 0 else empty_since_ms
        return now_ms - since_ms >= retention_ms

    return [each for each in offsets if each[0] not in used and expired(offsets[each])]


def expired_since_commit(
    offsets: Mapping[TopicPartition, Committed],
    is_subscribed_to: Callable[[str], bool],
    *,
    now_ms: int,
    retention_ms: int,
) -> list[TopicPartition]:
    """Those of a group of a new protocol: as long after their commits, unless it is subscribed."""

    def expired(committed: Committed) -> bool:
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - committed.commit_timestamp_ms >= retention_ms

    return [each for each in offsets if not is_subscribed_to(each[0]) and expired(offsets[each])]


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that the members of a consumer group subscribe to; None if they are not known."""
    if group.protocol_type != CONSUMER_PROTOCOL or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(read_subscription(member.protocols[group.protocol_name]).topics)
        except (WireError, KeyError):
            return None
    return topics
