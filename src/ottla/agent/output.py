"""From a source to its channels: interceptors first, then the selector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .events import EventBatch
from .parts import Channel

Interceptor = Callable[[EventBatch], EventBatch]


class SourceOutput:
    """The replicating selector: each event goes into all channels."""

    def __init__(self, channels: Sequence[Channel], interceptors: Sequence[Interceptor]) -> None:
        self._channels = channels
        self._interceptors = interceptors

    async def put(self, batch: EventBatch) -> None:
        for intercept in self._interceptors:
            batch = intercept(batch)
        if len(self._channels) == 1:
            await self._channels[0].put(batch)
        else:
            await asyncio.gather(*(channel.put(batch) for channel in self._channels))
