"""Moves of logs between the data directories of a broker (KIP-113, AlterReplicaLogDirs).

A copy is made in slices on the event loop while the log is in use (future.py). Once it has all, it
takes the log's place. What a crash finds at each step, and does:

1. The copy lies in a folder `-future`.                      The copying goes on.
2. All of it is synced, marked as complete (replaced.py), and in the checkpoints of its directory.
   From before this sync on, syncs of the source do not count: nothing is acknowledged as synced
   that the copy has not synced.                             The copying goes on.
3. In one turn of the event loop: the rest is copied, the folder gets the partition's name, and
   appends go to it. What follows is acknowledged as synced once this name is.
                                                             The start takes the marked folder.
4. The name is synced. The old folder is renamed to `-delete`, which is synced too.
5. The checkpoints are written, the mark is removed, and later the old folder.

A copy that cannot go on (a full disk, a damaged batch) is given up: logged, counted, removed, and
the log stays where it is. A request for another directory gives up the copy as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ottla.log.checkpoints import COMPACTION_METADATA, mark_compacted
from ottla.log.directories import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    DataDirectory,
    partition_folder,
    renamed_folder,
)
from ottla.log.failures import LogProblem
from ottla.log.future import FutureLog
from ottla.log.recovery import create_log
from ottla.log.replaced import mark_replacement, remove_mark, retire_leftovers
from ottla.log.replicated import InvalidReplica
from ottla.log.upkeep import TimeSlice, when_descriptors_are_free, write_partition_metadata
from ottla.seams.disk import OutOfDescriptors
from ottla.seams.waiting import pause
from ottla.settings.validate import throttle_rate

if TYPE_CHECKING:
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.log import Log
    from ottla.log.manager import LogManager, Unopened
    from ottla.settings import Settings

logger = logging.getLogger("ottla.log")

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
# Under way at once, of which as many copy as there are directories: the others wait for syncs and
# checkpoints, and share these.
MOVES_MAX = 32
HELD_S = 0.01  # until it is looked again whether a truncation is over
DESCRIPTOR_RETRY_S = 0.1  # until a step that lacked a descriptor is tried again
REST_S_MAX = 1.0  # at once, so that a rate that was raised takes effect soon


class MoveEnded(Exception):
    """A move does not go on: it was called off, or the broker stops."""


class Move:
    """One log on its way to another data directory."""

    __slots__ = ("called_off", "future", "key", "task")

    def __init__(self, future: FutureLog) -> None:
        self.key = future.key
        self.future = future
        self.called_off = False
        self.task: asyncio.Task[None] | None = None


class Moves:
    """All moves of a broker; as many at a time as it has data directories, as Kafka's threads."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._moving: dict[TopicPartition, Move] = {}
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}  # the last one of each
        self._held: Counter[TopicPartition] = Counter()  # being truncated
        self._slots: asyncio.Semaphore | None = None  # of all moves, and of those that copy
        self._copying: asyncio.Semaphore | None = None
        self._bytes_per_second: int | None = None  # no limit
        self._stopping = False
        self._found: list[tuple[str, TopicPartition, Unopened]] = []
        self.failed: set[TopicPartition] = set()  # given up, and not begun again since
        # Set by the layer above, which uses the logs.
        self.on_replaced: Callable[[Log, Log], object] = lambda old, new: None
        self.on_released: Callable[[Log], object] = lambda log: None

    def reconfigure(self, settings: Settings) -> None:
        """Takes over the rate."""
        self._bytes_per_second = throttle_rate(settings, RATE)

    # What there is

    def futures(self) -> list[FutureLog]:
        """The copies that are being made."""
        return [move.future for move in self._moving.values()]

    def future_of(self, topic: str, partition: int) -> FutureLog | None:
        move = self._moving.get((topic, partition))
        return None if move is None else move.future

    @property
    def max_lag(self) -> int:
        """The largest number of offsets that a copy is behind."""
        return max((future.lag for future in self.futures()), default=0)

    # Beginning and ending

    def move(self, key: TopicPartition, data_dir: DataDirectory) -> None:
        """Begins to bring a log here; gives up a copy to elsewhere. Raises OSError."""
        self.failed.discard(key)
        source = self._manager.get(*key)
        if source is None:
            return
        if self._manager.data_dir_of(source) is not data_dir:
            self.begin(source, data_dir)
        elif self.call_off(key):
            logger.info("%s: stays in %s", source.name, data_dir.path)

    def begin(self, source: Log, data_dir: DataDirectory) -> None:
        """Starts to copy a log; nothing if that copy is under way. Raises OSError."""
        now = self.future_of(source.topic, source.partition)
        if now is not None and now.data_dir is data_dir:
            return
        self.call_off((source.topic, source.partition))
        manager = self._manager
        name = future_folder(source.topic, source.partition, manager.unique())
        log = create_log(
            manager.disk,
            f"{data_dir.path}/{name}",
            source.topic,
            source.partition,
            source.topic_id,
            source.config,
            now_ms=manager.clock.now_ms(),
            jitter_ms=source.jitter_ms,
        )
        source.make_folder()  # it is renamed in the end
        log.make_folder()
        content = manager.partition_metadata(source.topic, source.partition, source.topic_id)
        write_partition_metadata(manager.disk, {log.directory: content})
        self._start(Move(FutureLog(source, log, data_dir)))

    def _start(self, move: Move) -> None:
        self.failed.discard(move.key)
        self._moving[move.key] = move
        move.future.source.on_truncated = move.future.source_truncated
        work = self._run(move, self._tasks.get(move.key))
        move.task = asyncio.get_running_loop().create_task(work, name="move of a log")
        self._tasks[move.key] = move.task

    def call_off(self, key: TopicPartition) -> bool:
        """Gives up a copy, if one is under way; the log stays where it is."""
        move = self._moving.pop(key, None)
        if move is None:
            return False
        move.called_off = True
        if move.task is None:  # not yet begun since the start
            self._drop(move.future)
        return True

    async def settled(self, key: TopicPartition) -> None:
        """Calls off the move of a partition, and returns when nothing of it runs any more."""
        self.call_off(key)
        while (task := self._tasks.get(key)) is not None:
            await asyncio.wait([task])
            await asyncio.sleep(0)
        self.failed.discard(key)

    async def stop(self) -> None:
        """No more steps; the copies stay as they are, for the next start."""
        self._stopping = True
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
            await asyncio.sleep(0)

    @contextmanager
    def held(self, log: Log) -> Iterator[None]:
        """No copy takes the place of this log meanwhile: it is about to be truncated."""
        key = (log.topic, log.partition)
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    # What a start finds

    def found(self, path: str, key: TopicPartition, entry: Unopened) -> None:
        """A start has found the folder of a copy; `entry` has what the checkpoints say."""
        self._found.append((path, key, entry))

    async def load(self) -> None:
        """Opens the copies that were found, once all logs are known. One is dropped that is of
        another topic, in the directory of its log, or the second of a partition.
        """
        manager, time_slice = self._manager, TimeSlice(self._manager.clock)
        patiently = partial(when_descriptors_are_free, manager.clock)
        for path, key, entry in self._found:
            source = await patiently(partial(manager.get, *key))
            if source is None:
                logger.warning("%s is left alone: its partition is in no data directory", path)
                continue
            entry = entry._replace(topic_id=source.topic_id)
            log = await patiently(partial(manager.open_at, path, key, entry))
            future = FutureLog(source, log, entry.data_dir)
            if (
                await patiently(partial(manager.read_topic_id, path)) != source.topic_id
                or manager.data_dir_of(source) is entry.data_dir
                or key in self._moving
            ):
                self._drop(future)
            else:
                self._moving[key] = Move(future)
            await time_slice.yield_if_over()
        self._found.clear()

    def begin_found(self) -> None:
        """Goes on with the copies of the last run; one that is not a copy is begun again."""
        for move in list(self._moving.values()):
            future = move.future
            source, data_dir = future.source, future.data_dir
            if move.task is not None:
                continue
            if future.agrees():
                logger.info("%s: goes on to be copied to %s", source.name, data_dir.path)
                self._start(move)
                continue
            logger.warning("%s: not a copy, it is made anew", future.log.directory)
            self.call_off(move.key)
            try:
                self.begin(source, data_dir)
            except OSError as error:
                self._failed(source, data_dir, str(error))

    # One move

    async def _run(self, move: Move, before: asyncio.Task[None] | None) -> None:
        manager, source = self._manager, move.future.source
        if before is not None:
            await asyncio.wait([before])
        if self._slots is None:
            self._slots = asyncio.Semaphore(MOVES_MAX)
            self._copying = asyncio.Semaphore(len(manager.directories))
        await manager.cleaner.pause(source)
        try:
            async with self._slots:
                await self._patiently(self._copy_and_replace, move)
                await self._finish(move)
        except MoveEnded:
            if move.called_off:
                self._drop(move.future)
        except (OSError, LogProblem, InvalidReplica) as problem:
            self._give_up(move, str(problem))
        except Exception:
            logger.exception("%s: the move to another directory failed", source.name)
            self._give_up(move, "an error in the program")
        finally:
            manager.cleaner.resume(source)
            if self._moving.get(move.key) is move and not self._stopping:
                del self._moving[move.key]
            if self._tasks.get(move.key) is move.task:
                del self._tasks[move.key]

    async def _copy_and_replace(self, move: Move) -> None:
        future, source = move.future, move.future.source
        if not future.checkpointed:
            # Nothing may vouch for a copy in a folder that is not this one.
            await self._manager.checkpointer.write([future.data_dir])
        while True:
            assert self._copying is not None
            async with self._copying:
                await self._catch_up(move)
            if move.key in self._held:
                await pause(self._manager.clock, HELD_S)
                continue
            source.holds_syncs = True
            try:
                future.align()
                await self._secure(move)
                # Acknowledgements may wait for this: the rate does not count.
                await self._catch_up(move, rests=False)
                # Nothing has run since the copy was complete.
                if future.checkpointed and move.key not in self._held:
                    self._replace(move)
                    break
            finally:
                source.holds_syncs = False
                if source.offline is None:
                    self.on_released(source)
            await self._retract(move)

    async def _patiently(self, step: Callable[[Move], Awaitable[None]], move: Move) -> None:
        """Again while no descriptor is free for it: the disks are as they were."""
        while True:
            try:
                return await step(move)
            except OutOfDescriptors as error:
                if move.called_off or self._stopping:
                    raise MoveEnded from error
                logger.info("%s: its move waits: %s", move.future.source.name, error)
                await pause(self._manager.clock, DESCRIPTOR_RETRY_S)

    async def _catch_up(self, move: Move, *, rests: bool = True) -> None:
        """Returns, in the same turn, when the copy has all that the log has."""
        future, clock = move.future, self._manager.clock
        while True:
            self._check(move)
            if future.is_cut:
                await self._retract(move)
            elif not future.lag and future.log.log_start_offset >= future.source.log_start_offset:
                return
            await self._read_ahead(future)
            self._check(move)
            end_offset = future.log.end_offset
            copied = future.copy(now_ms=clock.now_ms())
            if future.lag and future.log.end_offset == end_offset and not future.is_cut:
                raise InvalidReplica(f"no batch can be read at offset {end_offset}")
            if future.lag:
                await self._rest(move, copied if rests else 0)

    def _check(self, move: Move) -> None:
        if move.called_off or self._stopping:
            raise MoveEnded
        for log in (move.future.source, move.future.log):
            if log.offline is not None:
                raise OSError(log.offline)

    async def _read_ahead(self, future: FutureLog) -> None:
        """What is not in the page cache is read by a thread first."""
        found = future.next_range()
        if found is not None and not found.file.is_cached(found.position, found.size):
            work = found.file.reading_ahead(found.position, found.size)
            await self._manager.background.thread(work)

    async def _rest(self, move: Move, copied_bytes: float) -> None:
        """Waits as long as the rate asks for so many bytes; it may change meanwhile."""
        while copied_bytes >= 1 and not (move.called_off or self._stopping):
            if self._bytes_per_second is None:
                break
            # The rate is the broker's; those that copy share it.
            copying = min(len(self._moving), len(self._manager.directories))
            rate = self._bytes_per_second / max(copying, 1)
            rest_s = min(copied_bytes / rate, REST_S_MAX) if rate else REST_S_MAX
            await pause(self._manager.clock, rest_s)
            copied_bytes -= rate * rest_s
        await asyncio.sleep(0)

    async def _retract(self, move: Move) -> None:
        """The checkpoints do not vouch for the copy: it is about to be cut or to be written on."""
        if move.future.checkpointed:
            move.future.checkpointed = False
            await self._manager.checkpointer.write([move.future.data_dir])

    async def _secure(self, move: Move) -> None:
        """Step 2."""
        manager, future = self._manager, move.future
        source, log, thread = future.source, future.log, manager.background.thread
        if manager.disk.exists(f"{source.directory}/{COMPACTION_METADATA}"):
            await thread(mark_compacted, manager.disk, log.directory)
        await manager.flusher.flush([log], indexes=True)
        self._check(move)
        if log.recovery_point < log.end_offset:
            raise OutOfDescriptors(f"{log.directory} could not be synced")
        for path in await thread(
            retire_leftovers, manager.disk, manager.directories, source.directory, manager.unique
        ):
            manager.remover.folder(path, 0)
        await thread(mark_replacement, manager.disk, log.directory, source.directory)
        if not future.is_cut:
            future.checkpointed = True
            await manager.checkpointer.write([future.data_dir])

    def _replace(self, move: Move) -> None:
        """Step 3."""
        future, manager = move.future, self._manager
        source, log = future.source, future.log
        log.rename(f"{future.data_dir.path}/{partition_folder(*move.key)}")
        log.inherit(source)
        source.on_truncated = None
        manager.replace(source, log)
        del self._moving[move.key]
        self.on_replaced(source, log)
        logger.info("%s: moved from %s to %s", log.name, source.directory, log.directory)

    async def _finish(self, move: Move) -> None:
        """Steps 4 and 5."""
        manager, future = self._manager, move.future
        source, log, disk = future.source, future.log, manager.disk
        old_dir = manager.data_dir_of(source)
        await manager.metadata_files.withdraw([source.directory])
        try:
            await manager.cleaner.sync_names(disk, future.data_dir.path)
        except OSError as error:
            log.fail_sync(error)
            return
        renamed = renamed_folder(*move.key, manager.unique(), DELETE_SUFFIX)
        try:
            disk.rename(source.directory, f"{old_dir.path}/{renamed}")
            await manager.cleaner.sync_names(disk, old_dir.path)
            await self._patiently(self._note_end, move)
        except OSError as error:
            logger.warning("%s: the next start removes it: %s", source.directory, error)
            return
        delay_ms = log.config.file_delete_delay_ms
        manager.remover.folder(f"{old_dir.path}/{renamed}", delay_ms)

    async def _note_end(self, move: Move) -> None:
        """Step 5."""
        manager, future = self._manager, move.future
        await manager.checkpointer.write([future.data_dir, manager.data_dir_of(future.source)])
        await manager.background.thread(remove_mark, manager.disk, future.log.directory)

    # A copy that is given up

    def _give_up(self, move: Move, reason: str) -> None:
        self._failed(move.future.source, move.future.data_dir, reason)
        self._drop(move.future)

    def _failed(self, source: Log, data_dir: DataDirectory, reason: str) -> None:
        logger.error(
            "%s: is not moved to %s, and stays where it is: %s", source.name, data_dir.path, reason
        )
        self.failed.add((source.topic, source.partition))

    def _drop(self, future: FutureLog) -> None:
        source, log, manager = future.source, future.log, self._manager
        if source.on_truncated == future.source_truncated:
            source.on_truncated = None
        if not log.directory.endswith(FUTURE_SUFFIX):
            return  # it has taken the place of the log
        log.offline = log.offline or "the copy was given up"
        unique = manager.unique()
        renamed = renamed_folder(source.topic, source.partition, unique, DELETE_SUFFIX)
        path = f"{future.data_dir.path}/{renamed}"
        try:
            manager.disk.rename(log.directory, path)
        except OSError as error:
            logger.warning("%s is left over: %s", log.directory, error)
        else:
            manager.remover.folder(path, 0)


def future_folder(topic: str, partition: int, unique: str) -> str:
    """The name of a copy's folder; a topic of a long name cannot have one (KAFKA-4893)."""
    return f"{partition_folder(topic, partition)}.{unique}{FUTURE_SUFFIX}"
