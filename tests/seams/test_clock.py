"""The clocks: real time moves, manual time moves only by calls."""

import asyncio
import time

from ottla.seams.clock import ManualClock, RealClock


def test_a_manual_clock_runs_due_timers_in_order() -> None:
    """Timers run in the order of their times, then of their setting, each at its own time."""
    clock = ManualClock(now_ms=1000)
    seen: list[tuple[str, int]] = []
    clock.call_later(0.030, lambda: seen.append(("late", clock.now_ms())))
    clock.call_later(0.010, lambda: seen.append(("first", clock.now_ms())))
    clock.call_later(0.010, lambda: seen.append(("second", clock.now_ms())))
    clock.advance(9)
    assert seen == []
    clock.advance(21)
    assert seen == [("first", 1010), ("second", 1010), ("late", 1030)]
    assert clock.now_ms() == 1030


def test_a_cancelled_timer_does_not_run() -> None:
    """Cancelling before the time is enough, and the next timer is then the one after it."""
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(1, seen.append, 1).cancel()
    clock.call_later(2, seen.append, 2)
    assert clock.next_due_s() == 2
    clock.advance(5000)
    assert seen == [2]
    assert clock.next_due_s() is None


def test_a_timer_set_by_a_timer_runs_if_due() -> None:
    """One `advance` runs a chain of timers, as a loop would have."""
    clock = ManualClock()
    seen: list[float] = []

    def tick() -> None:
        seen.append(round(clock.monotonic(), 6))
        clock.call_later(0.1, tick)

    clock.call_later(0.1, tick)
    clock.advance(350)
    assert seen == [0.1, 0.2, 0.3]


def test_the_wall_clock_may_jump_without_moving_timers() -> None:
    """A jump of the wall clock neither runs nor delays a timer."""
    clock = ManualClock(now_ms=0)
    seen: list[int] = []
    clock.call_later(1, seen.append, 1)
    clock.jump_wall(-500_000)
    assert clock.now_ms() == -500_000
    clock.jump_wall(10_000_000)
    assert seen == []
    clock.advance(1000)
    assert seen == [1]


def test_the_real_clock_follows_the_machine() -> None:
    """Wall time is the machine's, and a timer fires on the loop."""

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        clock = RealClock(loop)
        earliest_ms = time.time_ns() // 1_000_000
        assert earliest_ms <= clock.now_ms() <= time.time_ns() // 1_000_000 + 1
        fired = asyncio.Event()
        before = clock.monotonic()
        clock.call_later(0.01, fired.set)
        await asyncio.wait_for(fired.wait(), 60)
        return clock.monotonic() - before >= 0.009

    assert asyncio.run(run())
