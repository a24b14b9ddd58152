"""The rules that divide partitions, against what they promise and against kafka-python's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor as TheirRange
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as TheirRoundRobin

from ottla.client.assignors import (
    Assignment,
    Assignor,
    Member,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    assignors,
    check_assignment,
)
from ottla.client.sticky_assignors import CooperativeStickyAssignor, StickyPartitionAssignor
from ottla.client.structs import TopicPartition

TOPICS = ["a", "b", "c", "d"]
ALL = ["range", "roundrobin", "sticky", "cooperative-sticky"]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 8), min_size=1)
wishes = st.lists(
    st.lists(st.sampled_from(TOPICS), unique=True, min_size=1), min_size=1, max_size=6
)


def group(topics: Sequence[Sequence[str]], *, static: bool = False) -> dict[str, Member]:
    """Members m0, m1 … with these wishes."""
    return {
        f"m{n}": Member(f"m{n}", wanted, group_instance_id=f"i{9 - n}" if static else None)
        for n, wanted in enumerate(topics)
    }


def ranges(partitions: Mapping[str, int]) -> dict[str, range]:
    return {topic: range(count) for topic, count in partitions.items()}


def remembered(
    members: Mapping[str, Member], had: Assignment, generation: int
) -> dict[str, Member]:
    """The same members, who say what they had."""
    after = {}
    for member_id, member in members.items():
        memory = StickyPartitionAssignor()
        memory.on_assignment(had.get(member_id, []), generation)
        after[member_id] = member._replace(
            user_data=memory.user_data(member.topics, (), generation),
            owned=had.get(member_id, []),
            generation=generation,
        )
    return after


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions changed hands."""
    old = {each: owner for owner, got in before.items() for each in got}
    return sum(
        1 for owner, got in after.items() for each in got if each in old and old[each] != owner
    )


@given(partitions=counts, topics=wishes, name=st.sampled_from(ALL))
def test_every_wanted_partition_has_one_owner_who_wants_it(
    partitions: dict[str, int], topics: list[list[str]], name: str
) -> None:
    """Each partition of a wanted topic goes to exactly one member, and to one that wants it."""
    members = group(topics)
    (assignor,) = assignors(name)
    result = assignor.assign(ranges(partitions), members)
    check_assignment(assignor, result, members)
    assert set(result) == set(members)
    given_out = {each for got in result.values() for each in got}
    wanted = {topic for each in topics for topic in each}
    assert given_out == {
        TopicPartition(topic, n) for topic in wanted for n in range(partitions.get(topic, 0))
    }
    for member_id, got in result.items():
        assert {each.topic for each in got} <= set(members[member_id].topics)


@given(partitions=counts, topics=wishes, name=st.sampled_from(["sticky", "cooperative-sticky"]))
def test_sticky_is_even(partitions: dict[str, int], topics: list[list[str]], name: str) -> None:
    """No single move would make the division more even; with equal wishes nobody has two more."""
    members = group(topics)
    (assignor,) = assignors(name)
    result = assignor.assign(ranges(partitions), members)
    for owner, got in result.items():
        for each in got:
            for other, member in members.items():
                if each.topic in member.topics:
                    assert len(result[other]) + 1 >= len(result[owner]), (each, owner, other)


