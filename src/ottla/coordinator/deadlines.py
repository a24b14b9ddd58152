"""Many timers that are set anew far more often than they fire, such as members' sessions.

Setting one only writes its deadline into a dictionary. A heap holds, per key, a time not later than
its deadline; when that comes the deadline is looked up, and the key either fires or goes back into
the heap. One timer of the clock serves all.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from ottla.coordinator.effects import TimerKey

if TYPE_CHECKING:
    from ottla.seams.clock import Clock, Timer

# Deadlines may be late by a hundredth, but not more than this: so sessions that end together cost
# one wake-up, and a short delay stays short.
TICK_S = 0.01


class Deadlines:
    """Calls `on_due(key)` once per deadline, in order of time."""

    def __init__(self, clock: Clock, on_due: Callable[[TimerKey], object]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._deadlines: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, int, TimerKey]] = []
        self._in_heap: dict[TimerKey, float] = {}
        self._order = count()
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, delay_ms: int) -> None:
        deadline = self._clock.monotonic() + delay_ms / 1000
        self._deadlines[key] = deadline
        known = self._in_heap.get(key)
        if known is None or deadline < known:
            self._push(key, deadline)
            if self._timer is None or deadline < self._timer_at:
                self._arm()

    def cancel(self, key: TimerKey) -> None:
        self._deadlines.pop(key, None)

    def close(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
        self._in_heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _push(self, key: TimerKey, at: float) -> None:
        self._in_heap[key] = at
        heappush(self._heap, (at, next(self._order), key))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_at = self._heap[0][0]
            delay_s = max(self._timer_at - self._clock.monotonic(), 0.0)
            self._timer = self._clock.call_later(delay_s + min(delay_s / 100, TICK_S), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heappop(self._heap)
            if self._in_heap.get(key) != at:
                continue  # an earlier entry for the same key took its place
            del self._in_heap[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline > now:
                self._push(key, deadline)
            else:
                del self._deadlines[key]
                self._on_due(key)
        if self._timer is None:
            self._arm()
