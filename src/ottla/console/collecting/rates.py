"""Rates per second from what only grows: end offsets, counters of endpoints, sizes of logs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Rates(Generic[K]):
    """The rate of each counter between its two newest readings.

    A counter that went back began anew (a restart, a topic made again): its rate is not known until
    the reading after. `forget_before` ends those that are not read any more.
    """

    def __init__(self) -> None:
        self._last: dict[K, tuple[int, float]] = {}
        self.now: dict[K, float] = {}

    def read(self, now_ms: int, counters: Mapping[K, float]) -> None:
        last, now = self._last, self.now
        for key, value in counters.items():
            before = last.get(key)
            if before is not None:
                elapsed_ms = now_ms - before[0]
                if elapsed_ms == 0:
                    continue
                if value >= before[1] and elapsed_ms > 0:  # else the clock went back
                    now[key] = (value - before[1]) * 1000 / elapsed_ms
                else:
                    now.pop(key, None)
            last[key] = (now_ms, value)

    def forget(self, keys: Iterable[K]) -> None:
        """What is counted anew: a topic that was deleted and made again."""
        for key in keys:
            self._last.pop(key, None)
            self.now.pop(key, None)

    def forget_before(self, time_ms: int) -> None:
        """What was not read since then."""
        for key in [key for key, (read_ms, _) in self._last.items() if read_ms < time_ms]:
            del self._last[key]
            self.now.pop(key, None)

    def sum(self, keys: Iterable[K]) -> float | None:
        """Of those that are known; None if none is."""
        found = [rate for key in keys if (rate := self.now.get(key)) is not None]
        return sum(found) if found else None
