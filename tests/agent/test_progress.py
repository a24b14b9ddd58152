"""Sinks that compete for a channel: the completed prefix counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.delivery import Delivery
from ottla.agent.events import EventBatch, Position
from ottla.agent.output import SourceOutput
from ottla.agent.parts import TAKE_BYTES_MAX
from ottla.agent.positions import PositionFile
from ottla.agent.progress import Progress
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sources.seq import SequenceSource


def at(offset: int) -> EventBatch:
    return EventBatch([b"x"], position=Position("s/a", offset))


def test_a_position_is_passed_when_all_before_it_is_delivered() -> None:
    """In whatever order, and also when a batch goes back and is taken again."""
    progress = Progress()
    batches = [at(1), at(2), at(3)]
    progress.take(batches)
    assert progress.deliver([batches[1]]) == {}
    progress.take([batches[0]])  # rolled back by one sink, taken by the other
    assert progress.deliver([batches[0]]) == {"s/a": Position("s/a", 2)}
    assert progress.deliver([batches[2]]) == {"s/a": Position("s/a", 3)}
    assert not progress._taken
    assert not progress._delivered


class FailingSink:
    """Keeps what it gets; fails now and then, as chance has it."""

    keeps_positions = False

    def __init__(self, name: str, chance: random.Random, arrived: list[int]) -> None:
        self.name = name
        self.chance = chance
        self.arrived = arrived

    def start(self) -> Mapping[str, Position]:
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        if self.chance.random() < 0.3:
            raise OSError("now and then")
        self.arrived += [int(body) for batch in batches for body in batch.bodies]

    def stop(self) -> None:
        return


def test_two_sinks_of_one_channel_lose_nothing_over_restarts(tmp_path: Path, monkeypatch) -> None:
    """One may be ahead when the other fails and the agent is cancelled: each number arrives."""
    monkeypatch.setattr("ottla.agent.delivery.PAUSE_MIN_S", 0.001)
    monkeypatch.setattr("ottla.agent.runner.DRAIN_S", 0.0)
    chance = random.Random(3)
    arrived: list[int] = []

    async def life(total: int) -> None:
        channel = MemoryChannel("c1", 50)
        file, progress = PositionFile(tmp_path / "positions"), Progress()
        deliveries = [
            Delivery(FailingSink(name, chance, arrived), channel, 7, file, 0.0, progress)
            for name in ("k1", "k2")
        ]
        source = SequenceSource("r1", 5, total)
        wired = Wiring([(source, SourceOutput([channel], []), [channel])], [channel], deliveries)
        running = asyncio.create_task(run_agent(wired, until_drained=True))
        await asyncio.wait([running], timeout=chance.random() * 0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    for _ in range(200):
        asyncio.run(life(600))
        if set(arrived) == set(range(600)) and chance.random() < 0.2:
            break
    assert set(arrived) == set(range(600))


class SlowChannel(MemoryChannel):
    """Its first taker gets what it has taken later, as from a file."""

    def __init__(self) -> None:
        super().__init__("c1", 50)
        self.has_read = asyncio.Event()
        self._takes = 0

    async def take(self, events_max: int, bytes_max: int = TAKE_BYTES_MAX) -> list[EventBatch]:
        self._takes += 1
        is_first = self._takes == 1
        taken = await super().take(events_max, bytes_max)
        if is_first:
            await self.has_read.wait()
        return taken


def test_a_sink_that_takes_later_does_not_get_ahead(tmp_path: Path) -> None:
    """The first sink has taken a batch that it does not hold yet: what the second one takes and
    delivers meanwhile passes no position before the first batch is delivered too."""

    async def run() -> None:
        channel, progress = SlowChannel(), Progress()
        chance = random.Random(1)
        one, other = (
            Delivery(FailingSink(name, chance, []), channel, 5, None, 0.0, progress)
            for name in ("k1", "k2")
        )
        for end in (5, 10):
            ends = range(end - 4, end + 1)
            await channel.put(EventBatch([b"x"] * 5, position=Position("r1/s", end), ends=ends))
        taking = [asyncio.create_task(each._take()) for each in (one, other)]
        for _ in range(20):
            await asyncio.sleep(0)
        channel.has_read.set()
        first, second = await asyncio.gather(*taking)
        assert progress.deliver(second) == {}
        assert progress.deliver(first)["r1/s"].offset == 10

    asyncio.run(run())
