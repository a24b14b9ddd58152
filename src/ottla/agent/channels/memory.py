"""The `memory` channel: bounded by events and bytes; a crash empties it.

That loses nothing where the source replays: its position moves only when a sink has delivered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from ..events import EventBatch


class MemoryChannel:
    durable = False

    def __init__(self, name: str, capacity: int, byte_capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.byte_capacity = byte_capacity
        self.events = 0  # put and not committed
        self.bytes = 0
        self._waiting: deque[EventBatch] = deque()
        self._changed = asyncio.Condition()

    async def put(self, batch: EventBatch) -> None:
        size = batch.byte_count()
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_space(len(batch), size))
            self.events += len(batch)
            self.bytes += size
            self._waiting.append(batch)
            self._changed.notify_all()

    def _has_space(self, events: int, size: int) -> bool:
        """A batch larger than the channel goes through alone."""
        return self.events == 0 or (
            self.events + events <= self.capacity and self.bytes + size <= self.byte_capacity
        )

    async def take(self, events_max: int) -> list[EventBatch]:
        taken: list[EventBatch] = []
        count = 0
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting)
            while self._waiting and (not taken or count + len(self._waiting[0]) <= events_max):
                batch = self._waiting.popleft()
                count += len(batch)
                taken.append(batch)
        return taken

    def commit(self, batches: Sequence[EventBatch]) -> None:
        self.events -= sum(map(len, batches))
        self.bytes -= sum(batch.byte_count() for batch in batches)
        self._wake()

    def roll_back(self, batches: Sequence[EventBatch]) -> None:
        self._waiting.extendleft(reversed(batches))
        self._wake()

    def _wake(self) -> None:
        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._notifying = asyncio.ensure_future(notify())

    async def close(self) -> None:
        return
