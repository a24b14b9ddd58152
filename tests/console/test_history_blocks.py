"""Packed blocks of the history: what they keep, and how much a year takes."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable

import pytest

from ottla.console.history.codec import BlockError, Values, pack, unpack
from ottla.console.history.folding import fold
from ottla.console.history.rolling import whole
from ottla.console.history.tiers import DAY_MS, FINEST, TIERS

NAN = math.nan


def values(*given: float) -> Values:
    column = array("f", given)
    return Values(column, column, column)


@pytest.mark.parametrize("bits", [5, 6, 8])
def test_small_whole_numbers_stay_exact(bits: int) -> None:
    """0, 1, 2 … up to 2^bits are what they were, and gaps are gaps."""
    given = [NAN, *range(1 << bits), NAN, 0.0, 3.0, NAN]
    found = unpack(pack(values(*given), bits, spread=False)).means
    assert [None if math.isnan(each) else each for each in found] == [
        None if math.isnan(each) else each for each in given
    ]


@pytest.mark.parametrize(("bits", "share"), [(8, 1 / 500), (6, 1 / 125), (5, 1 / 62)])
def test_great_values_keep_their_digits(bits: int, share: float) -> None:
    """From bytes to petabytes, each within its tier's share of what it was."""
    given = [3.7**each for each in range(10, 28)]
    found = unpack(pack(values(*given), bits, spread=False)).means
    assert all(abs(each - was) <= was * share for each, was in zip(found, given, strict=True))


def test_a_peak_is_never_made_smaller() -> None:
    """Minimum and maximum are rounded outwards; those of a flat interval are its value."""
    chance = random.Random(7)
    means = array("f", [chance.uniform(10, 1000) for _ in range(500)])
    low = array("f", [each * chance.uniform(0, 1) for each in means])
    high = array("f", [each * chance.uniform(1, 50) for each in means])
    found = unpack(pack(Values(means, low, high), 6, spread=True))
    for mean, least, most, was_least, was_most in zip(*found, low, high, strict=True):
        assert least <= was_least * 1.01 + 0.5
        assert was_most * 0.99 <= most <= was_most * 1.1
        assert least <= mean <= most
    flat = unpack(pack(values(*[1234.5] * 50), 6, spread=True))
    assert set(flat.means) == set(flat.minimums) == set(flat.maximums)


def test_a_damaged_block_is_refused() -> None:
    """Whatever byte of it is another or missing: an error, or values; never another exception."""
    block = pack(values(*range(100), 1e9, 3, 1e30), 6, spread=True)
    for at in range(len(block)):
        for wrong in (block[:at], block[:at] + bytes([block[at] ^ 0x55]) + block[at + 1 :]):
            try:
                unpack(wrong)
            except BlockError:
                pass


def test_intervals_are_put_together() -> None:
    """The mean of means, the least of the least; an interval without values is a gap."""
    found = fold(values(1, 2, NAN, NAN, NAN, NAN, 5, NAN, 7), 3)
    assert [list(each) for each in (found.means[:1], found.minimums[:1], found.maximums[:1])] == [
        [1.5], [1.0], [2.0],
    ]  # fmt: skip
    assert math.isnan(found.means[1])
    assert (found.means[2], found.minimums[2], found.maximums[2]) == (6.0, 5.0, 7.0)
    again = fold(Values(found.means, found.minimums, found.maximums), 3)
    assert (again.minimums[0], again.maximums[0]) == (1.0, 7.0)


# A year of 1,000 topics and 200 groups

WEEK = 7 * DAY_MS // FINEST.step_ms
Draw = Callable[[random.Random], list[float]]


def busy(chance: random.Random) -> list[float]:
    """A rate with days and nights, and 10 % of noise from one sample to the next."""
    base = chance.uniform(1, 5000)
    day = DAY_MS / FINEST.step_ms
    return [
        max(0.0, base * (1 + 0.6 * math.sin(each * math.tau / day)) * chance.gauss(1, 0.1))
        for each in range(WEEK)
    ]


def lagging(chance: random.Random) -> list[float]:
    """A lag that is another at each look, often none."""
    return [float(max(0, int(chance.gauss(20, 30)))) for _ in range(WEEK)]


def growing(chance: random.Random) -> list[float]:
    """A size that grows, and falls when segments are deleted."""
    step = chance.uniform(100, 100_000)
    return [1e9 + each % 3000 * step for each in range(WEEK)]


def steady(chance: random.Random) -> list[float]:
    return [3.0] * WEEK


def year_bytes(draw: Draw) -> float:
    """What one series takes after a year, in all tiers."""
    raw = array("f", draw(random.Random(5)))
    drawn = Values(raw, raw, raw)
    total = 0.0
    for tier in TIERS:
        if tier is not FINEST:
            drawn = fold(drawn, tier.step_ms // TIERS[tier.number - 1].step_ms)
        blocks = 7 * DAY_MS // tier.block_ms
        sizes, parts = [], []
        for each in range(blocks):
            part = Values(*(c[each * tier.slots : (each + 1) * tier.slots] for c in drawn))
            block = pack(part, tier.bits, tier.spread)
            sizes.append(len(block))
            parts.append((each * tier.block_ms, unpack(block)))
        # A block more than it is kept, and one that is being made.
        total += sum(sizes) / blocks * (tier.kept_ms / tier.block_ms + 2)
        drawn = whole(tier, parts, 0, 7 * DAY_MS)
    return total


def test_a_year_of_a_thousand_topics_takes_less_than_500_mb() -> None:
    """1,000 topics, all busy by day and night, 200 groups of five topics each, half of which never
    get to the end: records, bytes in and out and size of topics, lag in records and time."""
    of = {draw: year_bytes(draw) for draw in (busy, lagging, growing, steady)}
    topics = 1000 * (3 * of[busy] + of[growing])
    pairs = 200 + 200 * 5  # the group as a whole, and each of its topics
    groups = pairs * 2 * (of[lagging] + of[steady]) / 2 + 200 * of[steady]
    brokers = 10 * 11 * of[busy]
    total = topics + groups + brokers
    assert total * 1.05 < 500e6, {draw.__name__: round(size) for draw, size in of.items()}
