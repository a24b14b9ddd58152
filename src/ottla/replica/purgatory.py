"""Requests that must wait (Kafka calls this place the purgatory).

A request is parked under the things it waits for (its keys, any hashable objects) and tried again
when one of them moves, or for the last time when its time is up. It may say how many bytes it still
misses; smaller news then only lower that number and cost nothing more. Time is coarse: one timer
serves all, and deadlines are rounded up to the next tick, so a thousand idle long polls cost one
wake-up per tick in which one of them ends. Cancelling leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.seams.clock import Clock, Timer

# How many requests may wait at once; beyond it a request is answered with what there is, at once.
PARKED_MAX = 100_000
# Deadlines are rounded up to whole ticks.
TICK_S = 0.005


class Waiter:
    """One parked request. `attempt(expired)` answers it if it can and says whether it did."""

    __slots__ = ("attempt", "keys", "missing_bytes", "tick")

    def __init__(
        self,
        keys: tuple[Hashable, ...],
        tick: int,
        attempt: Callable[[bool], bool],
        missing_bytes: int,
    ) -> None:
        self.keys = keys
        self.tick = tick
        self.attempt: Callable[[bool], bool] | None = attempt
        self.missing_bytes = missing_bytes


def _being_tried(expired: bool) -> bool:
    return False


class Purgatory:
    """All that waits in one broker."""

    def __init__(self, clock: Clock, *, parked_max: int = PARKED_MAX) -> None:
        self._clock = clock
        self._parked_max = parked_max
        self._by_key: dict[Hashable, dict[Waiter, None]] = {}
        self._by_tick: dict[int, dict[Waiter, None]] = {}
        self._ticks: list[int] = []
        self._moved: dict[Hashable, int | None] = {}
        self._timer: Timer | None = None
        self._timer_tick = 0
        self._parked = 0

    def __len__(self) -> int:
        return self._parked

    def park(
        self,
        keys: Iterable[Hashable],
        wait_ms: int,
        attempt: Callable[[bool], bool],
        *,
        missing_bytes: int = 0,
    ) -> Waiter:
        """Park until `attempt` succeeds or `wait_ms` has passed.

        With no time to wait, or too many waiting already, the last attempt is made here and now.
        """
        tick = ceil((self._clock.monotonic() + wait_ms / 1000) / TICK_S - 1e-6)
        waiter = Waiter(tuple(keys), tick, attempt, missing_bytes)
        if wait_ms <= 0 or self._parked >= self._parked_max:
            waiter.attempt = None
            attempt(True)
            return waiter
        self._parked += 1
        for key in waiter.keys:
            self._by_key.setdefault(key, {})[waiter] = None
        bucket = self._by_tick.get(tick)
        if bucket is not None:
            bucket[waiter] = None
            return waiter
        self._by_tick[tick] = {waiter: None}
        heappush(self._ticks, tick)
        if self._timer is None or tick < self._timer_tick:
            self._arm()
        return waiter

    def wake(self, key: Hashable, size_bytes: int | None = None) -> None:
        """`key` has moved by so many bytes; None when it changed so that all must look again."""
        waiters = self._by_key.get(key)
        if waiters is None:
            return
        for waiter in tuple(waiters):
            if size_bytes is not None:
                waiter.missing_bytes -= size_bytes
                if waiter.missing_bytes > 0:
                    continue
            attempt = waiter.attempt
            if attempt is None:
                continue
            # An answer may set off further appends: they must not try the same request again.
            waiter.attempt = _being_tried
            if attempt(False):
                self.cancel(waiter)
            elif waiter.attempt is _being_tried:
                waiter.attempt = attempt

    def wake_soon(self, key: Hashable, size_bytes: int | None) -> None:
        """`wake`, but once for all that moves in this turn of the event loop.

        An append does not pay for the answers of the readers, and they get more at once.
        """
        if key not in self._by_key:
            return
        moved = self._moved
        if not moved:
            self._clock.call_later(0.0, self._wake_moved)
        before = moved.get(key, 0)
        moved[key] = None if size_bytes is None or before is None else before + size_bytes

    def _wake_moved(self) -> None:
        moved, self._moved = self._moved, {}
        for key, size_bytes in moved.items():
            self.wake(key, size_bytes)

    def cancel(self, waiter: Waiter) -> None:
        """Forget a waiter; nothing happens if it is gone already."""
        if waiter.attempt is None:
            return
        waiter.attempt = None
        self._parked -= 1
        for key in waiter.keys:
            waiters = self._by_key.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._by_key[key]
        bucket = self._by_tick.get(waiter.tick)
        if bucket is not None:
            bucket.pop(waiter, None)

    def close(self) -> None:
        """Try everything parked for the last time: the broker stops."""
        for bucket in tuple(self._by_tick.values()):
            for waiter in tuple(bucket):
                self._expire(waiter)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Ticks whose waiters are all gone need no wake-up.
        while self._ticks and not self._by_tick.get(self._ticks[0], True):
            del self._by_tick[heappop(self._ticks)]
        if self._ticks:
            self._timer_tick = self._ticks[0]
            delay_s = self._timer_tick * TICK_S - self._clock.monotonic()
            self._timer = self._clock.call_later(max(delay_s, 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_tick = self._clock.monotonic() / TICK_S + 1e-6
        while self._ticks and self._ticks[0] <= now_tick:
            bucket = self._by_tick.pop(heappop(self._ticks))
            for waiter in tuple(bucket):
                self._expire(waiter)
        if self._timer is None:
            self._arm()

    def _expire(self, waiter: Waiter) -> None:
        attempt = waiter.attempt
        if attempt is not None:
            self.cancel(waiter)
            attempt(True)
