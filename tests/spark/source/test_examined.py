"""What a first query has parsed: what the query for bad records need not read again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.client.structs import TopicPartition
from ottla.spark.source import examined as module
from ottla.spark.source.examined import BLOCK_OFFSETS, Examined, Seen, joined, read_examined
from ottla.spark.source.planning import OffsetRange

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def seen(ranges: dict[TopicPartition, tuple[int, int]], *bad: tuple[TopicPartition, int]) -> Seen:
    """What a plan that parses all of it reports."""
    offsets = [offset for start, end in ranges.values() for offset in range(start, end)]
    blocks = {f"{p.topic}:{p.partition}:{offset // BLOCK_OFFSETS}" for p, offset in bad}
    return Seen(len(offsets), sum(offsets), sorted(blocks))


def covered(ranges: list[OffsetRange]) -> set[tuple[TopicPartition, int]]:
    return {(each.partition, n) for each in ranges for n in range(each.start, each.end)}


def test_blocks_with_bad_records_are_read_and_nothing_else() -> None:
    """Only a block around a bad record, within its micro-batch; what no report covers is read."""
    found = Examined()
    found.add({P0: 100, P1: 0}, {P0: 1000, P1: 10}, seen({P0: (100, 1000), P1: (0, 10)}, (P0, 120)))
    assert found.to_read(OffsetRange(P0, 100, 1000)) == [OffsetRange(P0, 100, 128)]
    assert found.to_read(OffsetRange(P1, 0, 10)) == []
    assert found.to_read(OffsetRange(P0, 90, 1100)) == [
        OffsetRange(P0, 90, 128),
        OffsetRange(P0, 1000, 1100),
    ]
    other = OffsetRange(TopicPartition("t", 2), 0, 5)
    assert found.to_read(other) == [other]


@pytest.mark.parametrize(
    "report",
    [
        None,
        Seen(9, 36, []),  # the plan stopped before the last record
        Seen(11, 45, []),  # a record was counted twice
        Seen(10, 44, []),  # one twice and another not at all
        Seen(10, None, []),  # the sum had no place in a long
        Seen(10, 45, None),  # too many bad records to report
        Seen(10, 45, ["other:0:0"]),
        Seen(10, 45, ["t:0:7"]),
    ],
)
def test_a_report_that_does_not_add_up_clears_nothing(report: Seen | None) -> None:
    """The whole range of the micro-batch is read."""
    found = Examined()
    found.add({P0: 0}, {P0: 10}, report)
    assert found.to_read(OffsetRange(P0, 0, 10)) == [OffsetRange(P0, 0, 10)]


def test_what_a_lost_report_had_is_read() -> None:
    """A gap between two reports is read, and so is a partition whose start is not known."""
    found = Examined()
    found.add({P0: 0}, {P0: 10}, seen({P0: (0, 10)}))
    found.add({P0: 20}, {P0: 30, P1: 5}, seen({P0: (20, 30), P1: (0, 5)}))
    assert found.to_read(OffsetRange(P0, 0, 30)) == [OffsetRange(P0, 10, 30)]
    assert found.to_read(OffsetRange(P1, 0, 5)) == [OffsetRange(P1, 0, 5)]


def test_a_topic_made_anew_is_read() -> None:
    """Offsets that went back: what was reported of the old ones counts no more."""
    found = Examined()
    found.add({P0: 0}, {P0: 100}, seen({P0: (0, 100)}))
    found.add({P0: 100}, {P0: 20}, Seen(0, 0, []))
    assert found.to_read(OffsetRange(P0, 0, 60)) == [OffsetRange(P0, 0, 60)]
    found.add({P0: 20}, {P0: 50}, seen({P0: (20, 50)}))
    assert not covered(found.to_read(OffsetRange(P0, 20, 50)))
    assert covered(found.to_read(OffsetRange(P0, 0, 60))) >= {(P0, n) for n in range(20)}


def test_too_many_suspects_are_forgotten_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit everything up to there is read; what comes after is cleared as ever."""
    monkeypatch.setattr(module, "SUSPECTS_MAX", 3)
    found = Examined()
    for start in range(0, 5 * BLOCK_OFFSETS, BLOCK_OFFSETS):
        whole = {P0: (start, start + BLOCK_OFFSETS)}
        found.add({P0: start}, {P0: start + BLOCK_OFFSETS}, seen(whole, (P0, start)))
    end = 5 * BLOCK_OFFSETS
    assert len(found.suspects) <= 3
    assert found.to_read(OffsetRange(P0, 0, end)) == [OffsetRange(P0, 0, end)]
    found.add({P0: end}, {P0: end + 9}, seen({P0: (end, end + 9)}))
    assert found.to_read(OffsetRange(P0, end, end + 9)) == []


