"""`uniform`: every member gets as many partitions as the others, give or take one, and keeps what
it has as far as that allows.

Where all members subscribe to the same topics: each keeps its partitions up to its quota, the rest
is handed to those below theirs. Members of different subscriptions: uniform_mixed.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.assignors.spec import AssignmentFailed, GroupSpec
from ottla.coordinator.assignors.uniform_mixed import MixedAssignment
from ottla.coordinator.consumer_group import Assignment

Partition = tuple[bytes, int]


def assign_uniformly(group: GroupSpec) -> Mapping[str, Assignment]:
    if not group.members:
        return {}
    if group.homogeneous:
        return assign_alike(group)
    return MixedAssignment(group).build()


def assign_alike(group: GroupSpec) -> Mapping[str, Assignment]:
    """All members subscribe to the topics of the first."""
    topic_ids = dict.fromkeys(next(iter(group.members.values())).topic_ids)
    if not topic_ids:
        return {}
    free, total = free_partitions(group, topic_ids)
    quota, extra = divmod(total, len(group.members))
    targets: dict[str, Assignment] = {}
    unfilled: list[tuple[str, int]] = []
    for number, (member_id, member) in enumerate(group.members.items()):
        left = quota + (extra > 0)
        may_have_extra = extra > 0
        kept: dict[bytes, frozenset[int]] = {}
        for topic_id, partitions in member.assigned.items():
            if topic_id not in topic_ids:
                continue
            if len(partitions) <= left:
                keep = partitions
            else:
                ordered = sorted(partitions)
                keep = frozenset(ordered[:left])
                free += [(topic_id, partition) for partition in ordered[left:]]
            left -= len(keep)
            if keep:
                kept[topic_id] = keep
        if left > 0 and may_have_extra and len(group.members) - number > extra:
            # Another member may have use for the extra partition; the last ones must take theirs.
            left -= 1
            may_have_extra = False
        if left > 0:
            unfilled.append((member_id, left))
        extra -= may_have_extra
        targets[member_id] = member.assigned if kept == member.assigned else kept
    hand_out(free, unfilled, targets)
    return targets


def free_partitions(
    group: GroupSpec, topic_ids: Mapping[bytes, object]
) -> tuple[list[Partition], int]:
    """The partitions that no member was assigned, topic by topic, and how many there are in all."""
    owned: dict[bytes, set[int]] = {topic_id: set() for topic_id in topic_ids}
    for member in group.members.values():
        for topic_id, partitions in member.assigned.items():
            if topic_id in owned:
                owned[topic_id] |= partitions
    counts = {topic_id: group.count(topic_id) for topic_id in topic_ids}
    free = [
        (topic_id, partition)
        for topic_id, count in counts.items()
        for partition in range(count)
        if partition not in owned[topic_id]
    ]
    return free, sum(counts.values())


def hand_out(
    free: list[Partition], unfilled: list[tuple[str, int]], targets: dict[str, Assignment]
) -> None:
    position = 0
    for member_id, left in unfilled:
        given = free[position : position + left]
        position += len(given)
        added: dict[bytes, set[int]] = {}
        for topic_id, partition in given:
            added.setdefault(topic_id, set()).add(partition)
        if added:
            target = dict(targets[member_id])
            for topic_id, partitions in added.items():
                target[topic_id] = target.get(topic_id, frozenset()) | partitions
            targets[member_id] = target
    if position < len(free):
        raise AssignmentFailed(f"{len(free) - position} partitions were left without a member")
