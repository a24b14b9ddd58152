"""Timers that are set again far more often than they fire, such as the session timers of members.

`CoordinatorTimer` keeps one deadline per key and calls back when it has passed: never early, and
at most a millisecond late while the event loop is free. Setting a deadline again to a later time
only writes a dictionary entry. A heap holds, per key, a time that is not later than its deadline;
when that time comes, the key either fires or returns to the heap under its current deadline. One
timer of the clock, set for the earliest entry, serves all keys: an idle coordinator costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil
from typing import TYPE_CHECKING

from ottla.coordinator.effects import TimerKey

if TYPE_CHECKING:
    from ottla.seams.clock import Clock, Timer

# Event loops count in whole milliseconds; a timer set for less than one would be rounded to zero.
RESOLUTION_MS = 1
# Two floating-point times closer than this are the same time.
EQUAL_S = 1e-6
# A wake-up also corrects the entries of the next moments whose deadlines have moved on, so that
# a thousand members with heartbeats cost ten wake-ups a second, not one for each heartbeat.
LOOK_AHEAD_S = 0.1
# Callbacks of one turn of the event loop; the sessions of a large group may end together.
DUE_PER_TURN = 100
# Entries of keys that were cancelled, or set again to an earlier time, stay until their time comes,
# up to about so many: members may come and go, each with a session of minutes.
STALE_ENTRIES_MAX = 1000


class CoordinatorTimer:
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
        """Let `key` fire once, `delay_ms` from now, and at no other time set before."""
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
        if len(self._heap) > 2 * len(self._deadlines) + STALE_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapify(self._heap)
            self._in_heap = {key: at for at, _, key in self._heap}
        self._in_heap[key] = at
        heappush(self._heap, (at, next(self._order), key))

    def _is_current(self, entry: tuple[float, int, TimerKey]) -> bool:
        at, _, key = entry
        return key in self._deadlines and self._in_heap.get(key) == at

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_at = self._heap[0][0]
            delay_ms = (self._timer_at - self._clock.monotonic() - EQUAL_S) * 1000
            delay_ms = max(ceil(delay_ms / RESOLUTION_MS) * RESOLUTION_MS, 0)
            self._timer = self._clock.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic() + EQUAL_S
        left = DUE_PER_TURN
        try:
            while left and self._next_entry(now) is not None:
                key = heappop(self._heap)[2]
                del self._in_heap[key]
                del self._deadlines[key]
                self._on_due(key)
                left -= 1
            if left:
                self._next_entry(now + LOOK_AHEAD_S)
        finally:
            # Also after a callback that failed: the other keys still have their deadlines.
            if self._timer is None:
                self._arm()

    def _next_entry(self, until: float) -> TimerKey | None:
        """The first key whose deadline is not after `until`; it is then first in the heap.

        Entries before it that no longer stand for a deadline are corrected on the way.
        """
        while self._heap and self._heap[0][0] <= until:
            at, _, key = self._heap[0]
            if self._in_heap.get(key) != at:
                heappop(self._heap)  # an earlier entry for the same key took its place
                continue
            deadline = self._deadlines.get(key)
            if deadline == at:
                return key
            heappop(self._heap)
            del self._in_heap[key]
            if deadline is not None:
                self._push(key, deadline)
        return None
