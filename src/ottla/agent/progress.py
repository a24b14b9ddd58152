"""How far the sinks of one channel have come together.

Sinks that share a channel without a group compete for its batches, so the last position of one says
nothing of what another took before. What counts is the completed prefix: a position is passed when
all that was taken before it is delivered too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from .events import EventBatch, Position


class Progress:
    """The batches that were taken, in order, and which of them are delivered."""

    def __init__(self) -> None:
        self.taking = asyncio.Lock()  # held by who takes from the channel, until `take`
        self._taken: OrderedDict[tuple[str, int], EventBatch] = OrderedDict()
        self._delivered: set[tuple[str, int]] = set()

    def take(self, batches: Iterable[EventBatch]) -> None:
        """One that was rolled back and is taken again keeps its place."""
        for batch in batches:
            if batch.position is not None:
                self._taken.setdefault(batch.position[:2], batch)

    def deliver(self, batches: Iterable[EventBatch]) -> dict[str, Position]:
        """The positions that are passed now, by stream."""
        for batch in batches:
            if batch.position is not None and batch.position[:2] in self._taken:
                self._delivered.add(batch.position[:2])
        passed: dict[str, Position] = {}
        while self._taken:
            key, batch = next(iter(self._taken.items()))
            if key not in self._delivered:
                break
            del self._taken[key]
            self._delivered.discard(key)
            for position in (batch.position, batch.source_position):
                if position is not None:
                    passed[position.stream] = position
        return passed
