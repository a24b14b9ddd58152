"""The assignor of share groups, `simple`: partitions may have several members, and members share.

Every member gets as many partitions as any other, but for one; every partition has as many members
as any other, but for one; and who has a partition keeps it as long as that allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.coordinator.consumer_group import NOTHING, Assignment


class Subscriber(NamedTuple):
    """One member: the partitions that it may have, by topic id, and those that it has."""

    topic_ids: tuple[bytes, ...]
    assigned: Assignment = NOTHING


Partition = tuple[bytes, int]


def assign_simply(
    members: Mapping[str, Subscriber], partitions: Mapping[bytes, Sequence[int]]
) -> dict[str, Assignment]:
    """The target of each member; `partitions` are those that may be assigned."""
    has: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    readers: dict[Partition, int] = {}
    by_topics: dict[tuple[bytes, ...], list[str]] = {}
    for member_id, member in members.items():
        by_topics.setdefault(member.topic_ids, []).append(member_id)
    for topic_ids, member_ids in by_topics.items():
        wanted = [(topic_id, each) for topic_id in topic_ids for each in partitions[topic_id]]
        if wanted:
            assign_alike(wanted, member_ids, members, has, readers)
    return {member_id: by_topic(found) for member_id, found in has.items()}


def assign_alike(
    wanted: list[Partition],
    member_ids: list[str],
    members: Mapping[str, Subscriber],
    has: dict[str, set[Partition]],
    readers: dict[Partition, int],
) -> None:
    """Share partitions out to members that all subscribe to them."""
    sharing_max = -(-len(member_ids) // len(wanted))
    count_max = -(-len(wanted) * sharing_max // len(member_ids))
    own: dict[Partition, int] = dict.fromkeys(wanted, 0)
    for member_id in member_ids:
        for topic_id, kept in members[member_id].assigned.items():
            for each in sorted(kept):
                partition = (topic_id, each)
                if (
                    own.get(partition, sharing_max) < sharing_max
                    and len(has[member_id]) < count_max
                ):
                    has[member_id].add(partition)
                    own[partition] += 1
    at = 0
    for partition in wanted:
        # Nobody reads it yet: the next of those who have the least.
        if not own[partition]:
            reader = min(member_ids, key=lambda each: len(has[each]))
            has[reader].add(partition)
            own[partition] += 1
    for member_id in member_ids:
        # Every member has at least one, shared with others if need be.
        if not has[member_id]:
            least = min(own.values())
            while own[wanted[at % len(wanted)]] > least:
                at += 1
            partition = wanted[at % len(wanted)]
            has[member_id].add(partition)
            own[partition] += 1
    for partition, count in own.items():
        readers[partition] = readers.get(partition, 0) + count


def by_topic(partitions: set[Partition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, each in sorted(partitions):
        found.setdefault(topic_id, set()).add(each)
    return {topic_id: frozenset(each) for topic_id, each in found.items()}
