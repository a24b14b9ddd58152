"""Time as the broker sees it: a wall clock for records, a monotonic one for waiting, and timers.

`RealClock` is the machine's time and an event loop's timers. `ManualClock` stands still until a
test moves it; it then runs the timers that came due, in the order of their times and, for equal
times, in the order in which they were set. Timers that a callback sets are run too if due.
"""

import heapq
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Timer(Protocol):
    """A callback that will run once, unless cancelled before."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the broker may know and want about time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 on the wall clock; may jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> Timer: ...


class RealClock:
    """The machine's clocks, and the timers of the event loop given."""

    __slots__ = ("_loop",)

    monotonic = staticmethod(time.monotonic)

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)


class ManualTimer:
    """A timer of a `ManualClock`."""

    __slots__ = ("args", "callback", "cancelled", "due_s")

    def __init__(
        self, due_s: float, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self.due_s = due_s
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Time that moves only when told to: for tests and the simulation."""

    __slots__ = ("_monotonic_s", "_order", "_timers", "_wall_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic_s = 0.0
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic(self) -> float:
        return self._monotonic_s

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        timer = ManualTimer(self._monotonic_s + max(delay_s, 0.0), callback, args)
        heapq.heappush(self._timers, (timer.due_s, next(self._order), timer))
        return timer

    def advance(self, ms: float) -> None:
        """Moves both clocks on by `ms`, stopping at each timer that comes due to run it."""
        target_s = self._monotonic_s + ms / 1000
        # A timer set for "in 30 ms" is due after `advance(30)` whatever binary fractions say.
        while self._timers and self._timers[0][0] <= target_s + 1e-9:
            due_s, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._move(min(max(due_s, self._monotonic_s), target_s))
            timer.callback(*timer.args)
        self._move(target_s)

    def jump_wall(self, ms: float) -> None:
        """Sets the wall clock forward or back, as an operator or NTP would; timers do not care."""
        self._wall_ms += ms

    def next_due_s(self) -> float | None:
        """How many seconds until the next timer, or None when there is none."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] - self._monotonic_s if self._timers else None

    def _move(self, to_s: float) -> None:
        self._wall_ms += (to_s - self._monotonic_s) * 1000
        self._monotonic_s = to_s
