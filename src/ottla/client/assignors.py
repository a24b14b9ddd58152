"""Who gets which partitions: the rules that a group's leader applies.

An assignor has a `name` (what members agree on), says whether its members give everything up
before a rebalance (`cooperative = False`) or keep what they may keep (True, KIP-429), may put bytes
of its own into a member's subscription, and divides: `assign(partitions, members)`. All members of
a group must come to the same result from the same input, so the rules here are those of Java's
clients, ties included: static members come first by instance id, then the others by member id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from .structs import TopicPartition

Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """What a member of the group asks for."""

    member_id: str
    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = -1
    group_instance_id: str | None = None
    rack: str | None = None


class Assignor:
    """The base of all; a rule of your own needs a `name` and `assign`."""

    name = ""
    cooperative = False

    def user_data(
        self, topics: Iterable[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """Bytes that the leader finds in this member's `user_data`."""
        return None

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
    ) -> Assignment:
        """Partitions for each member id. `partitions` has the topics that exist."""
        raise NotImplementedError

    def on_assignment(self, assigned: Sequence[TopicPartition], generation: int) -> None:
        """What this member got."""


class RangePartitionAssignor(Assignor):
    """Topic by topic, in runs of neighbours: the same numbers of all topics go to one member."""

    name = "range"

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
    ) -> Assignment:
        result: Assignment = {member_id: [] for member_id in members}
        for topic in sorted(partitions):
            wanting = [each for each in in_order(members.values()) if topic in each.topics]
            numbers = sorted(partitions[topic])
            if not wanting:
                continue
            each_gets, more = divmod(len(numbers), len(wanting))
            start = 0
            for index, member in enumerate(wanting):
                end = start + each_gets + (index < more)
                result[member.member_id] += [TopicPartition(topic, n) for n in numbers[start:end]]
                start = end
        return result


class RoundRobinPartitionAssignor(Assignor):
    """All partitions of all topics, dealt out like cards to those who want the topic."""

    name = "roundrobin"

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
    ) -> Assignment:
        result: Assignment = {member_id: [] for member_id in members}
        wanted = {topic for member in members.values() for topic in member.topics}
        turns = cycle(in_order(members.values()))
        for topic in sorted(wanted & set(partitions)):
            for number in sorted(partitions[topic]):
                member = next(each for each in turns if topic in each.topics)
                result[member.member_id].append(TopicPartition(topic, number))
        return result


def in_order(members: Iterable[Member]) -> list[Member]:
    """Static members by instance id, then the others by member id, as Java sorts them."""
    return sorted(
        members,
        key=lambda each: (
            each.group_instance_id is None,
            each.group_instance_id or "",
            each.member_id,
        ),
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions under their topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        found[topic].append(number)
    return dict(found)


def check_assignment(
    assignor: Assignor, result: Mapping[str, Sequence[TopicPartition]], members: Iterable[str]
) -> None:
    """A user's own rule may err: every partition once, to members that exist."""
    known = set(members)
    owner: dict[TopicPartition, str] = {}
    for member_id, partitions in result.items():
        if member_id not in known:
            raise ValueError(f"assignor {assignor.name!r} names a member {member_id!r} not there")
        for partition in partitions:
            if partition in owner:
                raise ValueError(
                    f"assignor {assignor.name!r} gives {partition} to {owner[partition]!r} and "
                    f"{member_id!r}"
                )
            owner[partition] = member_id


def known_assignors() -> dict[str, type[Assignor]]:
    """The rules that come with the client, by their names here and in Java's properties."""
    from .sticky_assignors import CooperativeStickyAssignor, StickyPartitionAssignor

    java = "org.apache.kafka.clients.consumer."
    return {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
        f"{java}RangeAssignor": RangePartitionAssignor,
        f"{java}RoundRobinAssignor": RoundRobinPartitionAssignor,
        f"{java}StickyAssignor": StickyPartitionAssignor,
        f"{java}CooperativeStickyAssignor": CooperativeStickyAssignor,
    }


DEFAULT_ASSIGNORS: tuple[object, ...] = (RangePartitionAssignor, RoundRobinPartitionAssignor)


def assignors(value: Any) -> list[Assignor]:
    """The option `partition_assignment_strategy`: names, classes or objects, the best first."""
    known = known_assignors()
    rule = (
        "a list of 'range', 'roundrobin', 'sticky', 'cooperative-sticky', "
        "or objects with a name and assign(partitions, members)"
    )
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    elif not isinstance(value, list | tuple):
        value = [value]
    found: list[Assignor] = []
    for each in value:
        if isinstance(each, str):
            if each not in known:
                raise ValueError(rule)
            each = known[each]
        made = each() if isinstance(each, type) else each
        if not getattr(made, "name", "") or not callable(getattr(made, "assign", None)):
            raise ValueError(rule)
        found.append(made)
    if not found:
        raise ValueError(rule)
    if len({each.name for each in found}) < len(found):
        raise ValueError(f"{rule}, each once")
    return found


def is_cooperative(chosen: Sequence[Assignor]) -> bool:
    """Whether partitions are kept through a rebalance: only if all the rules can do that."""
    return all(getattr(each, "cooperative", False) for each in chosen)