def test_the_second_query_stays_behind_the_first() -> None:
    """It goes as far as the first has reported, never back, and as a topic made anew does; a new
    partition waits too. Where nothing makes it wait it takes all there is."""
    found = Examined(waits=True)
    assert found.admitted({P0: 5}, {P0: 100, P1: 7}) == {P0: 5}
    found.add({P0: 5}, {P0: 50}, None)
    assert found.admitted({P0: 5}, {P0: 100, P1: 7}) == {P0: 50}
    assert found.admitted({P0: 60}, {P0: 100}) == {P0: 60}
    assert found.admitted({P0: 60}, {P0: 3}) == {P0: 3}
    assert found.admitted({P0: 60}, {}) == {}
    assert Examined().admitted({P0: 5}, {P0: 100, P1: 7}) == {P0: 100, P1: 7}


def test_the_file_gives_the_same_and_no_file_clears_nothing(tmp_path: Path) -> None:
    """Written and read; a missing or broken file means that everything is read."""
    found = Examined(waits=True)
    found.add({P0: 0}, {P0: 1000}, seen({P0: (0, 1000)}, (P0, 300)))
    found.write(tmp_path / "e.json")
    assert read_examined(tmp_path / "e.json") == found
    (tmp_path / "broken.json").write_text('{"begin": {}, "end"')
    for name in ("none.json", "broken.json"):
        assert read_examined(tmp_path / name) == Examined()


@pytest.mark.parametrize("seed", range(20))
def test_every_bad_record_is_read_whatever_is_reported(seed: int) -> None:
    """Micro-batches of random sizes, reports that are lost, wrong or whole, progress of the second
    query in between: a range from its last end on always covers every bad record in it."""
    rng = random.Random(seed)
    found = Examined(waits=True)
    bad = {(p, rng.randrange(20_000)) for p in (P0, P1) for _ in range(15)}
    first, second = {P0: 0, P1: 0}, {P0: 0, P1: 0}
    for _ in range(60):
        end = {p: first[p] + rng.choice((0, 1, 50, 900)) for p in first}
        here = {p: (first[p], end[p]) for p in first}
        inside = [(p, n) for p, n in bad if first[p] <= n < end[p]]
        report = seen(here, *inside)
        if rng.random() < 0.2:
            report = Seen(report.count - 1, report.offset_sum, [])
        if rng.random() < 0.8:
            found.add(first, end, report)
        first = end
        target = found.admitted(second, {p: end[p] + 100 for p in end})
        ranges = [OffsetRange(p, second[p], target[p]) for p in target]
        to_read = covered([each for given in ranges for each in found.to_read(given)])
        assert to_read >= {(p, n) for p, n in bad if second[p] <= n < target.get(p, 0)}
        assert to_read <= covered(ranges)
        if rng.random() < 0.5:
            second = {**second, **target}
            found.done(second)


def test_pairs_are_joined_in_order() -> None:
    """Overlaps and neighbours become one; empty pairs are left out."""
    assert joined([(5, 9), (1, 3), (3, 4), (8, 12), (20, 20), (7, 6)]) == [(1, 4), (5, 12)]
