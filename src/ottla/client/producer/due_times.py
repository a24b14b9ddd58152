"""Partition queues by the time at which the sender must look at each."""

from __future__ import annotations

import heapq
import itertools
import math

from .accumulator import PartitionQueue


class DueTimes:
    """Each queue once, at the earliest time asked for; a change costs O(log n).

    A later time than the one held is not remembered: who takes a queue out looks at it, and
    puts it back at the time it needs then. So there is one entry for each queue, however many
    batches pass through it.
    """

    __slots__ = ("_heap", "_order", "_times")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, PartitionQueue]] = []
        self._times: dict[PartitionQueue, float] = {}
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._times)

    @property
    def next_at(self) -> float:
        """The earliest time; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, queue: PartitionQueue, when: float) -> None:
        """Look at this queue at `when`, or earlier if that is held already."""
        held = self._times.get(queue)
        if held is None or when < held:
            self._times[queue] = when
            heapq.heappush(self._heap, (when, next(self._order), queue))

    def pop_due(self, now: float) -> list[PartitionQueue]:
        """Take out the queues whose time has come."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            when, _, queue = heapq.heappop(self._heap)
            if self._times.get(queue) == when:  # else an earlier entry has been taken out
                del self._times[queue]
                found.append(queue)
        return found

    def pop_all(self) -> list[PartitionQueue]:
        """Take out all queues, in the order of their times."""
        return self.pop_due(math.inf)
