"""From a channel to a sink: take, drop what the sink has already, deliver, commit.

A delivery that fails is tried again with a growing pause; the channel fills meanwhile, and the
source waits. Nothing is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ottla.client.errors import ProducerFencedError

from .events import EventBatch, Position
from .parts import Channel, Sink

logger = logging.getLogger(__name__)
PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 5.0  # Flume's limit of a sink's pause


class Delivery:
    """Runs one sink in a thread of its own."""

    def __init__(self, sink: Sink, channel: Channel, events_max: int) -> None:
        self.sink = sink
        self.channel = channel
        self.events_max = events_max
        self.positions: dict[str, Position] = {}  # what the sink has delivered
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sink-{sink.name}")

    async def start(self) -> Mapping[str, Position]:
        loop = asyncio.get_running_loop()
        self.positions.update(await loop.run_in_executor(self._thread, self.sink.start))
        return self.positions

    async def run(self) -> None:
        """Until it is cancelled; a fenced sink raises, because another instance delivers."""
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while True:
            taken = await self.channel.take(self.events_max)
            fresh = [batch for one in taken if (batch := self._fresh(one)) is not None]
            try:
                if fresh:
                    await loop.run_in_executor(self._thread, self.sink.deliver, fresh)
            except ProducerFencedError:
                raise
            except Exception as error:
                logger.warning(
                    "Sink %s: %s. Trying again in %.1f s", self.sink.name, error, pause_s
                )
                self.channel.roll_back(taken)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
                continue
            pause_s = PAUSE_MIN_S
            self.channel.commit(taken)
            for batch in fresh:
                if batch.position is not None:
                    self.positions[batch.position.stream] = batch.position

    def _fresh(self, batch: EventBatch) -> EventBatch | None:
        """What of a batch the sink does not have."""
        if batch.position is None or batch.position.stream not in self.positions:
            return batch
        return batch.beyond(self.positions[batch.position.stream].offset)

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self.sink.stop)
        self._thread.shutdown()
