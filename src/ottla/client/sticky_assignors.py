"""The sticky rules: as even as can be, and as little moved as can be (KIP-54, KIP-429).

When all members want the same topics there is one even division, and everybody keeps as much of
what they had as it allows. When they want different ones, partitions are first given to those who
had them or to the least loaded who may have them, and then moved, one at a time, as long as a move
makes the division more even; each move lowers the sum of squares of the loads, so that ends.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import Out
from ottla.wire.schema import Int32, String, Struct, reader, since, writer

from .assignors import Assignment, Assignor, Member, by_topic, in_order
from .structs import TopicPartition


class TopicAssignment(Struct):
    topic: String = ""
    partitions: list[Int32] = []  # noqa: RUF012


class StickyAssignorUserData(Struct, versions=(0, 1)):
    """What a member of the sticky rule had before, in the bytes of its subscription."""

    previous_assignment: list[TopicAssignment] = []  # noqa: RUF012
    generation: Int32 = since(1, default=-1)


class StickyPartitionAssignor(Assignor):
    """Even and sticky; everything is given up before a rebalance, and most comes back."""

    name = "sticky"

    def __init__(self) -> None:
        self.previous: Sequence[TopicPartition] = ()
        self.generation = -1

    def on_assignment(self, assigned: Sequence[TopicPartition], generation: int) -> None:
        self.previous = tuple(assigned)
        self.generation = generation

    def user_data(
        self, topics: Iterable[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        if not self.previous:
            return None
        kept = [each for each in self.previous if each.topic in set(topics)]
        message = StickyAssignorUserData(
            previous_assignment=[
                TopicAssignment(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(kept).items()
            ],
            generation=self.generation,
        )
        return bytes(writer(StickyAssignorUserData, 1)(message, Out()))

    def claims(self, member: Member) -> tuple[Sequence[TopicPartition], int]:
        """What a member says it had, and in which generation."""
        for version in (1, 0):
            try:
                data, end = reader(StickyAssignorUserData, version)(member.user_data or b"", 0)
            except (MalformedMessage, struct.error, IndexError):
                continue
            if end == len(member.user_data or b""):
                had = [
                    TopicPartition(each.topic, number)
                    for each in data.previous_assignment
                    for number in each.partitions
                ]
                return had, data.generation
        return (), -1

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
    ) -> Assignment:
        return divide(partitions, members, self.kept(partitions, members))

    def kept(
        self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
    ) -> Assignment:
        """What each member had and may have again; of two claims the newer generation counts."""
        best: dict[TopicPartition, tuple[int, str | None]] = {}
        existing = {TopicPartition(t, n) for t, numbers in partitions.items() for n in numbers}
        for member in in_order(members.values()):
            had, generation = self.claims(member)
            wanted = set(member.topics)
            for each in had:
                if each not in existing or each.topic not in wanted:
                    continue
                known = best.get(each)
                if known is None or generation > known[0]:
                    best[each] = generation, member.member_id
                elif generation == known[0] and known[1] != member.member_id:
                    best[each] = generation, None  # both claim it: neither can be right
        result: Assignment = {member_id: [] for member_id in members}
        for each in sorted(best):
            owner = best[each][1]
            if owner is not None:
                result[owner].append(each)
        return result


class CooperativeStickyAssignor(StickyPartitionAssignor):
    """Even and sticky, and no member stops: what moves is revoked in one rebalance and given to its
    new owner in the next, the rest goes on all the while."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(
        self, topics: Iterable[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return struct.pack(">i", generation)

    def claims(self, member: Member) -> tuple[Sequence[TopicPartition], int]:
        generation = member.generation
        if generation < 0 and member.user_data is not None and len(member.user_data) == 4:
            (generation,) = struct.unpack(">i", member.user_data)
        return member.owned, generation

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
    ) -> Assignment:
        result = super().assign(partitions, members)
        owners: dict[TopicPartition, set[str]] = {}
        for member in members.values():
            for each in member.owned:
                owners.setdefault(each, set()).add(member.member_id)
        return {
            member_id: [each for each in got if not owners.get(each, set()) - {member_id}]
            for member_id, got in result.items()
        }


def divide(
    partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member], kept: Assignment
) -> Assignment:
    """Give out all partitions, starting from what is kept."""
    wanted = {topic for member in members.values() for topic in member.topics}
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(wanted & set(partitions))
        for number in sorted(partitions[topic])
    ]
    alike = len({frozenset(set(each.topics) & set(partitions)) for each in members.values()}) == 1
    return (divide_alike if alike else divide_freely)(everything, members, kept)


def divide_alike(
    everything: Sequence[TopicPartition], members: Mapping[str, Member], kept: Assignment
) -> Assignment:
    """All want the same topics: everybody gets the same number, some one more."""
    each_gets, more = divmod(len(everything), len(members))
    order = [member.member_id for member in in_order(members.values())]
    # Who has most keeps the places with one more: so the least has to move.
    by_load = sorted(order, key=lambda member_id: -len(kept[member_id]))
    quota = {m: each_gets + (index < more) for index, m in enumerate(by_load)}
    result = {member_id: kept[member_id][: quota[member_id]] for member_id in order}
    given = {each for got in result.values() for each in got}
    free = iter([each for each in everything if each not in given])
    # Deal the rest out one by one, so that the topics mix.
    hungry = [member_id for member_id in order if len(result[member_id]) < quota[member_id]]
    while hungry:
        for member_id in list(hungry):
            result[member_id].append(next(free))
            if len(result[member_id]) == quota[member_id]:
                hungry.remove(member_id)
    return result


def divide_freely(
    everything: Sequence[TopicPartition], members: Mapping[str, Member], kept: Assignment
) -> Assignment:
    """Members want different topics."""
    order = [member.member_id for member in in_order(members.values())]
    wanting: dict[str, list[str]] = {}
    for member_id in order:
        for topic in set(members[member_id].topics):
            wanting.setdefault(topic, []).append(member_id)
    result = {member_id: list(kept[member_id]) for member_id in order}
    owner = {each: member_id for member_id, got in result.items() for each in got}
    load = {member_id: len(got) for member_id, got in result.items()}
    place = {member_id: index for index, member_id in enumerate(order)}
    free = [each for each in everything if each not in owner]
    for each in sorted(free, key=lambda p: (len(wanting[p.topic]), p)):
        target = min(wanting[each.topic], key=lambda m: (load[m], place[m]))
        owner[each] = target
        load[target] += 1
    moved = True
    while moved:
        moved = False
        for each in sorted(everything, key=lambda p: -load[owner[p]]):
            target = min(wanting[each.topic], key=lambda m: (load[m], place[m]))
            if load[target] + 1 < load[owner[each]]:
                load[owner[each]] -= 1
                load[target] += 1
                owner[each] = target
                moved = True
    final: Assignment = {member_id: [] for member_id in order}
    for each in everything:
        final[owner[each]].append(each)
    return final
