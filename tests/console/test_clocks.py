"""A clock that leaps back, or ahead and back again: nothing stands still, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.structs import TopicPartition
from ottla.console.access.login_limit import PAIR_MAX, WINDOW_MS, LoginLimit
from ottla.console.alerts.machine import Event, Phase, step
from ottla.console.alerts.retrying import is_due
from ottla.console.alerts.rules import Rule
from ottla.console.collecting.ends import EndHistory
from ottla.console.collecting.rates import Rates
from ottla.console.history.kept import KeptHistory
from ottla.console.history.tiers import DAY_MS, HOUR_MS, MINUTE_MS
from ottla.console.series import Measure, Sample, SeriesKey

KEY = SeriesKey("main", Measure.GROUP_LAG, "billing", "orders")
BEGIN_MS = 1_790_000_000_000 - 1_790_000_000_000 % (7 * DAY_MS)


class Kept:
    """A history, and the clock that it goes by."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = BEGIN_MS
        self.history = KeptHistory(directory, clock=lambda: self.now_ms, work_share=1.0)

    def fill(self, for_ms: int, value: float) -> None:
        end = self.now_ms + for_ms
        while self.now_ms < end:
            self.history.append([Sample(KEY, self.now_ms, value)])
            self.now_ms += 60_000
            if self.now_ms % (10 * MINUTE_MS) == 0:
                self.history.turn()

    def values(self, from_ms: int, to_ms: int, points_max: int = 10_000) -> set[float]:
        found = self.history.read(KEY, from_ms, to_ms, points_max).points
        return {round(each.mean) for each in found}

    def count(self, from_ms: int, to_ms: int) -> int:
        return len(self.history.read(KEY, from_ms, to_ms, 10_000).points)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_history_goes_on_when_the_clock_goes_back(kept: Kept) -> None:
    """By three hours, in hours that are packed already: what comes now is shown at once and after
    a restart, where nothing new came the old values stand, and coarser views have both."""
    kept.fill(30 * HOUR_MS, 1)
    kept.now_ms -= 3 * HOUR_MS
    back_ms = kept.now_ms
    kept.fill(10 * MINUTE_MS, 9)
    assert kept.values(back_ms, kept.now_ms) == {9}
    kept.fill(80 * MINUTE_MS, 9)
    assert kept.values(back_ms, kept.now_ms) == {9}
    assert kept.values(BEGIN_MS + HOUR_MS, back_ms) == {1}
    kept.now_ms = BEGIN_MS + 40 * HOUR_MS
    kept.fill(HOUR_MS, 1)
    assert kept.values(back_ms + 91 * MINUTE_MS, BEGIN_MS + 30 * HOUR_MS) == {1}
    assert 9 in kept.values(back_ms, back_ms + HOUR_MS, 10)
    assert kept.values(BEGIN_MS, BEGIN_MS + 20 * HOUR_MS, 100) == {1}
    kept.history.close()
    again = KeptHistory(kept.history.store.path.parent, clock=lambda: kept.now_ms)
    assert 9 in {round(e.mean) for e in again.read(KEY, back_ms, back_ms + HOUR_MS, 100).points}
    again.close()


def test_a_year_is_not_lost_to_a_clock_that_is_wrong_for_an_hour(kept: Kept) -> None:
    """Two years ahead, and back: nothing was deleted, and history goes on."""
    kept.fill(3 * DAY_MS, 1)
    right_ms = kept.now_ms
    kept.now_ms += 2 * 366 * DAY_MS
    kept.fill(2 * HOUR_MS, 5)
    kept.now_ms = right_ms
    kept.fill(3 * HOUR_MS, 2)
    assert kept.values(BEGIN_MS, BEGIN_MS + DAY_MS) == {1}
    assert kept.count(right_ms, kept.now_ms) == 180
    assert kept.values(right_ms, kept.now_ms) == {2}
    kept.history.close()


def test_old_history_is_deleted_all_the_same(kept: Kept) -> None:
    """After a day by the same clock."""
    kept.fill(DAY_MS, 1)
    kept.now_ms += 2 * 366 * DAY_MS
    kept.fill(2 * DAY_MS, 1)
    for tier in (0, 1):
        query = f"SELECT min(key) FROM blocks{tier}"
        [[key]] = kept.history.store._writing.execute(query).fetchall()
        assert (key >> 28) * HOUR_MS > BEGIN_MS + DAY_MS
    kept.history.close()


def test_rates_are_known_again_at_once() -> None:
    """The reading after the leap begins anew, the next one has a rate."""
    rates: Rates[str] = Rates()
    rates.read(3_600_000, {"a": 100})
    rates.read(3_610_000, {"a": 200})
    rates.read(10_000, {"a": 300})
    assert rates.now == {}
    rates.read(20_000, {"a": 400})
    assert rates.now == {"a": 10.0}


def test_lag_in_time_counts_from_what_was_seen() -> None:
    """Ends that were seen before the leap are as long ago as they were."""
    where = TopicPartition("a", 0)
    ends = EndHistory(1_000_000)
    ends.add(1_000_000, {where: 0})
    ends.add(1_010_000, {where: 100})
    ends.add(410_000, {where: 100})  # ten minutes back, and nothing came
    ends.add(420_000, {where: 200})
    assert ends.passed_ms(where, 50) == pytest.approx(405_000, abs=20)
    assert ends.passed_ms(where, 150) == pytest.approx(415_000, abs=20)


def test_nobody_is_kept_out_for_longer_than_the_window() -> None:
    """Attempts of the future count from now on."""
    limit = LoginLimit()
    for _ in range(PAIR_MAX):
        assert limit.begin("vera", "10.0.0.1", 9_000_000_000) == 0
    assert 0 < limit.begin("vera", "10.0.0.1", 1_000_000) <= WINDOW_MS
    assert limit.begin("vera", "10.0.0.1", 1_000_000 + WINDOW_MS) == 0


def test_alerts_fire_repeat_and_resolve() -> None:
    """Each within its own time after the leap."""
    rule = Rule("lag", Measure.GROUP_LAG, threshold=5, clear=5, for_s=60, clear_for_s=60,
                repeat_s=600)  # fmt: skip
    alert, event = step(rule, None, 9.0, 10_000_000, False)
    alert, event = step(rule, alert, 9.0, 1_000_000, False)
    alert, event = step(rule, alert, 9.0, 1_060_000, False)
    assert alert is not None
    assert (alert.phase, event) == (Phase.FIRING, Event.FIRED)
    alert, event = step(rule, alert, 9.0, 500_000, False)
    alert, event = step(rule, alert, 9.0, 1_100_000, False)
    assert event is Event.REPEATED
    alert, event = step(rule, alert, 1.0, 1_100_000, False)
    alert, event = step(rule, alert, 1.0, 900_000, False)
    alert, event = step(rule, alert, 1.0, 960_000, False)
    assert (alert, event) == (None, Event.RESOLVED)


def test_a_message_waits_for_no_longer_than_it_may() -> None:
    """One that was put off to a time that the clock no longer reaches is sent now."""
    assert is_due(1000, 1000)
    assert not is_due(11_000, 1000)
    assert is_due(9_000_000_000, 1000)
