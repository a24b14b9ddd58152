"""The hours that are not in blocks yet: ten-second slots of every series, in memory."""

from __future__ import annotations

from array import array

from .codec import empty
from .tiers import FINEST, HOUR_MS

HOURS_MAX = 3  # at once: the open one, and those that wait to be written


class Recent:
    """Values by hour and series. Not safe for threads: its owner has a lock."""

    def __init__(self, written_ms: int) -> None:
        self.written_ms = written_ms  # earlier hours are in blocks, or about to be
        self.hours: dict[int, dict[int, array[float]]] = {}

    def put(self, series: int, time_ms: int, value: float) -> None:
        """What belongs to an hour that is written already is dropped."""
        start = FINEST.block_start(time_ms)
        if start < self.written_ms:
            return
        hour = self.hours.get(start)
        if hour is None:
            hour = self.hours[start] = {}
            if len(self.hours) > HOURS_MAX:  # the disk does not take them: the newest count most
                del self.hours[min(self.hours)]
        slots = hour.get(series)
        if slots is None:
            slots = hour[series] = empty(FINEST.slots)
        slots[(time_ms - start) // FINEST.step_ms] = value

    def over(self, now_ms: int) -> list[int]:
        """The hours that are over."""
        return sorted(each for each in self.hours if each + HOUR_MS <= now_ms)

    def parts(self, series: int, from_ms: int, to_ms: int) -> list[tuple[int, array[float]]]:
        """The hours of a series that touch a range: start, and a copy of the values."""
        return [
            (start, hour[series][:])
            for start, hour in sorted(self.hours.items())
            if start < to_ms and start + HOUR_MS > from_ms and series in hour
        ]
