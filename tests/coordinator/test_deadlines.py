"""Deadlines against a dumb twin: a dictionary that is looked through at every moment."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.deadlines import TICK_S, Deadlines
from ottla.coordinator.effects import TimerKey
from ottla.seams.clock import ManualClock

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 500)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 300)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_fires_what_is_due_once_and_nothing_else(steps: list[tuple[str, str, int]]) -> None:
    """A deadline fires once, not early, at most a tick late, unless cancelled or set anew."""
    clock = ManualClock()
    fired: list[tuple[str, float]] = []
    deadlines = Deadlines(clock, lambda key: fired.append((str(key[0]), clock.monotonic())))
    twin: dict[str, float] = {}
    for what, key, amount in steps:
        if what == "set":
            deadlines.set((key,), amount)
            twin[key] = clock.monotonic() + amount / 1000
        elif what == "cancel":
            deadlines.cancel((key,))
            twin.pop(key, None)
        else:
            fired.clear()
            clock.advance(amount)
            now = clock.monotonic()
            for name, at in fired:
                assert at >= twin.pop(name) - 1e-9, f"{name} fired early, or twice"
            late = [name for name, due in twin.items() if due + 2 * TICK_S + 1e-9 < now]
            assert not late, f"{late} did not fire"
    assert len(deadlines) == len(twin)


def test_setting_anew_costs_no_heap_entry() -> None:
    """A session that is prolonged a thousand times keeps one entry, and fires once."""
    clock = ManualClock()
    fired: list[TimerKey] = []
    deadlines = Deadlines(clock, fired.append)
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
