"""Replicas that a change brings to this broker: their logs made, and those with others opened.

The first few of a change are opened at once, so that a small topic is there in full when its
creation is answered. Thousands would hold the answer up for as long as the disk takes to make their
folders: they follow one after the other, beside requests, and one that is asked for is opened then.
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

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, topic: str, partitions: Sequence[PartitionImage]) -> list[tuple[str, int]]:
        """These may be replicas of this broker, and not be open; those that are to be opened."""
        node_id, opened = self._broker.node_id, self._broker.partitions.by_name.get(topic, {})
        keys = [
            (topic, each.index)
            for each in partitions
            if node_id in each.replicas and each.index not in opened
        ]
        self._waiting |= dict.fromkeys(keys)
        return keys

    def begin(self, keys: Sequence[tuple[str, int]]) -> None:
        """Open the first of those that were noted, and the others beside requests."""
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
        """Open a replica that has others: followers fetch, and leaders watch their followers.

        Of one alone the log is made, if there is none; it is opened when it is first used.
        """
        self._waiting.pop(key, None)
        broker = self._broker
        image = broker.image.partition(*key)
        if image is None or broker.node_id not in image.replicas:
            return
        if len(image.replicas) > 1:
            broker.partitions.get(*key)
        else:
            broker.logs.make(*key)

    async def stop(self) -> None:
        """Open no more; the logs that are not made yet are made at the stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
