"""The assignor of share groups, `simple`: partitions may have several members, and members share.

Every partition has as many members as any other, every member as many partitions as any other, but
for one, and who has a partition keeps it as far as that allows. Where members subscribe to
different topics, that holds of each topic by itself.
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
    subscribers: dict[bytes, list[str]] = {}
    for member_id, member in members.items():
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    alike = all(len(each) == len(members) for each in subscribers.values())
    has: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    for topic_ids in [list(subscribers)] if alike else [[each] for each in subscribers]:
        wanted = [(topic_id, each) for topic_id in topic_ids for each in partitions[topic_id]]
        if len(wanted) == 1:  # everybody's, whoever has it
            for member_id in subscribers[topic_ids[0]]:
                has[member_id].update(wanted)
        elif wanted:
            before = {each: members[each].assigned for each in subscribers[topic_ids[0]]}
            for member_id, found in Shares(wanted, before, alike=alike).build().items():
                has[member_id] |= found
    return {member_id: by_topic(found) for member_id, found in has.items()}


class Shares:
    """Partitions that are shared out to members who all may have all of them."""

    def __init__(
        self, wanted: Sequence[Partition], before: Mapping[str, Assignment], *, alike: bool
    ) -> None:
        self.alike = alike
        self.readers: dict[Partition, dict[str, None]] = {partition: {} for partition in wanted}
        self.has: dict[str, dict[Partition, None]] = {member_id: {} for member_id in before}
        topic_ids = {topic_id for topic_id, _ in wanted}
        for member_id, assigned in before.items():
            # Only these topics: members may have thousands of others.
            both = assigned.keys() & topic_ids
            for topic_id in sorted(both):
                for each in sorted(assigned[topic_id]):
                    if (topic_id, each) in self.readers:
                        self.readers[topic_id, each][member_id] = None
                        self.has[member_id][topic_id, each] = None
        # How many members a partition shall have, and how many partitions each member.
        self.sharing = -(-len(before) // len(wanted))
        total, count = self.sharing * len(wanted), len(before)
        self.quotas = {
            member_id: -(-total * (number + 1) // count) - -(-total * number // count)
            for number, member_id in enumerate(before)
        }

    def build(self) -> dict[str, set[Partition]]:
        if not self.alike:
            self.take_from_overfilled()
        self.take_overshared()
        self.take_from_overfilled()
        self.hand_out()
        return {member_id: set(found) for member_id, found in self.has.items()}

    def take(self, member_id: str, partition: Partition) -> None:
        del self.has[member_id][partition]
        del self.readers[partition][member_id]

    def take_overshared(self) -> None:
        """From those that have too many first, so that the others keep what they have."""
        for partition, readers in self.readers.items():
            if len(readers) <= self.sharing:
                continue
            ordered = sorted(readers, key=lambda each: len(self.has[each]) <= self.quotas[each])
            for member_id in ordered[: len(readers) - self.sharing]:
                self.take(member_id, partition)

    def take_from_overfilled(self) -> None:
        for member_id, found in self.has.items():
            for partition in list(found)[: max(0, len(found) - self.quotas[member_id])]:
                self.take(member_id, partition)

    def hand_out(self) -> None:
        """Go round the members that have too few; who has a partition already is passed over.

        A partition that all of them have stays with fewer members than it might have.
        """
        unfilled = [each for each, found in self.has.items() if len(found) < self.quotas[each]]
        at = 0
        for partition, readers in self.readers.items():
            passed = 0
            while len(readers) < self.sharing and passed < len(unfilled):
                at %= len(unfilled)
                member_id = unfilled[at]
                if member_id in readers:
                    at += 1
                    passed += 1
                    continue
                passed = 0
                readers[member_id] = None
                self.has[member_id][partition] = None
                if len(self.has[member_id]) >= self.quotas[member_id]:
                    del unfilled[at]
                else:
                    at += 1


def by_topic(partitions: set[Partition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, each in sorted(partitions):
        found.setdefault(topic_id, set()).add(each)
    return {topic_id: frozenset(each) for topic_id, each in found.items()}
