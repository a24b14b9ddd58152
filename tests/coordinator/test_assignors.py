"""The broker's assignors on thousands of small groups: rules that are easy to say, and Apache's
answers for the same groups.

A group is drawn from a seed. What its members had before is what an assignor gave to a group a
little different from it, or something drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.coordinator.assignors import ASSIGNORS, GroupSpec, MemberSpec
from ottla.coordinator.assignors.simple import Subscriber, assign_simply
from ottla.coordinator.consumer_group import Assignment
from tests import needs
from tests.apache import java
from tests.work import counted_calls

GROUPS = needs.rounds(500, 5000)
MEMBERS, TOPICS, PARTITIONS_MAX = "abcdefghij", range(1, 6), 8
Partition = tuple[bytes, int]
Found = dict[str, set[Partition]]


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


def flat(assignment: Assignment) -> set[Partition]:
    return {(topic_id, each) for topic_id, found in assignment.items() for each in found}


def nested(partitions: set[Partition]) -> Assignment:
    topic_ids = sorted({topic_id for topic_id, _ in partitions})
    return {
        topic_id: frozenset(each for theirs, each in partitions if theirs == topic_id)
        for topic_id in topic_ids
    }


def drawn(chance: random.Random, *, alike: bool, overlapping: bool = False) -> GroupSpec:
    """A group; what its members have before does not overlap unless it may."""
    counts = {topic(n): chance.randint(1, PARTITIONS_MAX) for n in TOPICS if chance.random() < 0.7}
    counts = counts or {topic(1): chance.randint(1, PARTITIONS_MAX)}
    ids = chance.sample(MEMBERS, chance.randint(1, len(MEMBERS)))
    topic_ids = sorted(counts)
    has: Found = {member_id: set() for member_id in ids}
    keeping = chance.random()
    for topic_id, count in counts.items():
        for partition in range(count):
            for _ in range(chance.randint(1, 3) if overlapping else 1):
                if chance.random() < keeping:
                    # The first ones have more than their share.
                    owner = ids[min(chance.randrange(len(ids)), chance.randrange(len(ids)))]
                    has[owner].add((topic_id, partition))
    members = {}
    for member_id in sorted(ids):
        size = chance.randint(1, len(topic_ids))
        own = topic_ids if alike else sorted(chance.sample(topic_ids, size))
        instance = chance.choice("xyz") + member_id if chance.random() < 0.3 else None
        members[member_id] = MemberSpec(tuple(own), nested(has[member_id]), instance)
    homogeneous = len({member.topic_ids for member in members.values()}) == 1
    used = {topic_id for member in members.values() for topic_id in member.topic_ids}
    # Previous assignments may name topics that nobody subscribes to any more.
    return GroupSpec(members, {each: counts[each] for each in used}, homogeneous)


def groups(alike: bool | None = None, overlapping: bool = False) -> Iterator[GroupSpec]:
    for seed in range(GROUPS):
        chance = random.Random(seed)
        choice = chance.random() < 0.5 if alike is None else alike
        yield drawn(chance, alike=choice, overlapping=overlapping)


def assigned(name: str, group: GroupSpec) -> Found:
    found: Mapping[str, Assignment]
    if name == "simple":
        subscribers = {
            member_id: Subscriber(member.topic_ids, member.assigned)
            for member_id, member in group.members.items()
        }
        found = assign_simply(
            subscribers, {topic_id: range(count) for topic_id, count in counts_of(group).items()}
        )
    else:
        found = ASSIGNORS[name](group)
    return {member_id: flat(found.get(member_id, {})) for member_id in group.members}


def counts_of(group: GroupSpec) -> dict[bytes, int]:
    return {topic_id: group.partition_counts[topic_id] for topic_id in group.partition_counts}


def wanted(group: GroupSpec) -> set[Partition]:
    return {
        (topic_id, each) for topic_id, count in counts_of(group).items() for each in range(count)
    }


def check_covered(group: GroupSpec, found: Found) -> None:
    """Each partition has one member, which subscribes to its topic."""
    given = Counter(each for theirs in found.values() for each in theirs)
    assert given == Counter(wanted(group)), group
    for member_id, theirs in found.items():
        assert {topic_id for topic_id, _ in theirs} <= set(group.members[member_id].topic_ids)


def test_range_is_what_a_list_gives() -> None:
    """The twin: of each topic the sorted subscribers get a slice each, the first ones one more."""
    for group in groups():
        expected: Found = {member_id: set() for member_id in group.members}
        for topic_id, count in counts_of(group).items():
            readers = sorted(
                (member.instance_id is None, member.instance_id or member_id, member_id)
                for member_id, member in group.members.items()
                if topic_id in member.topic_ids
            )
            left = list(range(count))
            for place, (_, _, member_id) in enumerate(readers):
                size = count // len(readers) + (place < count % len(readers))
                expected[member_id] |= {(topic_id, each) for each in left[:size]}
                left = left[size:]
        found = assigned("range", group)
        assert found == expected
        check_covered(group, found)


def test_uniform_moves_no_more_than_it_must() -> None:
    """Where all subscribe alike: sizes differ by one at most, and as much stays as can.

    The twin's bound: everybody keeps what it has up to the smaller size, and as many members as get
    the larger one keep one more.
    """
    for group in groups(alike=True):
        found = assigned("uniform", group)
        check_covered(group, found)
        sizes = [len(each) for each in found.values()]
        assert max(sizes) - min(sizes) <= 1
        had = {
            member_id: flat(member.assigned) & wanted(group)
            for member_id, member in group.members.items()
        }
        quota, extra = divmod(len(wanted(group)), len(sizes))
        more = sum(len(each) > quota for each in had.values())
        can_stay = sum(min(len(each), quota) for each in had.values()) + min(extra, more)
        assert sum(len(found[each] & had[each]) for each in found) == can_stay


def test_uniform_leaves_no_better_move() -> None:
    """Where members subscribe to different topics: no partition has a subscriber that has two less
    than the member that has it."""
    for group in groups(alike=False):
        found = assigned("uniform", group)
        check_covered(group, found)
        for theirs in found.values():
            for topic_id, _ in theirs:
                for other, member in group.members.items():
                    if topic_id in member.topic_ids:
                        assert len(theirs) - len(found[other]) <= 1, (group, found)


def test_simple_shares_alike() -> None:
    """Of a share group: every partition that may be has a member, every member a partition; counts
    of both differ by one at most where all subscribe alike; nobody has what it may not."""
    for group in groups(overlapping=True):
        found = assigned("simple", group)
        given = Counter(each for theirs in found.values() for each in theirs)
        assert set(given) == wanted(group)
        for member_id, theirs in found.items():
            assert theirs
            assert {topic_id for topic_id, _ in theirs} <= set(group.members[member_id].topic_ids)
        if group.homogeneous:
            sharing = -(-len(found) // len(wanted(group)))
            assert max(given.values()) <= sharing
            most = -(-len(wanted(group)) * sharing // len(found))
            assert max(map(len, found.values())) <= most


@pytest.mark.parametrize("name", ["range", "uniform", "simple"])
def test_an_assignment_stays(name: str) -> None:
    """Assigned once more, with nothing changed, a group keeps what it has."""
    for group in groups(overlapping=name == "simple"):
        found = assigned(name, group)
        members = {
            member_id: member._replace(assigned=nested(found[member_id]))
            for member_id, member in group.members.items()
        }
        assert assigned(name, group._replace(members=members)) == found


def written(name: str, group: GroupSpec) -> str:
    """A line for Assignors.java."""
    counts = ",".join(f"{int.from_bytes(each)}:{n}" for each, n in counts_of(group).items())
    words = [name, "alike" if group.homogeneous else "mixed", counts]
    for member_id, member in group.members.items():
        topics = ",".join(str(int.from_bytes(each)) for each in member.topic_ids)
        had = text_of(flat(member.assigned))
        words.append(f"{member_id};{member.instance_id or ''};{topics};{had}")
    return " ".join(words)


def text_of(partitions: set[Partition]) -> str:
    return ",".join(sorted(f"{int.from_bytes(topic_id)}-{each}" for topic_id, each in partitions))


def read(answer: str, group: GroupSpec) -> Found:
    """A line of Assignors.java. Kafka's `simple` leaves partitions of topics that nobody subscribes
    to any more in a target, which no member is given then: these are left out."""
    found: Found = {}
    for word in answer.split(" "):
        member_id, _, partitions = word.partition(";")
        places = (each.split("-") for each in partitions.split(",") if each)
        found[member_id] = {(topic(int(number)), int(each)) for number, each in places}
        found[member_id] &= wanted(group)
    return found


def spread(found: Found) -> int:
    sizes = [len(theirs) for theirs in found.values()]
    return max(sizes) - min(sizes)


def kept(group: GroupSpec, found: Found) -> int:
    return sum(len(found[each] & flat(group.members[each].assigned)) for each in found)


@pytest.mark.apache
def test_as_apaches_assignors(tmp_path: Path) -> None:
    """The same groups, the same assignments.

    Kafka's `simple` goes through a hash map where all subscribe alike: there it is compared over
    all groups how much is assigned, how much members' counts differ, and how much stays.
    """
    needs.apache()
    names = ("range", "uniform", "simple")
    asked = [(name, group) for name in names for group in groups(overlapping=name == "simple")]
    questions = tmp_path / "groups"
    questions.write_text("\n".join(written(name, group) for name, group in asked))
    program = Path(__file__).with_name("Assignors.java")
    answers = java.run_program(program, str(questions)).splitlines()
    better: Counter[str] = Counter()  # than Kafka's, by so much over all groups
    for (name, group), answer in zip(asked, answers, strict=True):
        ours, theirs = assigned(name, group), read(answer, group)
        if name == "simple" and group.homogeneous:
            better["assigned"] += sum(map(len, ours.values())) - sum(map(len, theirs.values()))
            better["spread"] += spread(theirs) - spread(ours)
            better["stays"] += kept(group, ours) - kept(group, theirs)
        else:
            assert ours == theirs, written(name, group)
    assert min(better.values()) >= 0, better


def test_simple_costs_what_it_assigns() -> None:
    """Where members subscribe to different topics, each is looked at for these alone."""
    costs = []
    for count in (20, 80):
        topic_ids = [topic(number) for number in range(count)]
        members = {
            f"member {number}": Subscriber(tuple(topic_ids[number % 2 :]))
            for number in range(count)
        }
        partitions = {topic_id: range(2) for topic_id in topic_ids}
        found = assign_simply(members, partitions)
        again = {
            member_id: member._replace(assigned=found[member_id])
            for member_id, member in members.items()
        }
        with counted_calls() as calls:
            assert assign_simply(again, partitions) == found
        costs.append(calls.count / sum(len(flat(each)) for each in found.values()))
    assert costs[1] < costs[0] * 1.2
