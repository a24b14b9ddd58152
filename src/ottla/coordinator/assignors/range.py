"""`range`: of each topic every member gets one run of partitions, in the order of the members.

Topics with the same partitions are assigned alike, so that they can be joined. Static members come
first, by their instance ids, then the others by their member ids.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.assignors.spec import GroupSpec
from ottla.coordinator.consumer_group import Assignment


class Ranges:
    """One topic: hands out its partitions, a run to each of its subscribers."""

    def __init__(self, partition_count: int, subscriber_count: int) -> None:
        self.partition_count = partition_count
        self.quota, self.extra = divmod(partition_count, subscriber_count)
        self.next = 0

    def take(self) -> frozenset[int]:
        size = self.quota + (self.extra > 0)
        self.extra -= self.extra > 0
        start, self.next = self.next, min(self.next + size, self.partition_count)
        return frozenset(range(start, self.next))


def assign_ranges(group: GroupSpec) -> Mapping[str, Assignment]:
    order = sorted(group.members.items(), key=lambda each: order_of(each[0], each[1].instance_id))
    subscribers: dict[bytes, int] = {}
    for _, member in order:
        for topic_id in member.topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    topics = {
        topic_id: Ranges(group.count(topic_id), count) for topic_id, count in subscribers.items()
    }
    assignments: dict[str, Assignment] = {}
    for member_id, member in order:
        runs = ((topic_id, topics[topic_id].take()) for topic_id in member.topic_ids)
        assignments[member_id] = {topic_id: run for topic_id, run in runs if run}
    return assignments


def order_of(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    """Java compares strings by their UTF-16 units."""
    name = member_id if instance_id is None else instance_id
    return instance_id is None, name.encode("utf-16-be", "surrogatepass")
