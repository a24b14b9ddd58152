"""From a source to its channels: interceptors first, then the selector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from .events import EventBatch, is_of_group
from .parts import Channel, Delivered, DurableChannel

Interceptor = Callable[[EventBatch], EventBatch]


async def put_into(channel: Channel, batch: EventBatch) -> None:
    """A durable channel has no use for a position that a group keeps, unless its sink commits it:
    when it has the events they are safe."""
    if is_of_group(batch.position) and not channel.takes_group_positions:
        if not batch.bodies:
            return
        batch = replace(batch, position=None, ends=())
    await channel.put(batch)


class OutputCounts:
    """What a source has put, for the monitoring. Batches without events are not counted."""

    def __init__(self) -> None:
        self.events_received = 0  # before the interceptors
        self.events_accepted = 0  # the same, once the channels have what the interceptors left
        self.batches_received = 0
        self.batches_accepted = 0


class SourceOutput:
    """The replicating selector: each event goes into all channels."""

    def __init__(self, channels: Sequence[Channel], interceptors: Sequence[Interceptor]) -> None:
        self._channels = channels
        self._interceptors = interceptors
        self.deliveries: Sequence[Delivered] = ()  # of the agent, once it runs
        self.counts = OutputCounts()

    async def put(self, batch: EventBatch) -> None:
        counts, events = self.counts, len(batch)
        if events:
            counts.events_received += events
            counts.batches_received += 1
        for intercept in self._interceptors:
            batch = intercept(batch)
        await self._distribute(batch)
        if events:
            counts.events_accepted += events
            counts.batches_accepted += 1

    async def _distribute(self, batch: EventBatch) -> None:
        """Puts what the interceptors left into the channels."""
        if len(self._channels) == 1:
            await put_into(self._channels[0], batch)
        else:
            await asyncio.gather(*(put_into(channel, batch) for channel in self._channels))

    def required_channels(self) -> Sequence[Channel]:
        """Those that get all positions; an optional one may miss some."""
        return self._channels

    def is_delivered(self, stream: str, offset: int) -> bool:
        for channel in self.required_channels():
            if isinstance(channel, DurableChannel):
                if not channel.holds(stream, offset):
                    return False
                continue
            sinks = [each for each in self.deliveries if each.channel is channel]
            if sinks:
                held = [each.positions.get(stream) for each in sinks]
                if not any(position and position.offset >= offset for position in held):
                    return False
        return True
