"""A source of files that runs in a test: what it emitted, and what a sink would have of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

from ottla.agent.events import FORGET, EventBatch, Position
from ottla.agent.files.watching import Changes
from ottla.agent.parts import Source
from ottla.agent.sources.taildir import CHECK_S
from tests.waiting import GIVE_UP_S


class Collected:
    """An output that keeps what it gets, and the position of each stream."""

    def __init__(self, positions: Mapping[str, Position] | None = None) -> None:
        self.batches: list[EventBatch] = []
        self.positions: dict[str, Position] = dict(positions or {})
        self.delivers = True
        self._changed = asyncio.Event()

    async def put(self, batch: EventBatch) -> None:
        assert batch.position is not None
        if batch.position.offset == FORGET:
            self.positions.pop(batch.position.stream, None)
            return
        held = self.positions.get(batch.position.stream)
        assert held is None or batch.position.offset > held.offset, "a position went back"
        self.batches.append(batch)
        self.positions[batch.position.stream] = batch.position
        self._changed.set()

    def is_delivered(self, stream: str, offset: int) -> bool:
        return self.delivers and stream in self.positions

    @property
    def lines(self) -> list[str]:
        return [body.decode() for batch in self.batches for body in batch.bodies]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(GIVE_UP_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class Running:
    """Runs a source until the block ends."""

    def __init__(self, source: Source, output: Collected) -> None:
        self._source = source
        self._output = output

    async def __aenter__(self) -> Running:
        self._task = asyncio.create_task(
            self._source.run(self._output, dict(self._output.positions))
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = self._task.done()
        self._task.cancel()
        [result] = await asyncio.gather(self._task, return_exceptions=True)
        if ended and isinstance(result, BaseException):
            raise result


class Ticks:
    """A watcher that the test drives: the source looks when it ticks, and says when it is idle."""

    def __init__(self) -> None:
        self._tick = asyncio.Event()
        self._idle = asyncio.Event()
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def watch(self, directories: Iterable[str]) -> None:
        return

    async def wait(self, timeout_s: float) -> Changes:
        if timeout_s < CHECK_S:  # it has something to do
            self.now_s += timeout_s
            return Changes()
        self._idle.set()
        await self._tick.wait()
        self._tick.clear()
        return Changes(listing=True)

    async def caught_up(self) -> None:
        """Lets the source list and read all there is."""
        async with asyncio.timeout(GIVE_UP_S):
            await self._idle.wait()
            self._idle.clear()
            self._tick.set()
            await self._idle.wait()

    def close(self) -> None:
        return