@given(
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 8), min_size=1),
    size=st.integers(1, 6),
    joins=st.integers(0, 2),
    leaves=st.integers(0, 2),
)
def test_sticky_moves_no_more_than_it_must(
    partitions: dict[str, int], size: int, joins: int, leaves: int
) -> None:
    """With equal wishes, a partition changes hands only where the even division demands it."""
    topics = list(partitions)
    assignor = StickyPartitionAssignor()
    members = group([topics] * size)
    before = assignor.assign(ranges(partitions), members)
    after_members = remembered(members, before, 1)
    for n in range(min(leaves, size - 1)):
        del after_members[f"m{n}"]
    for n in range(joins):
        after_members[f"new{n}"] = Member(f"new{n}", topics)
    after = assignor.assign(ranges(partitions), after_members)
    total = sum(partitions.values())
    most = -(-total // len(after_members))
    full = total - (most - 1) * len(after_members) if total else 0
    kept_at_best = 0
    sizes = sorted((len(before.get(m, ())) for m in after_members), reverse=True)
    for index, had in enumerate(sizes):
        kept_at_best += min(had, most if index < full else most - 1)
    kept = sum(
        len(set(before[member_id]) & set(after[member_id]))
        for member_id in after_members
        if member_id in before
    )
    assert kept == kept_at_best


@given(partitions=counts, topics=wishes)
def test_sticky_stays_when_nothing_changes(
    partitions: dict[str, int], topics: list[list[str]]
) -> None:
    """The same group divides the same way again."""
    members = group(topics)
    assignor = StickyPartitionAssignor()
    before = assignor.assign(ranges(partitions), members)
    after = assignor.assign(ranges(partitions), remembered(members, before, 3))
    assert moved(before, after) == 0


@given(
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 8), min_size=1),
    first=wishes,
    second=wishes,
)
def test_cooperative_never_gives_what_another_still_has(
    partitions: dict[str, int], first: list[list[str]], second: list[list[str]]
) -> None:
    """A partition that moves is left out of one division and given in a later one; with all kinds
    of changes at once, three more divisions end it."""
    assignor = CooperativeStickyAssignor()
    members = group(first)
    had = assignor.assign(ranges(partitions), members)
    changed = remembered(group(second), {m: g for m, g in had.items() if m in group(second)}, 1)
    once = assignor.assign(ranges(partitions), changed)
    owner = {each: m for m, member in changed.items() for each in member.owned}
    for member_id, got in once.items():
        for each in got:
            assert owner.get(each, member_id) == member_id
    wanted = {t for each in second for t in each}
    everything = {TopicPartition(t, n) for t in wanted for n in range(partitions.get(t, 0))}
    now = once
    for generation in range(2, 6):
        if {each for got in now.values() for each in got} == everything:
            break
        now = assignor.assign(ranges(partitions), remembered(changed, now, generation))
    assert {each for got in now.values() for each in got} == everything


def test_of_two_claims_the_newer_counts() -> None:
    """A member that was away claims what it had; who got it since keeps it (KIP-341)."""
    assignor = StickyPartitionAssignor()
    stale = remembered(group([["a"], ["a"]]), {"m0": [TopicPartition("a", 0)]}, 1)["m0"]
    newer = remembered(group([["a"], ["a"]]), {"m1": [TopicPartition("a", 0)]}, 2)["m1"]
    result = assignor.assign({"a": range(2)}, {"m0": stale, "m1": newer})
    assert result == {"m0": [TopicPartition("a", 1)], "m1": [TopicPartition("a", 0)]}


class TheirCluster:
    """What kafka-python's rules ask of the cluster."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.partitions[topic])) if topic in self.partitions else None


class TheirMember:
    def __init__(self, member: Member, metadata: Any) -> None:
        self.member_id = member.member_id
        self.group_instance_id = member.group_instance_id
        self.metadata = metadata


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(RangePartitionAssignor(), TheirRange), (RoundRobinPartitionAssignor(), TheirRoundRobin)],
)
@given(partitions=counts, topics=wishes, static=st.booleans())
def test_as_kafka_python_divides(
    ours: Assignor, theirs: Any, partitions: dict[str, int], topics: list[list[str]], static: bool
) -> None:
    """range and roundrobin come to the same result as kafka-python's, whoever leads the group."""
    partitions = {topic: partitions.get(topic, 1) for topic in TOPICS}
    if theirs is TheirRoundRobin:  # theirs fails when wishes differ
        topics = [topics[0]] * len(topics)
    members = group(topics, static=static)
    found = theirs.assign(
        TheirCluster(partitions),
        [TheirMember(m, theirs.metadata(m.topics)) for m in members.values()],
    )
    expected = {
        member_id: sorted(TopicPartition(t, n) for t, numbers in each.assignment for n in numbers)
        for member_id, each in found.items()
    }
    result = ours.assign(ranges(partitions), members)
    assert {member_id: sorted(got) for member_id, got in result.items()} == expected


def test_the_option() -> None:
    """Names, Java's class names, classes and objects are taken; nonsense is refused."""

    class Mine(Assignor):
        name = "mine"

    assert [each.name for each in assignors("range, sticky")] == ["range", "sticky"]
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    assert assignors(java)[0].cooperative
    assert [each.name for each in assignors([Mine, RangePartitionAssignor()])] == ["mine", "range"]
    for wrong in ("rnge", [], [object()], ["range", "range"]):
        with pytest.raises(ValueError, match="list of"):
            assignors(wrong)
