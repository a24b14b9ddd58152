"""CoordinatorTimer beside a plain model: a dictionary that is searched at every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import floor
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator import timer
from ottla.coordinator.effects import TimerKey
from ottla.coordinator.timer import DUE_PER_TURN, CoordinatorTimer
from ottla.seams.clock import ManualClock, ManualTimer

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 500)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 300)),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, timer.STALE_ENTRIES_MAX]))
@settings(max_examples=300, deadline=None)
def test_fires_what_is_due_once_and_nothing_else(
    steps: list[tuple[str, str, int]], stale_max: int
) -> None:
    """A deadline fires once, at its time, unless it was cancelled or set again."""
    with patch.object(timer, "STALE_ENTRIES_MAX", stale_max):
        fires_what_is_due(steps)


def fires_what_is_due(steps: list[tuple[str, str, int]]) -> None:
    clock = ManualClock()
    fired: list[tuple[str, float]] = []
    deadlines = CoordinatorTimer(clock, lambda key: fired.append((str(key[0]), clock.monotonic())))
    model: dict[str, float] = {}
    for what, key, amount in steps:
        if what == "set":
            deadlines.set((key,), amount)
            model[key] = clock.monotonic() + amount / 1000
        elif what == "cancel":
            deadlines.cancel((key,))
            model.pop(key, None)
        else:
            fired.clear()
            clock.advance(amount)
            now = clock.monotonic()
            for name, at in fired:
                assert abs(at - model.pop(name)) < 1e-5, f"{name} fired at another time, or twice"
            late = [name for name, due in model.items() if due + 1e-5 < now]
            assert not late, f"{late} did not fire"
    assert len(deadlines) == len(model)


def test_cancelled_keys_leave_nothing_behind() -> None:
    """Members that come and go, each with a session of minutes, do not add up."""
    clock = ManualClock()
    fired: list[TimerKey] = []
    deadlines = CoordinatorTimer(clock, fired.append)
    deadlines.set(("stays",), 300_000)
    for number in range(5 * timer.STALE_ENTRIES_MAX):
        deadlines.set((number,), 300_000)
        deadlines.cancel((number,))
    assert len(deadlines._heap) <= timer.STALE_ENTRIES_MAX + 3
    assert len(deadlines._in_heap) <= timer.STALE_ENTRIES_MAX + 3
    clock.advance(300_000)
    assert fired == [("stays",)]


def test_setting_anew_costs_no_heap_entry() -> None:
    """A session that is prolonged a thousand times keeps one entry, and fires once."""
    clock = ManualClock()
    fired: list[TimerKey] = []
    deadlines = CoordinatorTimer(clock, fired.append)
    for _ in range(1000):
        deadlines.set(("member",), 10_000)
        clock.advance(100)
    assert len(deadlines._heap) == 1
    clock.advance(10_100)
    assert fired == [("member",)]
    deadlines.set(("member",), 100)
    deadlines.close()
    clock.advance(1000)
    assert fired == [("member",)]


class LoopClock(ManualClock):
    """Counts in whole milliseconds, as uvloop does: a timer runs up to 1 ms early, or is late."""

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        due_ms = floor(self.monotonic() * 1000 + 1e-6) + round(delay_s * 1000)
        return super().call_later(due_ms / 1000 - self.monotonic(), callback, *args)


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 200)), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_on_time_to_a_millisecond_and_never_early(steps: list[tuple[float, int]]) -> None:
    """On a loop that counts in milliseconds: at the deadline or less than 1 ms after it."""
    clock = LoopClock()
    late_ms: list[float] = []
    due: dict[TimerKey, float] = {}

    def fired(key: TimerKey) -> None:
        late_ms.append((clock.monotonic() - due.pop(key)) * 1000)

    deadlines = CoordinatorTimer(clock, fired)
    for number, (pause_ms, delay_ms) in enumerate(steps):
        clock.advance(pause_ms)
        due[number,] = clock.monotonic() + delay_ms / 1000
        deadlines.set((number,), delay_ms)
    clock.advance(300)
    assert not due
    assert all(-0.01 <= late <= 1.01 for late in late_ms), late_ms


class CountingClock(ManualClock):
    """Counts how often a timer was set."""

    armed = 0

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        self.armed += 1
        return super().call_later(delay_s, callback, *args)


def test_heartbeats_of_many_members_cost_few_wake_ups() -> None:
    """A thousand sessions that are renewed every 3 s wake the loop ten times a second at most."""
    clock = CountingClock()
    deadlines = CoordinatorTimer(clock, lambda key: None)
    for _ in range(10):
        for member in range(1000):
            deadlines.set((member,), 10_000)
            clock.advance(3)
    assert clock.armed <= 30 * 10 + 1
    deadlines.close()
    armed = clock.armed
    clock.advance(60_000)
    assert clock.armed == armed, "without deadlines there is nothing to wake up for"


def test_many_deadlines_at_once_are_spread_over_turns() -> None:
    """The sessions of a large group end together: each turn of the loop takes some of them."""
    clock = CountingClock()
    turns: list[int] = []
    fired = [0]

    def on_due(key: TimerKey) -> None:
        fired[0] += 1
        turns.append(clock.armed)

    deadlines = CoordinatorTimer(clock, on_due)
    for member in range(DUE_PER_TURN * 5):
        deadlines.set((member,), 1000)
    clock.advance(1000)
    assert fired == [DUE_PER_TURN * 5]
    assert max(Counter(turns).values()) == DUE_PER_TURN


def test_a_callback_that_fails_stops_no_other() -> None:
    """A fault in one group's timer does not take the sessions of the others away."""
    clock = ManualClock()
    fired: list[TimerKey] = []

    def on_due(key: TimerKey) -> None:
        if key == ("bad",):
            raise RuntimeError
        fired.append(key)

    deadlines = CoordinatorTimer(clock, on_due)
    deadlines.set(("bad",), 10)
    deadlines.set(("good",), 20)
    with pytest.raises(RuntimeError):
        clock.advance(10)
    clock.advance(10)
    assert fired == [("good",)]
