"""`uniform` where members subscribe to different topics.

Each member keeps what it has of the topics it still subscribes to. What is free goes, topic by
topic, to the subscriber with the fewest partitions; then partitions move from the subscriber with
the most to the one with the fewest while that helps, for a bounded number of rounds. Topics with
the fewest choices come first: many partitions for each subscriber, then few subscribers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.assignors.spec import GroupSpec
from ottla.coordinator.consumer_group import Assignment

ROUNDS_MAX = 16
NOBODY = -1


class MixedAssignment:
    """One computation. Members are numbered in the order of the group."""

    def __init__(self, group: GroupSpec) -> None:
        self.group = group
        self.member_ids = list(group.members)
        self.sizes = [0] * len(self.member_ids)
        self.targets: list[dict[bytes, set[int]]] = []
        self.subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic_id in member.topic_ids:
                group.count(topic_id)
                self.subscribers.setdefault(topic_id, []).append(number)
        # By topic and partition: the number of the member that it is assigned to.
        self.owners = {topic_id: [NOBODY] * group.count(topic_id) for topic_id in self.subscribers}

    def build(self) -> Mapping[str, Assignment]:
        if not self.subscribers:
            return {}
        self.keep()
        self.assign_free()
        self.balance()
        return {
            member_id: {topic_id: frozenset(each) for topic_id, each in target.items()}
            for member_id, target in zip(self.member_ids, self.targets, strict=True)
        }

    def keep(self) -> None:
        """What each member has of the topics that it still subscribes to."""
        for number, member in enumerate(self.group.members.values()):
            topic_ids = frozenset(member.topic_ids)
            target: dict[bytes, set[int]] = {}
            for topic_id, partitions in member.assigned.items():
                if topic_id in topic_ids:
                    target[topic_id] = set(partitions)
                    self.sizes[number] += len(partitions)
                    for partition in partitions:
                        self.owners[topic_id][partition] = number
            self.targets.append(target)

    def in_order(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        def order(topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
            count = len(self.subscribers[topic_id])
            return -len(self.owners[topic_id]) / count, count, java_order(topic_id)

        return sorted(topic_ids, key=order)

    def assign_free(self) -> None:
        free = {
            topic_id: [each for each, owner in enumerate(owners) if owner == NOBODY]
            for topic_id, owners in self.owners.items()
        }
        for topic_id in self.in_order(topic_id for topic_id, found in free.items() if found):
            loads = Loads(self.subscribers[topic_id], self.sizes)
            for partition in free[topic_id]:
                self.assign(topic_id, partition, loads.least())

    def balance(self) -> None:
        order = self.in_order(
            topic_id for topic_id, members in self.subscribers.items() if len(members) > 1
        )
        last_moved = -1
        for _ in range(ROUNDS_MAX):
            for number, topic_id in enumerate(order):
                if number == last_moved:
                    return  # all topics have been gone through since, and nothing moved
                if self.balance_topic(topic_id) or last_moved < 0:
                    last_moved = number

    def balance_topic(self, topic_id: bytes) -> int:
        """Move partitions of one topic between its subscribers; how many."""
        loads = Loads(self.subscribers[topic_id], self.sizes)
        if loads.imbalance <= 1:
            return 0
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            held.setdefault(owner, []).append(partition)
        moved = 0
        while not loads.balanced:
            giver = loads.most()
            while giver != NOBODY and not held.get(giver):
                loads.exclude_most()
                giver = loads.most()
            if giver == NOBODY:
                break
            partition = held[giver].pop()
            taker = loads.least()
            if loads.balanced:
                break
            self.assign(topic_id, partition, taker)
            moved += 1
        return moved

    def assign(self, topic_id: bytes, partition: int, number: int) -> None:
        owners = self.owners[topic_id]
        old = owners[partition]
        if old != NOBODY:
            self.sizes[old] -= 1
            held = self.targets[old][topic_id]
            held.discard(partition)
            if not held:
                del self.targets[old][topic_id]
        owners[partition] = number
        self.sizes[number] += 1
        self.targets[number].setdefault(topic_id, set()).add(partition)


class Loads:
    """The subscribers of a topic by how many partitions they have, of all topics.

    From the one end those with the fewest are picked in turn, from the other those with the most.
    Either range grows by the members whose number it has reached, so no step sorts again.
    """

    def __init__(self, members: Iterable[int], sizes: list[int]) -> None:
        self.sizes = sizes
        self.order = sorted(members, key=lambda number: (sizes[number], number))
        fewest, most = sizes[self.order[0]], sizes[self.order[-1]]
        self.imbalance = most - fewest
        self.least_level, self.least_end, self.next_least = fewest - 1, 0, 0
        self.most_level = most + 1
        self.most_start = self.most_end = len(self.order)
        self.next_most = len(self.order) - 1

    @property
    def balanced(self) -> bool:
        return self.most_level - self.least_level <= 1

    def least(self) -> int:
        if self.next_least >= self.least_end:
            self.least_level += 1
            while (
                self.least_end < len(self.order)
                and self.sizes[self.order[self.least_end]] == self.least_level
            ):
                self.least_end += 1
            self.next_least = 0
        self.next_least += 1
        return self.order[self.next_least - 1]

    def most(self) -> int:
        if self.next_most < self.most_start:
            if self.most_end <= self.most_start and self.most_start > 0:
                self.most_level = self.sizes[self.order[self.most_start - 1]]
            else:
                self.most_level -= 1
            while (
                self.most_start > 0
                and self.sizes[self.order[self.most_start - 1]] == self.most_level
            ):
                self.most_start -= 1
            self.next_most = self.most_end - 1
        if self.next_most < 0:
            return NOBODY
        self.next_most -= 1
        return self.order[self.next_most + 1]

    def exclude_most(self) -> None:
        """The member that was picked last has nothing to give: it is picked no more."""
        order, picked, last = self.order, self.next_most + 1, self.most_end - 1
        order[picked], order[last] = order[last], order[picked]
        self.most_end -= 1


def java_order(topic_id: bytes) -> tuple[int, int]:
    """Kafka compares ids as two signed numbers."""
    high = int.from_bytes(topic_id[:8], "big", signed=True)
    return high, int.from_bytes(topic_id[8:], "big", signed=True)
