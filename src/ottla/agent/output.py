"""From a source to its channels: interceptors first, then the selector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .events import EventBatch, Position
from .parts import Channel

Interceptor = Callable[[EventBatch], EventBatch]


class Delivered(Protocol):
    """How far a sink of a channel has come."""

    @property
    def channel(self) -> Channel: ...

    @property
    def positions(self) -> Mapping[str, Position]: ...


class SourceOutput:
    """The replicating selector: each event goes into all channels."""

    def __init__(self, channels: Sequence[Channel], interceptors: Sequence[Interceptor]) -> None:
        self._channels = channels
        self._interceptors = interceptors
        self.deliveries: Sequence[Delivered] = ()  # of the agent, once it runs

    async def put(self, batch: EventBatch) -> None:
        for intercept in self._interceptors:
            batch = intercept(batch)
        if len(self._channels) == 1:
            await self._channels[0].put(batch)
        else:
            await asyncio.gather(*(channel.put(batch) for channel in self._channels))

    def required_channels(self) -> Sequence[Channel]:
        """Those that get all positions; an optional one may miss some."""
        return self._channels

    def is_delivered(self, stream: str, offset: int) -> bool:
        for channel in self.required_channels():
            sinks = [each for each in self.deliveries if each.channel is channel]
            if sinks and not channel.durable:
                held = [each.positions.get(stream) for each in sinks]
                if not any(position and position.offset >= offset for position in held):
                    return False
        return True
