"""An agent while it runs: sinks start first, because they know where the sources continue.

Then durable channels read what they hold, then each source begins once the sinks and channels that
it feeds have started. A source that cannot read again does not wait for sinks that are away if a
file channel takes its events. At the end sources stop first, the channels drain for a while, and
what is still under way is rolled back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .delivery import Delivery
from .events import EventBatch, Position
from .output import SourceOutput
from .parts import Channel, DurableChannel, Source

logger = logging.getLogger(__name__)
DRAIN_S = 5.0
BEGIN_ALONE_S = 2.0  # a sink that can be reached is reached sooner


@dataclass
class Wiring:
    """The parts of an agent, put together."""

    sources: Sequence[tuple[Source, SourceOutput, Sequence[Channel]]]
    channels: Sequence[Channel]
    deliveries: Sequence[Delivery]


class Agent:
    """The tasks of a running agent."""

    def __init__(
        self, wiring: Wiring, before: Mapping[str, Sequence[EventBatch]] | None = None
    ) -> None:
        """`before`: events of an agent that this one replaces, by channel; they come first."""
        self.wiring = wiring
        self.drain_s: float | None = DRAIN_S  # None: as long as it takes
        self.drains: Collection[str] | None = None  # channels; None: all
        self.is_stopping = False
        self._hurry = asyncio.Event()
        self._before = dict(before or {})
        self._held: dict[str, Mapping[str, Position]] = {}  # by durable channels, by their name
        self._ready = {channel.name: asyncio.Event() for channel in wiring.channels}
        self._tasks: list[asyncio.Task[None]] = []
        self._sources: list[asyncio.Task[None]] = []

    async def run(self, *, until_drained: bool = False) -> None:
        """Runs until it is cancelled or a part fails for good; with `until_drained` also until
        all sources have ended and everything is delivered."""
        wiring = self.wiring
        self._tasks = [
            *(asyncio.create_task(self._run_channel(channel)) for channel in wiring.channels),
            *(asyncio.create_task(self._run_sink(delivery)) for delivery in wiring.deliveries),
        ]
        self._sources = [
            asyncio.create_task(self._run_source(source, output, channels))
            for source, output, channels in wiring.sources
        ]
        try:
            if until_drained:
                await self._first_failure(self._sources)
                await self._drained()
            else:
                await self._first_failure([*self._tasks, *self._sources])
                await asyncio.Event().wait()  # sources may have ended; the agent goes on
        finally:
            await self._stop()

    async def _run_channel(self, channel: Channel) -> None:
        if isinstance(channel, DurableChannel):
            has_source = any(channel in channels for _, _, channels in self.wiring.sources)
            delivered = await self._delivered_from(channel)
            self._held[channel.name] = await channel.start(delivered, has_source)
        before = self._before.pop(channel.name, ())
        if not isinstance(channel, DurableChannel):
            channel.roll_back(before)  # also beyond its capacity
            self._ready[channel.name].set()
            return
        self._ready[channel.name].set()
        if before:
            await asyncio.gather(channel.run(), put_all(channel, before))
        else:
            await channel.run()

    async def _delivered_from(self, channel: DurableChannel) -> Mapping[str, Position] | None:
        """What all sinks of a channel have; None if one is not reached in a while, and what the
        sources get meanwhile comes only once."""
        fed = [each for each in self.wiring.deliveries if each.channel is channel]
        feeding = [source for source, _, channels in self.wiring.sources if channel in channels]
        waits_for_ever = not feeding or any(source.replays for source in feeding)
        try:
            async with asyncio.timeout(
                None if waits_for_ever or not channel.begins_alone else BEGIN_ALONE_S
            ):
                for delivery in fed:
                    await delivery.started.wait()
        except TimeoutError:
            logger.info("Channel %s takes events before its sinks are reached", channel.name)
            return None
        return least_of([dict(delivery.positions) for delivery in fed])

    async def _run_sink(self, delivery: Delivery) -> None:
        await delivery.start()
        await self._ready[delivery.channel.name].wait()
        await delivery.run()

    async def _run_source(
        self, source: Source, output: SourceOutput, channels: Sequence[Channel]
    ) -> None:
        held: list[Mapping[str, Position]] = []
        for channel in channels:
            await self._ready[channel.name].wait()
            if channel.name in self._held:
                held.append(self._held[channel.name])
                continue
            for delivery in self.wiring.deliveries:
                if delivery.channel is channel:
                    await delivery.started.wait()
                    held.append(delivery.positions)
        output.deliveries = self.wiring.deliveries
        await source.run(output, least_positions(source.name, held))

    async def _first_failure(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Until all have ended; raises what one of them, or any sink or channel, raises first."""
        waiting = set(tasks)
        watched = {*self._tasks, *waiting}
        while waiting:
            done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            waiting -= done

    async def _drained(self, channels: Collection[str] | None = None) -> None:
        """Until the channels that have a sink are empty and what was taken is delivered."""
        deliveries = [
            delivery
            for delivery in self.wiring.deliveries
            if channels is None or delivery.channel.name in channels
        ]

        def is_empty(delivery: Delivery) -> bool:
            channel = delivery.channel
            # What a durable channel holds is not known before it has started.
            known = channels is None or not channel.durable or self._ready[channel.name].is_set()
            return known and delivery.idle and channel.events == 0

        while not all(map(is_empty, deliveries)):
            for delivery in deliveries:
                delivery.delivered.clear()
            waits = [asyncio.create_task(delivery.delivered.wait()) for delivery in deliveries]
            working = [task for task in self._tasks if not task.done()]
            for ended in self._tasks:
                if ended.done():
                    ended.result()
            try:
                done, _ = await asyncio.wait(
                    [*waits, *working], return_when=asyncio.FIRST_COMPLETED, timeout=0.1
                )
                for task in done:
                    task.result()
            finally:
                for wait in waits:
                    wait.cancel()
        for channel in self.wiring.channels:
            if isinstance(channel, DurableChannel) and self._ready[channel.name].is_set():
                await channel.drain()

    def hurry(self) -> None:
        """What is drained now is waited for no longer."""
        self._hurry.set()

    def has_failed_source(self) -> bool:
        """Whether a source has given up, and the others go on."""
        return any(getattr(source, "failure", None) for source, _, _ in self.wiring.sources)

    async def _stop(self) -> None:
        self.is_stopping = True
        for task in self._sources:
            task.cancel()
        await asyncio.gather(*self._sources, return_exceptions=True)
        if not any(
            task.done() and not task.cancelled() and task.exception() for task in self._tasks
        ):
            await self._drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for what, end in [
            *((f"Sink {each.name}", each.stop) for each in self.wiring.deliveries),
            *((f"Channel {each.name}", each.close) for each in self.wiring.channels),
        ]:
            try:
                await end()
            except (
                Exception
            ) as problem:  # such as a full disk: the others end in order all the same
                logger.error("%s does not end in order: %s", what, problem)

    async def _drain(self) -> None:
        drained = asyncio.create_task(self._drained(self.drains))
        hurried: asyncio.Task[object] = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            [drained, hurried], timeout=self.drain_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not drained.done() or drained.exception() is not None:
            logger.info("The agent stops with events that are not delivered")
        for task in (drained, hurried):
            task.cancel()
        await asyncio.gather(drained, hurried, return_exceptions=True)


async def put_all(channel: Channel, batches: Sequence[EventBatch]) -> None:
    for batch in batches:
        await channel.put(batch)


async def run_agent(wiring: Wiring, *, until_drained: bool = False) -> None:
    """Runs until it is cancelled or a part fails for good."""
    await Agent(wiring).run(until_drained=until_drained)


def least_of(held: Sequence[Mapping[str, Position]]) -> dict[str, Position]:
    """Where all continue: a stream that one has not begun begins anew."""
    if not held:
        return {}
    streams = set.intersection(*(set(positions) for positions in held))
    return {
        stream: min((positions[stream] for positions in held), key=lambda one: one.offset)
        for stream in streams
    }


def least_positions(source: str, held: Sequence[Mapping[str, Position]]) -> dict[str, Position]:
    """Where a source continues. A stream that a sink has not begun begins where it did for the
    others, if that is known, under its name: those skip what they have."""
    found = {
        stream: Position(stream, start, position.facts)
        for positions in held
        for stream, position in positions.items()
        if isinstance(start := position.facts.get("start"), int)
    }
    found.update(least_of(held))
    return {
        stream: position for stream, position in found.items() if stream.startswith(f"{source}/")
    }
