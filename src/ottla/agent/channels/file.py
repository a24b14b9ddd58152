"""The `file` channel: what was put is there after a crash.

Batches get sequence numbers. A writer frames all that waits, appends it to a segment and syncs
once; only then can it be taken. A source that can read again does not wait for that: its position
is in the frame, and after a crash it continues where the frames end. To its sink the channel is a
stream, whose offset is the sequence number.

Segments that are consumed are deleted once the checkpoint says so. Damage is logged, counted in
`events_lost`, and the file set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..config.options import Options
from ..context import Context
from ..events import FORGET, EventBatch, Position
from ..parts import EMPTY_BATCHES_MAX, TAKE_BYTES_MAX, PartError
from .checkpoint import Checkpoint, keep_later, keep_reserve, read_checkpoint
from .frames import DamagedFrame, Found, frame, span_of
from .segments import Replay, Segment, Segments, channel_of
from .waiting import WaitingLine

logger = logging.getLogger(__name__)

SEGMENT_BYTES_MAX = 64 * 1024 * 1024  # below Flume's 2 GB: what is consumed goes sooner
GROUP_BYTES_MAX = 512 * 1024  # written and synced at once
UNKNOWN_EVENTS = 1 << 40  # a channel never has so many
UNSYNCED_BYTES_MAX = 1024 * 1024  # then sources wait
MEMORY_BYTES_MAX = 1024 * 1024  # of batches that wait; the rest is read from the file
CHECKPOINT_S = 1.0
CLOSE_S = 5.0
LOCK = "in_use.lock"  # Flume's name
PAUSE_S = 1.0  # before the disk is tried again
SAY_AGAIN_S = 60.0  # that it fails: its log may be on the same disk
MINIMUM_SPACE_BYTES = 500 * 1024 * 1024  # Flume's minimumRequiredSpace


class Entry(NamedTuple):
    """A batch that is on the disk and not taken."""

    segment: Segment
    found: Found
    batch: EventBatch | None  # None: read it from the file
    size: int


class Pending(NamedTuple):
    """A batch that is not synced yet."""

    batch: EventBatch
    first: int
    size: int
    synced: asyncio.Future[None] | None


class FileChannel:
    durable = True
    begins_alone = True
    takes_group_positions = False  # unless its sink's transactions have the offsets of groups

    def __init__(
        self,
        name: str,
        checkpoint_directory: Path,
        data_directories: Sequence[Path],
        *,
        capacity: int = 1_000_000,
        segment_bytes: int = SEGMENT_BYTES_MAX,
        minimum_space_bytes: int = MINIMUM_SPACE_BYTES,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.events = 0  # that wait to be taken
        self.events_put = 0
        self.events_taken = 0  # and committed
        self.events_lost = 0  # by damage
        self.stream = ""
        self._directory = checkpoint_directory
        self._data_directories = data_directories
        self._segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        self._minimum_space_bytes = minimum_space_bytes
        self._entries: deque[Entry] = deque()
        self._empty = 0  # batches that wait to be taken and have no events: all were filtered
        self._memory_bytes = 0
        self._pending: deque[Pending] = deque()
        self._unsynced_bytes = 0
        self._next = 0  # sequence number
        self._known_end = 0  # of what was there before the segments that are written now
        self._synced = 0
        self._consumed = 0
        # Consumed beyond the first that is not: by the first number, the end and the source's.
        self._done: dict[int, tuple[int, Position | None]] = {}
        self._sources: dict[str, Position] = {}  # of what is consumed
        self._held: dict[str, int] = {}  # up to where sources need nothing again, by stream
        self._checkpoint_due = False
        self._said_s: dict[str, float] = {}  # when, by what was said
        self._putting = WaitingLine()
        self._taking = WaitingLine()
        self._written = asyncio.Event()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix=f"channel-{name}")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix=f"channel-{name}-reader")
        self._tasks: list[asyncio.Task[None]] = []
        self._locks: list[int] = []

    # Start

    async def start(
        self, delivered: Mapping[str, Position] | None, has_source: bool = True
    ) -> Mapping[str, Position]:
        loop = asyncio.get_running_loop()
        found, positions = await loop.run_in_executor(self._disk, self._open, delivered)
        for segment, each in found.frames:
            self._entries.append(Entry(segment, each, None, each.size))
            self.events += each.events
            self._empty += not each.events
        self._tasks = [
            asyncio.create_task(self._write_forever()),
            asyncio.create_task(self._checkpoint_forever()),
        ]
        self._held = {stream: position.offset for stream, position in positions.items()}
        self._taking.wake()
        return positions

    async def run(self) -> None:
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def _open(self, delivered: Mapping[str, Position] | None) -> tuple[Replay, dict[str, Position]]:
        known, delivered = delivered is not None, delivered or {}
        self._lock()
        kept = read_checkpoint(self._directory)
        if kept is None:
            kept = Checkpoint(channel_of(self._data_directories) or uuid.uuid4().hex)
        self.stream = f"{self.name}/{kept.channel}"
        position = delivered.get(self.stream)
        if position is not None:
            kept.consumed = max(kept.consumed or 0, position.offset)
        self.segments = Segments(
            self._data_directories, bytes.fromhex(kept.channel), self._segment_bytes
        )
        found = self.segments.replay(kept.consumed)
        self._consumed = found.consumed
        if kept.consumed is None and found.frames:
            self._consumed = found.frames[0][1].first
        self._sources = dict(kept.sources)
        for gap in found.gaps:
            self._finish(*gap, None)
        end = found.expected or 0
        self._known_end = end
        self._synced = self._next = max(end, self._consumed, kept.synced)
        if not known and self._next:
            # Sinks have more than the files if these are damaged: no number may be theirs.
            self._next += UNKNOWN_EVENTS
        if kept.synced > max(end, self._consumed):
            found.lost += kept.synced - max(end, self._consumed)
            logger.error(
                "Channel %s: the last %d events that were synced are missing; a source that can "
                "read again does so",
                self.name,
                kept.synced - max(end, self._consumed),
            )
        if self._next > end:
            self._finish(end, self._next, None)
        self.events_lost += found.lost
        positions = self._source_positions(found, delivered)
        Checkpoint(kept.channel, self._consumed, self._synced, self._sources).write(self._directory)
        self.segments.delete_before(self._consumed)
        keep_reserve(self._directory)
        self._channel = kept.channel
        return found, positions

    def _lock(self) -> None:
        """Makes the directories, and keeps others out: they would set these segments aside."""
        for directory in dict.fromkeys([self._directory, *self._data_directories]):
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._locks.append(lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.unlock()
                raise PartError(
                    f"channel {self.name}: another channel, or another agent, uses {directory}\n"
                    "Try: checkpointDir and dataDirs of its own for each channel"
                ) from None

    def unlock(self) -> None:
        while self._locks:
            os.close(self._locks.pop())

    def _source_positions(
        self, found: Replay, delivered: Mapping[str, Position]
    ) -> dict[str, Position]:
        """Where the sources continue: behind what the frames hold, or what was delivered."""
        positions = dict(self._sources)
        for held in delivered.values():
            if held.stream != self.stream:
                keep_later(positions, held)
        for segment, each in found.frames:
            position = self.segments.read_position(segment, each)
            if position is not None:
                keep_later(positions, position)
        return positions

    # Put

    async def put(self, batch: EventBatch) -> None:
        size = batch.byte_count()
        await self._putting.wait_for(lambda: self._has_space(len(batch)))
        first = self._next
        self._next += span_of(len(batch))
        self.events += len(batch)
        self.events_put += len(batch)
        self._empty += not batch.bodies
        self._unsynced_bytes += size
        # Only who cannot read again must know that it is safe.
        synced = asyncio.get_running_loop().create_future() if batch.position is None else None
        self._pending.append(Pending(batch, first, size, synced))
        self._written.set()
        self._putting.wake()
        if synced is not None:
            await synced

    def _has_space(self, events: int) -> bool:
        if not events and self._empty >= EMPTY_BATCHES_MAX:
            return False
        return self.events == 0 or (
            self.events + events <= self.capacity and self._unsynced_bytes < UNSYNCED_BYTES_MAX
        )

    async def _write_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._written.wait()
            self._written.clear()
            while self._pending:
                group = self._next_group()
                try:
                    entries = await loop.run_in_executor(self._disk, self._write, group)
                except OSError as problem:
                    self._say("its sources wait; trying again each second", problem)
                    await asyncio.sleep(PAUSE_S)
                    continue
                self._add_written(group, entries)

    def _say(self, what: str, problem: OSError) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s.get(what, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._said_s[what] = now_s
            logger.error("Channel %s: %s: %s", self.name, what, problem)

    def _next_group(self) -> list[Pending]:
        group = []
        size = 0
        for each in self._pending:
            group.append(each)
            size += each.size
            if size >= GROUP_BYTES_MAX:
                break
        return group

    def _write(self, group: Sequence[Pending]) -> list[Entry]:
        for directory in self._data_directories:
            free = shutil.disk_usage(directory).free
            if free < self._minimum_space_bytes:
                raise OSError(
                    f"{directory}: {free} bytes are free, minimumRequiredSpace is "
                    f"{self._minimum_space_bytes}"
                )
        frames = [frame(each.batch, each.first) for each in group]
        end = group[-1].first + span_of(len(group[-1].batch))
        places = self.segments.append(frames, group[0].first, end, self._known_end)
        self._known_end = end
        return [
            Entry(
                segment,
                Found(at, len(head) + len(behind), each.first, len(each.batch)),
                each.batch,
                each.size,
            )
            for each, (head, behind), (segment, at) in zip(group, frames, places, strict=True)
        ]

    def _add_written(self, group: Sequence[Pending], entries: Sequence[Entry]) -> None:
        for each, entry in zip(group, entries, strict=True):
            self._pending.popleft()
            self._unsynced_bytes -= each.size
            if self._memory_bytes + entry.size > MEMORY_BYTES_MAX:
                entry = entry._replace(batch=None)
            else:
                self._memory_bytes += entry.size
            self._entries.append(entry)
            if each.synced is not None and not each.synced.done():
                each.synced.set_result(None)
            if each.batch.position is not None:
                self._hold(each.batch.position)
        self._synced = entries[-1].found.end
        self._taking.wake()
        self._putting.wake()

    def _hold(self, position: Position) -> None:
        if position.offset == FORGET:
            self._held.pop(position.stream, None)
        else:
            self._held[position.stream] = position.offset

    def holds(self, stream: str, offset: int) -> bool:
        return self._held.get(stream, -1) >= offset

    # Take

    async def take(self, events_max: int, bytes_max: int = TAKE_BYTES_MAX) -> list[EventBatch]:
        await self._taking.wait_for(lambda: bool(self._entries))
        taken: list[Entry] = []
        events = size = 0
        while self._entries:
            entry = self._entries[0]
            if taken and (
                events + entry.found.events > events_max or size + entry.size > bytes_max
            ):
                break
            self._entries.popleft()
            events += entry.found.events
            size += entry.size
            taken.append(entry)
        try:
            batches = await self._read(taken)
        except BaseException:
            self._entries.extendleft(reversed(taken))
            self._taking.wake()
            raise
        self.events -= events
        self._empty -= sum(not entry.found.events for entry in taken)
        self._memory_bytes -= sum(entry.size for entry in taken if entry.batch is not None)
        self._putting.wake()
        self._taking.wake()
        return batches if batches else await self.take(events_max, bytes_max)

    async def _read(self, taken: Sequence[Entry]) -> list[EventBatch]:
        """The batches, with the channel's positions; damaged ones are counted and left out."""
        found: list[EventBatch | DamagedFrame]
        if all(entry.batch is not None for entry in taken):
            found = [entry.batch for entry in taken if entry.batch is not None]
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._reader, self._read_entries, taken)
        batches = []
        for entry, batch in zip(taken, found, strict=True):
            if isinstance(batch, DamagedFrame):
                self._lose(entry, batch)
            else:
                batches.append(self._numbered(batch, entry.found.first))
        return batches

    def _read_entries(self, taken: Sequence[Entry]) -> list[EventBatch | DamagedFrame]:
        found: list[EventBatch | DamagedFrame] = []
        for entry in taken:
            if entry.batch is not None:
                found.append(entry.batch)
                continue
            try:
                found.append(self.segments.read(entry.segment, entry.found))
            except DamagedFrame as problem:
                found.append(problem)
        return found

    def _numbered(self, batch: EventBatch, first: int) -> EventBatch:
        end = first + span_of(len(batch))
        return replace(
            batch,
            position=Position(self.stream, end),
            ends=range(first + 1, first + len(batch) + 1),
            source_position=batch.position,
        )

    def _lose(self, entry: Entry, problem: DamagedFrame) -> None:
        entry.segment.damaged = True
        self.events_lost += entry.found.events
        logger.error(
            "Channel %s: %s, %d events from sequence number %d on are lost: %s",
            self.name,
            entry.segment.path,
            entry.found.events,
            entry.found.first,
            problem,
        )
        self._finish(entry.found.first, entry.found.end, None)

    def commit(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            assert batch.position is not None
            end = batch.position.offset
            self._finish(end - span_of(len(batch)), end, batch.source_position)
            self.events_taken += len(batch)
        self._checkpoint_due = True

    def _finish(self, first: int, end: int, source: Position | None) -> None:
        """These numbers are consumed, or have no events; moves up to the first that is not."""
        if first < self._consumed < end:
            first = self._consumed  # the rest of a batch
        self._done[first] = (end, source)
        while (found := self._done.pop(self._consumed, None)) is not None:
            self._consumed, source = found
            if source is not None:
                keep_later(self._sources, source)

    def roll_back(self, batches: Sequence[EventBatch]) -> None:
        for batch in reversed(batches):
            assert batch.position is not None
            first = batch.position.offset - span_of(len(batch))
            size = batch.byte_count()
            plain = replace(batch, position=batch.source_position, source_position=None, ends=())
            found = Found(-1, size, first, len(batch))
            self._entries.appendleft(Entry(NO_SEGMENT, found, plain, size))
            self._memory_bytes += size
            self.events += len(batch)
            self._empty += not batch.bodies
        self._taking.wake()

    # Checkpoints

    async def _checkpoint_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            if self._checkpoint_due:
                await self._write_checkpoint()

    async def _write_checkpoint(self) -> None:
        self._checkpoint_due = False
        kept = Checkpoint(self._channel, self._consumed, self._synced, dict(self._sources))
        try:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._keep, kept)
        except OSError as problem:
            self._say("no checkpoint; trying again each second", problem)
            self._checkpoint_due = True

    def _keep(self, kept: Checkpoint) -> None:
        kept.write(self._directory)
        assert kept.consumed is not None
        self.segments.delete_before(kept.consumed)
        keep_reserve(self._directory)

    async def drain(self) -> None:
        while self._pending:
            await self._putting.wait_for(lambda: not self._pending)

    async def close(self) -> None:
        """Syncs what waits, and writes the checkpoint."""
        if not self._tasks:
            self.unlock()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.drain(), CLOSE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._write_checkpoint()
        await asyncio.get_running_loop().run_in_executor(self._disk, self.segments.close)
        self._disk.shutdown()
        self._reader.shutdown()
        self.unlock()


NO_SEGMENT = Segment(Path(), 0, 0)


def from_options(name: str, options: Options, context: Context) -> FileChannel:
    """Unless told otherwise its files are in the agent's data directory."""
    own = context.data_directory / f"channel-{name}"
    directories = [Path(each).expanduser() for each in options.names("dataDirs")]
    checkpoint = options.text_or_none("checkpointDir")
    return FileChannel(
        name,
        Path(checkpoint) if checkpoint else own / "checkpoint",
        directories or [own / "data"],
        capacity=options.number("capacity"),
        segment_bytes=options.number("maxFileSize"),
        minimum_space_bytes=options.number("minimumRequiredSpace"),
    )
