"""Replicas with others elsewhere that a change brings to this broker, to be opened.

Followers fetch from then on, and leaders watch their followers. The first few of a change are
opened at once, so that a small topic is replicated when its creation is answered. Thousands would
hold the answer up: they follow one after the other, beside requests. One that is asked for is
opened then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.log.upkeep import TimeSlice

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import PartitionImage

AT_ONCE = 50  # some milliseconds


class Openings:
    """The replicas of the image in use that are to be opened yet: no more than it has."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[tuple[str, int], None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, topic: str, partitions: Sequence[PartitionImage]) -> list[tuple[str, int]]:
        """Have the replicas of this broker among these opened, which are returned."""
        node_id, opened = self._broker.node_id, self._broker.partitions.by_name.get(topic, {})
        keys = [
            (topic, each.index)
            for each in partitions
            if len(each.replicas) > 1 and node_id in each.replicas and each.index not in opened
        ]
        self._waiting |= dict.fromkeys(keys)
        return keys

    def begin(self, keys: Sequence[tuple[str, int]]) -> None:
        """Open the first of these, which were noted, and all others beside requests."""
        for key in keys[:AT_ONCE]:
            self._open(key)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self.finish(), name="openings")

    async def finish(self) -> None:
        """Open all that were noted, between other work."""
        time_slice = TimeSlice(self._broker.clock)
        while self._waiting:
            self._open(next(iter(self._waiting)))
            await time_slice.yield_if_over()

    def _open(self, key: tuple[str, int]) -> None:
        # Another change may have taken it away again.
        self._waiting.pop(key, None)
        image = self._broker.image.partition(*key)
        if image is not None and self._broker.node_id in image.replicas:
            self._broker.partitions.get(*key)

    async def stop(self) -> None:
        """Open no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
