"""What the parts of an agent are to each other: sources, channels and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .events import EventBatch, Position

TAKE_BYTES_MAX = 1024 * 1024
EMPTY_BATCHES_MAX = 10_000  # that only move positions, and wait in a channel


class FencedError(RuntimeError):
    """Another agent of the same instance has taken over: this one must end."""


class PartError(Exception):
    """A part cannot go on, and the agent ends: says why, and behind a line "Try:" what to try."""


class Delivered(Protocol):
    """How far a sink of a channel has come."""

    @property
    def name(self) -> str: ...

    @property
    def channel(self) -> Channel: ...

    @property
    def positions(self) -> Mapping[str, Position]: ...


class Output(Protocol):
    """Where a source puts its events: interceptors, the selector, and the channels behind them."""

    async def put(self, batch: EventBatch) -> None:
        """Returns when every required channel has the batch; waits while one is full."""

    def is_delivered(self, stream: str, offset: int) -> bool:
        """Whether no restart needs what lies before the offset: every sink has delivered it, or a
        durable channel has it."""


class Source(Protocol):
    """Runs on the event loop of the agent. Blocking work goes to a thread."""

    name: str
    replays: bool  # its batches have positions, and it can begin at one

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        """Reads until it is cancelled. `positions` are those of its streams where it continues,
        the least of all sinks; a stream that is not there begins as the options say."""


class FileStatus(NamedTuple):
    """A file that a source reads, for the monitoring."""

    path: str
    stream: str
    position: int  # read, and given to the channel
    size: int  # when it was last listed
    packed: bool = False  # compressed: its size says nothing about the position


@runtime_checkable
class FileSource(Source, Protocol):
    """A source that reads files, and can say how far."""

    def files(self) -> list[FileStatus]: ...


class Channel(Protocol):
    """Holds events between sources and sinks."""

    name: str
    durable: bool  # what was put is there after a crash
    takes_group_positions: bool  # its sink commits them, see group_offsets.py

    @property
    def capacity(self) -> int:
        """Events; 0 where there is no such limit."""

    @property
    def events(self) -> int:
        """Those that wait to be taken."""

    @property
    def events_put(self) -> int: ...

    @property
    def events_taken(self) -> int:
        """And committed."""

    async def put(self, batch: EventBatch) -> None:
        """Waits while the channel is full."""

    async def take(self, events_max: int, bytes_max: int = TAKE_BYTES_MAX) -> list[EventBatch]:
        """The next batches, about so many events and bytes; waits for the first. A cancelled take
        has taken nothing. What was taken is bounded by who takes it, not by the capacity."""

    def commit(self, batches: Sequence[EventBatch]) -> None:
        """What `take` returned is delivered."""

    def roll_back(self, batches: Sequence[EventBatch]) -> None:
        """What `take` returned is not delivered, and is next again."""

    async def close(self) -> None: ...


@runtime_checkable
class DurableChannel(Channel, Protocol):
    """A channel that outlives the agent. It knows where its sources continue."""

    begins_alone: bool  # it can start before its sinks have

    async def start(
        self, delivered: Mapping[str, Position] | None, has_source: bool
    ) -> Mapping[str, Position]:
        """Reads what it holds; `delivered` are the positions of its sinks, the least of each
        stream; None: they are not known yet. Returns where the sources of what it holds continue,
        by stream."""

    async def run(self) -> None:
        """Its own work, until it is cancelled; raises what ends the agent."""

    def holds(self, stream: str, offset: int) -> bool:
        """Whether what lies before the offset is safe: synced, or delivered."""

    async def drain(self) -> None:
        """Until all that was put is safe."""


class Sink(Protocol):
    """Delivers. All methods block, and run in a thread of the sink's own."""

    name: str
    keeps_positions: bool  # in the same transaction as what it delivers

    def start(self) -> Mapping[str, Position]:
        """Connects, and returns the positions that it keeps, by stream."""

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        """Returns when all is delivered; raises if anything may not be."""

    def stop(self) -> None:
        """Gives up what is not delivered; may be called while `deliver` waits."""


@runtime_checkable
class PreparingSink(Sink, Protocol):
    """A sink that encodes in another thread while it delivers what was encoded before."""

    def prepare(self, batches: Sequence[EventBatch]) -> Any:
        """Encodes; nothing leaves the agent."""

    def deliver_prepared(self, prepared: Any) -> None:
        """As `deliver`, of what `prepare` returned."""

    def recover(self) -> Mapping[str, Position]:
        """After a delivery that failed: makes the sink usable again, and returns the positions
        that it keeps: what had an unknown outcome is among them, or did not happen."""
