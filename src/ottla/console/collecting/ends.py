"""Where partitions ended during the last hour, and so how long ago an offset was at the end.

A partition keeps a point only when its end has moved, so that one that rests costs nothing; in
memory only, for the console asks again after its own restart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from ottla.client.structs import TopicPartition

KEPT_MS = 60 * 60 * 1000
POINTS_MAX = 800  # of a partition: an hour, polled every ten seconds, two points for each move
PARTITIONS_MAX = 50_000


class Ends:
    """The ends of one partition: (time, end), both rising."""

    __slots__ = ("offsets", "seen", "times")

    def __init__(self, time: int, offset: int) -> None:
        self.times = array("I", [time])
        self.offsets = array("q", [offset])
        self.seen = time  # when the last offset was last found to be the end

    def add(self, time: int, offset: int) -> None:
        last = self.offsets[-1]
        if offset < last:  # truncated, or made anew: what was before says nothing any more
            self.__init__(time, offset)  # type: ignore[misc]
            return
        if offset > last:
            if self.seen > self.times[-1]:  # it rested until then
                self.times.append(self.seen)
                self.offsets.append(last)
            self.times.append(time)
            self.offsets.append(offset)
            if len(self.times) > POINTS_MAX:
                self._trim(time)
        self.seen = time

    def _trim(self, time: int) -> None:
        keep = max(bisect_right(self.times, max(0, time - KEPT_MS // UNIT_MS)) - 1, 0)
        keep = max(keep, len(self.times) - POINTS_MAX * 3 // 4)
        del self.times[:keep]
        del self.offsets[:keep]

    def passed(self, offset: int) -> float | None:
        """When the end went past this offset; None: before the first point, or not yet."""
        after = bisect_right(self.offsets, offset)
        if after == 0 or after == len(self.offsets):
            return None
        low, high = self.offsets[after - 1], self.offsets[after]
        began, ended = self.times[after - 1], self.times[after]
        return began + (ended - began) * (offset - low) / (high - low)


UNIT_MS = 10  # times fit into 32 bits for more than a year


class EndHistory:
    """The ends of all partitions of a cluster. One thread writes; others may read."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._last_ms = start_ms
        self._partitions: dict[TopicPartition, Ends] = {}

    def add(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        if now_ms < self._last_ms:  # the clock went back: what was seen goes with it
            self._start_ms -= self._last_ms - now_ms
        self._last_ms = now_ms
        time = max(0, (now_ms - self._start_ms) // UNIT_MS)
        known = self._partitions
        for partition, offset in ends.items():
            found = known.get(partition)
            if found is not None:
                found.add(time, offset)
            elif len(known) < PARTITIONS_MAX:
                known[partition] = Ends(time, offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._partitions.pop(each, None)

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all others: they are deleted."""
        gone = self._partitions.keys() - set(partitions)
        for each in gone:
            del self._partitions[each]

    def passed_ms(self, partition: TopicPartition, offset: int) -> int | None:
        """When the end of the partition went past this offset, if that was seen."""
        found = self._partitions.get(partition)
        passed = None if found is None else found.passed(offset)
        return None if passed is None else self._start_ms + round(passed * UNIT_MS)

    def points(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """(time in ms, end offset) of the last hour, for a chart."""
        found = self._partitions.get(partition)
        if found is None:
            return []
        rested = [(found.seen, found.offsets[-1])] if found.seen > found.times[-1] else []
        pairs = [*zip(list(found.times), list(found.offsets), strict=False), *rested]
        return [(self._start_ms + time * UNIT_MS, offset) for time, offset in pairs]
