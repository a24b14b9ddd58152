"""Which offsets a batch reads, in how many tasks."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.structs import TopicPartition
from ottla.spark.source.planning import OffsetRange, between, divided, limited, split, waiting

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))
PLACES = st.dictionaries(PARTITIONS, st.integers(0, 5_000), max_size=8)
A0, A1, A2, B0 = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))


@st.composite
def range_lists(draw: st.DrawFn) -> list[OffsetRange]:
    places = draw(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 999), st.integers(-5, 999))))
    return [OffsetRange(each, start, start + size) for each, (start, size) in places.items()]


def offsets_of(ranges: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    return sorted((each.partition, at) for each in ranges for at in range(each.start, each.end))


@given(range_lists(), st.none() | st.integers(1, 40), st.none() | st.integers(1, 400))
def test_every_offset_is_read_once(
    ranges: list[OffsetRange], partitions_min: int | None, records_max: int | None
) -> None:
    """However ranges are split, each of their offsets is in exactly one task."""
    tasks = split(ranges, partitions_min=partitions_min, records_max=records_max)
    assert offsets_of(tasks) == offsets_of(ranges)
    assert all(each.size > 0 for each in tasks)
    if records_max is not None:
        assert all(each.size <= records_max for each in tasks)


@given(range_lists(), st.integers(1, 40))
def test_about_as_many_tasks_as_wished_for(ranges: list[OffsetRange], wish: int) -> None:
    """`minPartitions` gives that many tasks but for rounding, one for each range: never fewer than
    ranges, and not more than half a task too few or too many for each range."""
    real = [each for each in ranges if each.size > 0]
    tasks = split(ranges, partitions_min=wish)
    assert len(tasks) >= len(real)
    if real and wish > len(real) and sum(each.size for each in real) >= wish:
        assert abs(len(tasks) - wish) <= max(len(real), 1)


def test_large_ranges_are_split_and_small_ones_are_not() -> None:
    """The tasks wished for go to the partitions that have the most."""
    tasks = split([OffsetRange(A0, 0, 10), OffsetRange(A1, 0, 9_000)], partitions_min=4)
    assert [each for each in tasks if each.partition == A0] == [OffsetRange(A0, 0, 10)]
    assert [each.size for each in tasks if each.partition == A1] == [3_000, 3_000, 3_000]


def test_a_half_is_rounded_up() -> None:
    """Spark's arithmetic: 1.5 tasks are 2."""
    tasks = split([OffsetRange(A0, 0, 100), OffsetRange(A1, 0, 100)], partitions_min=3)
    assert len(tasks) == 4


@given(st.integers(0, 500), st.integers(1, 50))
def test_pieces_differ_by_one_at_most(size: int, parts: int) -> None:
    """A range is cut into even pieces, none of them empty."""
    sizes = [each.size for each in divided(OffsetRange(A0, 7, 7 + size), parts)]
    assert sum(sizes) == size
    assert len(sizes) == min(parts, size)
    assert not sizes or max(sizes) - min(sizes) <= 1


def plain_limited(
    limit: int, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The simple model: exact fractions, one partition at a time."""
    found = {}
    for each, offset in end.items():
        sizes = [end[e] - start[e] for e in end if e in start and end[e] > start[e]]
        if each not in start or offset <= start[each]:
            found[each] = offset
            continue
        share = Fraction(limit * (offset - start[each]), sum(sizes))
        rows = 1 if 0 < share < 1 else int(share)
        found[each] = min(offset, start[each] + rows)
    return found


@given(st.integers(1, 10_000), PLACES, PLACES)
def test_a_limit_is_shared_out_in_proportion(
    limit: int, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> None:
    """`maxOffsetsPerTrigger` gives each partition its share of what waits, and at least one."""
    found = limited(limit, start, end)
    exact = plain_limited(limit, start, end)
    assert found.keys() == exact.keys()
    # Spark's arithmetic is in floats: where the share is whole, it may come out one lower.
    assert all(0 <= exact[each] - found[each] <= 1 for each in found)
    assert waiting(start, {each: found[each] for each in found if each in start}) <= limit + len(
        found
    )


def test_a_limit_moves_every_partition_that_has_something() -> None:
    """A partition with little waiting is not starved by one with much."""
    assert limited(10, {A0: 0, A1: 0}, {A0: 1, A1: 10_000}) == {A0: 1, A1: 9}


def test_a_new_partition_begins_at_its_first_record() -> None:
    """What the last batch did not know is read from the start."""
    assert between({A0: 5}, {A0: 7, A1: 3}, {A1: 0}) == (
        [OffsetRange(A0, 5, 7), OffsetRange(A1, 0, 3)],
        [],
    )


def test_what_may_be_lost_is_named() -> None:
    """Partitions gone, grown late or gone back are reported, and the rest is still planned."""
    ranges, losses = between({A0: 5, A1: 9}, {A1: 4, A2: 8, B0: 1}, {A2: 6})
    assert ranges == [OffsetRange(A1, 9, 4), OffsetRange(A2, 6, 8)]
    assert len(losses) == 4
    assert "b-0 are gone before" in losses[0]
    assert "a-2 is new and begins at offset 6" in losses[1]
    assert losses[2] == "partitions a-0 are gone"
    assert "a-1 went from offset 9 back to 4" in losses[3]
