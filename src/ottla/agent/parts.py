"""What the parts of an agent are to each other: sources, channels and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .events import EventBatch, Position


class Output(Protocol):
    """Where a source puts its events: interceptors, the selector, and the channels behind them."""

    async def put(self, batch: EventBatch) -> None:
        """Returns when every required channel has the batch; waits while one is full."""


class Source(Protocol):
    """Runs on the event loop of the agent. Blocking work goes to a thread."""

    name: str
    replays: bool  # its batches have positions, and it can begin at one

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        """Reads until it is cancelled. `positions` are those of its streams where it continues,
        the least of all sinks; a stream that is not there begins as the options say."""


class Channel(Protocol):
    """Holds events between sources and sinks."""

    name: str
    durable: bool  # what was put is there after a crash

    async def put(self, batch: EventBatch) -> None:
        """Waits while the channel is full."""

    async def take(self, events_max: int) -> list[EventBatch]:
        """The next batches, about so many events; waits for the first. They count against the
        capacity until they are committed."""

    def commit(self, batches: Sequence[EventBatch]) -> None:
        """What `take` returned is delivered."""

    def roll_back(self, batches: Sequence[EventBatch]) -> None:
        """What `take` returned is not delivered, and is next again."""

    async def close(self) -> None: ...


class Sink(Protocol):
    """Delivers. All methods block, and run in a thread of the sink's own."""

    name: str
    keeps_positions: bool  # in the same transaction as what it delivers

    def start(self) -> Mapping[str, Position]:
        """Connects, and returns the positions that it keeps, by stream."""

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        """Returns when all is delivered; raises if anything may not be."""

    def stop(self) -> None: ...
