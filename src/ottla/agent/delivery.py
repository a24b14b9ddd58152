"""From a channel to a sink: take, drop what the sink has already, deliver, commit.

What waits is gathered into one delivery: until it is large, or the one before it is done and a
short time has passed. A sink that can encodes the next delivery while one is on its way. A delivery
that fails is tried again with a growing pause; the channel fills meanwhile, and the source waits.
Nothing is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .events import FORGET, EventBatch, Position, is_of_group
from .parts import Channel, FencedError, PartError, PreparingSink, Sink
from .positions import PositionFile
from .progress import Progress

logger = logging.getLogger(__name__)
PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 5.0  # Flume's limit of a sink's pause
DELIVERY_BYTES_MAX = 2 * 1024 * 1024  # two are in memory, each also encoded
DELIVERY_EVENTS_MAX = 50_000
DELIVERY_BATCHES_MAX = 5_000  # empty ones, that move positions, count too
TAKE_EVENTS_MIN = 10_000
# How long a delivery gathers at least. A transaction costs the broker markers and a flush of its
# state, so there are at most so many a second.
GATHER_S = 0.002
GATHER_TRANSACTION_S = 0.025
# How an event that the brokers do not take is let through; all behind it waits.
HINTS = {
    "MESSAGE_TOO_LARGE": "An event has more bytes than message.max.bytes of its topic allows: "
    "raise that, or let the source cut events (deserializer.maxLineLength)",
    "no name for a topic": "Give the sink another kafka.topic, or allowTopicOverride = false",
    "has no partition": "Add partitions to the topic, or leave partitionIdHeader or "
    "defaultPartitionId out",
    "a partition is a number": "Leave partitionIdHeader out, or extract another header",
    "INVALID_TIMESTAMP": "An event has a time that its topic does not take: raise "
    "message.timestamp.after.max.ms, or leave timestampHeader out",
}
NOTE_AGAIN_S = 1.0
STOP_S = 5.0  # for the delivery under way when the agent stops


class Counts:
    """What a sink has done, for the monitoring."""

    def __init__(self) -> None:
        self.taken = 0  # events, each time they are taken
        self.delivered = 0
        self.deliveries = 0
        self.full = 0  # deliveries of a whole batch, as the sink's batch size says
        self.failures = 0
        self.skipped = 0  # events that the sink had already
        self.connected = 0  # how often the sink has started, or begun anew after a failure
        self.connect_failures = 0
        self.send_s = 0.0  # spent in deliveries


class Gathered(NamedTuple):
    """One delivery: what was taken from the channel, and what of it is new to the sink."""

    taken: list[EventBatch]
    fresh: list[EventBatch]


class Delivery:
    """Runs one sink in threads of its own."""

    def __init__(
        self,
        sink: Sink,
        channel: Channel,
        events_max: int,
        positions_file: PositionFile | None = None,
        gather_s: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """A sink that does not keep positions itself has them in `positions_file`; sinks that
        share a channel share that file and a `progress`."""
        self.sink = sink
        self.channel = channel
        self.batch_events = events_max
        # A sink that encodes whole batches takes more at a time than Flume's batch size.
        preparing = isinstance(sink, PreparingSink)
        self.events_max = max(events_max, TAKE_EVENTS_MIN) if preparing else events_max
        self.positions: dict[str, Position] = {}  # what the sink has delivered
        self.counts = Counts()
        self.started = asyncio.Event()
        self.delivered = asyncio.Event()  # set after each delivery
        self.gather_s = (
            gather_s
            if gather_s is not None
            else GATHER_TRANSACTION_S
            if sink.keeps_positions
            else GATHER_S
        )
        self._progress = progress or Progress()
        self._file = None if sink.keeps_positions else positions_file
        self._taking: asyncio.Task[list[EventBatch]] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._sending_since = 0.0
        self._ending = asyncio.Event()
        self._open: list[EventBatch] = []  # taken, and neither committed nor rolled back
        name = f"sink-{sink.name}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-encoder")

    async def start(self) -> Mapping[str, Position]:
        """Connects, for as long as it takes; raises what trying again does not mend."""
        loop = asyncio.get_running_loop()
        if self._file is not None:
            self.positions.update(await loop.run_in_executor(self._thread, self._file.open))
        self.positions.update(await self._persist(self.sink.start, transient))
        self.started.set()
        return self.positions

    async def _persist(
        self,
        action: Callable[[], Mapping[str, Position]],
        may_pass: Callable[[Exception], bool],
    ) -> Mapping[str, Position]:
        """Calls start or recover until it succeeds."""
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while True:
            try:
                positions = await loop.run_in_executor(self._thread, action)
                self.counts.connected += 1
                return positions
            except Exception as error:
                self.counts.connect_failures += 1
                if not may_pass(error):
                    raise
                self._warn_of(error, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _warn_of(self, error: Exception, pause_s: float) -> None:
        words = str(error).rstrip(".") or type(error).__name__
        for sign, hint in HINTS.items():
            if sign in words:
                words += f". {hint}"
        logger.warning("Sink %s: %s. Trying again in %.1f s", self.sink.name, words, pause_s)

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def idle(self) -> bool:
        """Whether nothing is taken that is not delivered."""
        return not self._open and (self._taking is None or not self._taking.done())

    async def run(self) -> None:
        """Until it is cancelled; a fenced sink raises, because another instance delivers."""
        pause_s = PAUSE_MIN_S
        while True:
            deliveries = self.counts.deliveries
            try:
                await self._deliver_until_failure()
            except (FencedError, PartError):
                raise
            except Exception as error:
                self.counts.failures += 1
                if self.counts.deliveries > deliveries:
                    pause_s = PAUSE_MIN_S
                self._warn_of(error, pause_s)
            except asyncio.CancelledError:
                self._ending.set()
                await self._give_up(STOP_S)
                raise
            await self._give_up(None)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
            if isinstance(self.sink, PreparingSink):
                recovered = await self._persist(
                    self.sink.recover, lambda error: not isinstance(error, (FencedError, PartError))
                )
                if self.sink.keeps_positions:
                    self.positions = dict(recovered)

    async def _deliver_until_failure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            gathered = await self._gather()
            prepared: Any = None
            if isinstance(self.sink, PreparingSink) and gathered.fresh:
                prepared = await loop.run_in_executor(
                    self._encoder, self.sink.prepare, gathered.fresh
                )
            if self._sending is not None:
                await asyncio.shield(self._sending)  # goes on in its thread if this is cancelled
            self._sending_since = time.monotonic()
            self._sending = asyncio.create_task(self._send(gathered, prepared))

    async def _gather(self) -> Gathered:
        """What the next delivery has. Raises if the one under way fails meanwhile."""
        taken: list[EventBatch] = []
        fresh: list[EventBatch] = []
        size = events = 0
        while True:
            if self._taking is None:
                self._taking = asyncio.create_task(self._take())
            sending = self._sending
            if sending is not None and sending.done():
                sending.result()
                self._sending = sending = None
            due_s = None
            if taken and sending is None:
                due_s = self._sending_since + self.gather_s - time.monotonic()
                if due_s <= 0:
                    break
            if not self._taking.done():
                waiting = {self._taking} if sending is None else {self._taking, sending}
                await asyncio.wait(waiting, timeout=due_s, return_when=asyncio.FIRST_COMPLETED)
            if self._taking.done():
                new, self._taking = self._taking.result(), None
                self._open += new
                taken += new
                for batch in new:
                    events += len(batch)
                    if (part := self._fresh(batch)) is not None:
                        fresh.append(part)
                        size += part.byte_count()
                        self.counts.skipped += len(batch) - len(part)
                    else:
                        self.counts.skipped += len(batch)
                if (
                    size >= DELIVERY_BYTES_MAX
                    or events >= DELIVERY_EVENTS_MAX
                    or len(taken) >= DELIVERY_BATCHES_MAX
                ):
                    break
        self.counts.taken += events
        return Gathered(taken, fresh)

    async def _take(self) -> list[EventBatch]:
        """The next batches, known to the progress in the order in which the channel had them: a
        sink that has taken later ones must not be the first to say so."""
        async with self._progress.taking:
            batches = await self.channel.take(self.events_max)
            self._progress.take(batches)
        return batches

    async def _send(self, gathered: Gathered, prepared: Any) -> None:
        """Delivers in the sink's thread, then commits."""
        loop = asyncio.get_running_loop()
        if isinstance(self.sink, PreparingSink):
            if prepared is not None:
                await loop.run_in_executor(self._thread, self.sink.deliver_prepared, prepared)
        elif gathered.fresh:
            await loop.run_in_executor(self._thread, self.sink.deliver, gathered.fresh)
        new = self._moved(self._progress.deliver(gathered.taken))
        kept = [position for position in new.values() if not is_of_group(position)]
        if self._file is not None and kept:
            await self._write(self._file, kept)
        del self._open[: len(gathered.taken)]
        self.channel.commit(gathered.taken)
        for stream, position in new.items():
            if position.offset == FORGET:
                self.positions.pop(stream, None)
            else:
                self.positions[stream] = position
        counts, events = self.counts, sum(map(len, gathered.fresh))
        counts.deliveries += 1
        counts.delivered += events
        counts.full += events >= self.batch_events
        counts.send_s += time.monotonic() - self._sending_since
        self.delivered.set()

    async def _write(self, file: PositionFile, kept: Sequence[Position]) -> None:
        """Until it succeeds: to deliver again because a disk is full would only double events."""
        loop = asyncio.get_running_loop()
        said = False
        while True:
            try:
                await loop.run_in_executor(self._thread, file.write, kept)
                return
            except OSError as problem:
                if self._ending.is_set():
                    raise
                if not said:
                    logger.error(
                        "Sink %s: what is delivered cannot be noted, a restart would deliver it "
                        "again: %s. Trying again each second", self.sink.name, problem,
                    )  # fmt: skip
                    said = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), NOTE_AGAIN_S)

    def _moved(self, passed: Mapping[str, Position]) -> dict[str, Position]:
        """Those that are not behind what the sink has: what was skipped moves nothing back."""
        return {
            stream: position
            for stream, position in passed.items()
            if position.offset == FORGET
            or stream not in self.positions
            or self.positions[stream].offset < position.offset
        }

    def _fresh(self, batch: EventBatch) -> EventBatch | None:
        """What of a batch the sink does not have."""
        if batch.position is None or batch.position.stream not in self.positions:
            return batch
        return batch.beyond(self.positions[batch.position.stream].offset)

    async def _give_up(self, timeout_s: float | None) -> None:
        """After a failure or at the end: what is under way ends, the rest goes back."""
        if self._sending is not None:
            done, _ = await asyncio.wait([self._sending], timeout=timeout_s)
            if not done:  # it fails when the sink has stopped
                await asyncio.to_thread(self.sink.stop)
                await asyncio.wait([self._sending])
            if not self._sending.cancelled():
                self._sending.exception()  # it is in the log already, or the agent ends
            self._sending = None
        if self._taking is not None:
            self._taking.cancel()
            # One that failed has taken nothing, and is tried again.
            with contextlib.suppress(asyncio.CancelledError, Exception):
                self._open += await self._taking
            self._taking = None
        self.channel.roll_back(self._open)
        self._open = []

    async def stop(self) -> None:
        # Not in its own thread, where a delivery may wait that this ends.
        try:
            await asyncio.to_thread(self.sink.stop)
            if self._file is not None:
                self._file.close()
        finally:
            self._thread.shutdown(wait=False)
            self._encoder.shutdown(wait=False)


def transient(error: Exception) -> bool:
    """Whether trying again may help: the broker is down, a disk is full."""
    return bool(getattr(error, "retriable", isinstance(error, OSError)))
