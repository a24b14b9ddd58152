"""The `memory` channel: bounded by events and bytes; a crash empties it.

That loses nothing where the source replays: its position moves only when a sink has delivered.

`capacity` counts the events that wait, without those that a waiting sink asks for: with Flume's 100
events a sink would be woken for each batch. A batch that is larger than the whole channel goes in
alone, so that no size of a source's batch stops the agent. In Flume `keep-alive` is how long a
source waits for space before it gets an error and tries again: here it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from ..config.options import LONG_MAX, Options
from ..context import Context
from ..events import EventBatch
from ..parts import EMPTY_BATCHES_MAX, TAKE_BYTES_MAX
from .waiting import WaitingLine

BUFFER_PERCENTAGE = 20  # of the byte capacity, for headers and objects
# Flume takes 80 % of the JVM's memory, which an agent of Python's has no measure for.
BYTE_CAPACITY = 32 << 20
# Of events that their source can read again: more in memory would bring them to no sink sooner.
READ_AHEAD_BYTES_MAX = 1 << 20


class MemoryChannel:
    durable = False
    takes_group_positions = True

    def __init__(
        self,
        name: str,
        capacity: int,
        byte_capacity: int = BYTE_CAPACITY,
        *,
        byte_buffer_percentage: int = BUFFER_PERCENTAGE,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.byte_capacity = byte_capacity * (100 - byte_buffer_percentage) // 100
        self.events = 0  # that wait to be taken
        self.bytes = 0
        self._empty = 0  # batches that wait and have no events: all were filtered
        self._wanted = 0  # events, by sinks that wait
        self.events_put = 0
        self.events_taken = 0  # and committed
        self._waiting: deque[tuple[EventBatch, int]] = deque()
        self._putting = WaitingLine()
        self._taking = WaitingLine()

    async def put(self, batch: EventBatch) -> None:
        count, size = len(batch), batch.byte_count()
        bytes_max = self.byte_capacity
        if batch.position is not None:
            bytes_max = min(bytes_max, READ_AHEAD_BYTES_MAX)
        await self._putting.wait_for(lambda: self._has_space(count, size, bytes_max))
        self.events += count
        self.bytes += size
        self.events_put += count
        self._empty += not count
        self._waiting.append((batch, size))
        self._taking.wake()
        self._putting.wake()

    def _has_space(self, events: int, size: int, bytes_max: int) -> bool:
        if not events and self._empty >= EMPTY_BATCHES_MAX:
            return False
        return self.events == 0 or (
            self.events + events <= self.capacity + self._wanted and self.bytes + size <= bytes_max
        )

    async def take(self, events_max: int, bytes_max: int = TAKE_BYTES_MAX) -> list[EventBatch]:
        waiting = self._waiting
        await self._wait_for_events(events_max)
        taken: list[EventBatch] = []
        events = taken_bytes = 0
        while waiting:
            batch, size = waiting[0]
            if taken and (events + len(batch) > events_max or taken_bytes + size > bytes_max):
                break
            waiting.popleft()
            events += len(batch)
            taken_bytes += size
            self._empty -= not batch.bodies
            taken.append(batch)
        self.events -= events
        self.bytes -= taken_bytes
        self._putting.wake()
        self._taking.wake()
        return taken

    async def _wait_for_events(self, wanted: int) -> None:
        """Until some are there, and the source that waits for space has put what it can."""
        self._wanted += wanted
        try:
            while True:
                await self._taking.wait_for(lambda: bool(self._waiting))
                if not self._putting:
                    return
                self._putting.wake()
                await asyncio.sleep(0)
                if self._waiting:
                    return
        except asyncio.CancelledError:
            self._taking.wake()  # somebody else may have what is there
            raise
        finally:
            self._wanted -= wanted

    def commit(self, batches: Sequence[EventBatch]) -> None:
        self.events_taken += sum(map(len, batches))

    def roll_back(self, batches: Sequence[EventBatch]) -> None:
        for batch in reversed(batches):
            size = batch.byte_count()
            self.events += len(batch)
            self.bytes += size
            self._empty += not batch.bodies
            self._waiting.appendleft((batch, size))
        self._taking.wake()

    def left(self) -> list[EventBatch]:
        """What waits and has no position: a source that can read again does so."""
        return [batch for batch, _ in self._waiting if batch.position is None and len(batch)]

    async def close(self) -> None:
        return


def from_options(name: str, options: Options, context: Context) -> MemoryChannel:
    """0 bytes is no limit."""
    given = options.number_or_none("byteCapacity")
    return MemoryChannel(
        name,
        options.number("capacity"),
        LONG_MAX if given == 0 else given or BYTE_CAPACITY,
        byte_buffer_percentage=options.number("byteCapacityBufferPercentage"),
    )
