"""The hours that are not in blocks yet: ten-second slots of every series, in memory."""

from __future__ import annotations

from array import array
from typing import TypeAlias

from .codec import empty
from .tiers import DAY_MS, FINEST, HOUR_MS

HOURS_MAX = 3  # at once: the open one, and those that wait to be written
Hour: TypeAlias = "dict[int, array[float]]"  # of each series its slots


class Recent:
    """Values by hour and series. Not safe for threads: its owner has a lock.

    An hour that is written may get values again (the clock went back, a picture came late): they
    are put into its blocks afterwards.
    """

    def __init__(self) -> None:
        self.hours: dict[int, Hour] = {}
        self.leaving: tuple[int, Hour] | None = None  # while it is being written

    def put(self, series: int, time_ms: int, value: float) -> None:
        start = FINEST.block_start(time_ms)
        hour = self.hours.get(start)
        if hour is None:
            hour = self.hours[start] = {}
            if len(self.hours) > HOURS_MAX:  # the disk does not take them: the newest count most
                del self.hours[self._least_wanted(start)]
        slots = hour.get(series)
        if slots is None:
            slots = hour[series] = empty(FINEST.slots)
        slots[(time_ms - start) // FINEST.step_ms] = value

    def _least_wanted(self, now: int) -> int:
        """The one that is furthest from now, also ahead: the clock may have been wrong."""
        return max(self.hours, key=lambda each: (abs(now - each), -each))

    def over(self, now_ms: int) -> list[int]:
        """The hours that are over."""
        return sorted(each for each in self.hours if each + HOUR_MS <= now_ms)

    def drop_ahead(self, now_ms: int) -> None:
        """What was put by a clock that was far ahead."""
        for start in [each for each in self.hours if each > now_ms + DAY_MS]:
            del self.hours[start]

    def take(self, start: int) -> Hour:
        """The values of an hour, to be written; `written` or `not_written` comes after."""
        hour = self.hours.pop(start)
        self.leaving = start, hour
        return hour

    def written(self) -> None:
        self.leaving = None

    def not_written(self) -> None:
        """It stays, with what has come meanwhile."""
        assert self.leaving is not None
        start, hour = self.leaving
        self.leaving = None
        for series, slots in self.hours.pop(start, {}).items():
            before = hour.setdefault(series, slots)
            for index, value in enumerate(slots):
                if value == value:
                    before[index] = value
        self.hours[start] = hour

    def parts(self, series: int, from_ms: int, to_ms: int) -> list[tuple[int, array[float]]]:
        """The hours of a series that touch a range: start, and a copy of the values; what counts
        more comes later."""
        hours = sorted(self.hours.items())
        if self.leaving is not None:
            hours.insert(0, self.leaving)
        return [
            (start, hour[series][:])
            for start, hour in hours
            if start < to_ms and start + HOUR_MS > from_ms and series in hour
        ]
