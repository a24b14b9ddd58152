"""Background work on logs, in pieces small enough not to delay clients.

`TimeSlice` lets a long walk share the event loop. The others work on a thread: `Remover`
deletes files and folders some time after they went out of use, `PartitionMetadataWriter` makes new
folders and writes the topic's id and configs into them, `Flusher` makes appended records last: when
a segment is full, when `flush.messages` or `flush.ms` say so, and at the end.

A log whose fsync fails goes offline and is not tried again: the kernel may have dropped the pages
that it could not write, and would report success the next time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from ottla.log.checkpoints import PARTITION_METADATA, format_partition_metadata
from ottla.log.directories import parse_folder
from ottla.log.syncing import sync_all
from ottla.log.transaction_index_checkpoint import note_transaction_index
from ottla.seams.disk import OutOfDescriptors
from ottla.seams.waiting import pause

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.syncing import FlushMark, Syncable
    from ottla.seams.background import Background
    from ottla.seams.clock import Clock, Timer
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

T = TypeVar("T")

SLICE_S = 0.005  # the design allows 10 ms; half of it, for a step may take a while itself
NAMES_AT_ONCE = 64  # names in one call on a thread, so that a stop does not wait for long
LOGS_AT_ONCE = 64  # logs synced by one call on a thread
DESCRIPTORS_WAIT_S = 60.0  # others may give some back: a system has no more than a number of them
DESCRIPTORS_RETRY_S = 1.0
FLUSH_MS_NEVER = 2**62  # flush.ms is a Java long; so large a one leaves syncing to the system


class TimeSlice:
    """Yields to the event loop, between the steps of a long walk, when 5 ms are used up."""

    __slots__ = ("_clock", "_since")

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._since = clock.monotonic()

    async def yield_if_over(self) -> None:
        if self._clock.monotonic() - self._since >= SLICE_S:
            await asyncio.sleep(0)
            self._since = self._clock.monotonic()


async def when_descriptors_are_free(clock: "Clock", step: Callable[[], T]) -> T:
    """What a step of the start returns, which is repeated while no descriptor is free for it.

    Raises OutOfDescriptors after a while: then there are too few for this broker.
    """
    end_s = clock.monotonic() + DESCRIPTORS_WAIT_S
    while True:
        try:
            return step()
        except OutOfDescriptors as error:
            if clock.monotonic() >= end_s:
                raise
            logger.warning("the start waits: %s", error)
        await pause(clock, DESCRIPTORS_RETRY_S)


class Remover:
    """Removes files and folders after a delay; what a crash leaves behind the next load removes."""

    def __init__(self, disk: "Disk", clock: "Clock", background: "Background") -> None:
        self._disk = disk
        self._clock = clock
        self._background = background
        self._waiting: deque[tuple[float, str, bool]] = deque()
        self._timer: Timer | None = None
        self._running: asyncio.Future[int] | None = None
        self._closed = False

    def files(self, paths: Iterable[str], delay_ms: int) -> None:
        self._add(paths, delay_ms, is_folder=False)

    def folder(self, path: str, delay_ms: int) -> None:
        self._add([path], delay_ms, is_folder=True)

    def __len__(self) -> int:
        return len(self._waiting)

    def _add(self, paths: Iterable[str], delay_ms: int, *, is_folder: bool) -> None:
        due_s = self._clock.monotonic() + delay_ms / 1000
        out_of_order = bool(self._waiting) and due_s < self._waiting[-1][0]
        self._waiting.extend((due_s, path, is_folder) for path in paths)
        if out_of_order:  # topics differ in their delay
            self._waiting = deque(sorted(self._waiting))
            self._stop_timer()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._waiting and self._timer is None and self._running is None and not self._closed:
            delay_s = max(0.0, self._waiting[0][0] - self._clock.monotonic())
            self._timer = self._clock.call_later(delay_s, self._due)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic() + 0.001
        due: list[tuple[str, bool]] = []
        while self._waiting and self._waiting[0][0] <= now_s and len(due) < NAMES_AT_ONCE:
            _, path, is_folder = self._waiting.popleft()
            due.append((path, is_folder))
        if due:
            self._running = self._background.thread(remove, self._disk, due)
            self._running.add_done_callback(self._done)
        else:
            self._set_timer()

    def _done(self, _: "asyncio.Future[int]") -> None:
        self._running = None
        self._set_timer()

    async def close(self) -> None:
        """Stops; what is left to remove is found again at the next start."""
        self._closed = True
        self._stop_timer()
        if self._running is not None:
            await asyncio.wait([self._running])


def remove(disk: "Disk", paths: Sequence[tuple[str, bool]]) -> int:
    """On a thread: unlinks files and folders; what cannot go stays, with a line in the log."""
    removed = 0
    for path, is_folder in paths:
        try:
            if is_folder:
                disk.rmtree(path)
            else:
                disk.unlink(path)
            removed += 1
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s cannot be removed: %s", path, error)
    return removed


class PartitionMetadataWriter:
    """Writes `partition.metadata` on a thread, the newest content for each folder; makes new ones.

    The creation of thousands of partitions does not wait for it: what a crash keeps from being
    made or written is in the tree all the same, and the next start does it. A new folder lasts once
    the first records in it are synced.
    """

    def __init__(self, disk: "Disk", background: "Background") -> None:
        self._disk = disk
        self._background = background
        self._waiting: dict[str, bytes] = {}  # by folder: no more than there are partitions
        self._new: set[str] = set()  # those of `_waiting` that may have to be made
        # Called with a new folder that cannot be made.
        self.on_failed: Callable[[str, OSError], object] = lambda directory, error: None
        self._writing: dict[str, bytes] = {}
        self._running: asyncio.Future[dict[str, OSError]] | None = None

    def add(
        self,
        directory: str,
        topic_id: bytes,
        configs: Mapping[str, str] | None,
        *,
        is_new: bool = False,
    ) -> None:
        """`is_new`: the folder may have to be made first."""
        folder = parse_folder(directory.rpartition("/")[2])
        partition = None if folder is None else folder[1]
        self._waiting[directory] = format_partition_metadata(topic_id, configs, partition)
        if is_new:
            self._new.add(directory)
        if self._running is None:
            self._next()

    async def withdraw(self, directories: Iterable[str]) -> None:
        """Returns when nothing will be written into these folders: they are to be renamed.

        Else the id of a deleted topic could come into the folder of the next one of its name.
        """
        wait = False
        for directory in directories:
            self._waiting.pop(directory, None)
            self._new.discard(directory)
            wait = wait or directory in self._writing
        if wait and self._running is not None:
            await asyncio.wait([self._running])

    def _next(self) -> None:
        self._writing = dict(islice(self._waiting.items(), NAMES_AT_ONCE))
        for directory in self._writing:
            del self._waiting[directory]
        new = self._new.intersection(self._writing)
        self._new -= new
        if self._writing:
            self._running = self._background.thread(
                write_partition_metadata, self._disk, self._writing, new
            )
            self._running.add_done_callback(self._done)

    def _done(self, done: "asyncio.Future[dict[str, OSError]]") -> None:
        self._running = None
        if done.cancelled():
            return
        self._next()
        for directory, error in done.result().items():
            self.on_failed(directory, error)

    async def settle(self) -> None:
        """Returns when all are written."""
        while self._running is not None:
            await asyncio.wait([self._running])
            await asyncio.sleep(0)


def write_partition_metadata(
    disk: "Disk", contents: Mapping[str, bytes], new: Collection[str] = ()
) -> dict[str, OSError]:
    """On a thread, for each folder; those that are new may have to be made, or cannot be."""
    failures: dict[str, OSError] = {}
    for directory, content in contents.items():
        path = f"{directory}/{PARTITION_METADATA}"
        is_new = directory in new
        try:
            # A new file is synced with the first records, unless they came first and made the
            # folder; one that is replaced must not be lost.
            sync = disk.exists(directory if is_new else path)
            if is_new:
                try:
                    disk.mkdir(directory)
                except OSError as error:
                    failures[directory] = error
                    continue
            disk.write_atomically(path, content, sync=sync)
        except FileNotFoundError:
            continue  # deleted again meanwhile
        except OSError as error:
            logger.warning("%s: the topic's id and configs cannot be written: %s", directory, error)
    return failures


class Flusher:
    """Syncs logs on a thread, many in one go."""

    def __init__(self, clock: "Clock", background: "Background") -> None:
        self._clock = clock
        self._background = background
        self._wanted: dict[Log, None] = {}
        self._running: asyncio.Future[list[OSError | None]] | None = None
        self._flushed_ms: dict[Log, int] = {}
        self._started_ms = clock.now_ms()

    def soon(self, log: "Log") -> None:
        """A log has a full segment, or `flush.messages` records: sync it beside the loop."""
        self._wanted[log] = None
        if self._running is None:
            self._next()

    def by_time(self, logs: Iterable["Log"], now_ms: int) -> None:
        """Syncs those that have waited for `flush.ms`."""
        for log in logs:
            if log.offline is not None or log.recovery_point >= log.end_offset:
                continue
            if now_ms - self._flushed_ms.get(log, self._started_ms) >= log.config.flush_ms:
                self.soon(log)

    def forget(self, log: "Log") -> None:
        self._wanted.pop(log, None)
        self._flushed_ms.pop(log, None)

    async def flush(self, logs: Sequence["Log"], *, indexes: bool) -> None:
        """Syncs all of these and returns when they are safe; one that fails is offline then."""
        running = []
        time_slice = TimeSlice(self._clock)
        for start in range(0, len(logs), LOGS_AT_ONCE):
            marks, files = _begin(logs[start : start + LOGS_AT_ONCE], indexes=indexes)
            await time_slice.yield_if_over()
            if files:
                running.append((marks, self._background.thread(sync_all, files)))
        for marks, future in running:
            self._finish(marks, await future)

    async def settle(self) -> None:
        """Returns when no sync is under way."""
        while self._running is not None:
            await asyncio.wait([self._running])
            await asyncio.sleep(0)

    def _next(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            marks, files = _begin(wanted, indexes=False)
            if files:
                self._running = self._background.thread(sync_all, files)
                self._running.add_done_callback(partial(self._done, marks))
                return

    def _done(
        self, marks: list[tuple["Log", "FlushMark"]], done: "asyncio.Future[list[OSError | None]]"
    ) -> None:
        self._running = None
        if done.cancelled():
            return
        self._finish(marks, done.result())
        self._next()

    def _finish(
        self, marks: list[tuple["Log", "FlushMark"]], failures: list[OSError | None]
    ) -> None:
        now_ms = self._clock.now_ms()
        for (log, mark), failure in zip(marks, failures, strict=True):
            if failure is not None:
                log.fail_sync(failure)
            elif log.offline is None:
                log.finish_flush(mark)
                if log.config.flush_ms < FLUSH_MS_NEVER:
                    self._flushed_ms[log] = now_ms


def _begin(
    logs: Iterable["Log"], *, indexes: bool
) -> tuple[list[tuple["Log", "FlushMark"]], list[list["Syncable"]]]:
    marks: list[tuple[Log, FlushMark]] = []
    files: list[list[Syncable]] = []
    for log in logs:
        if log.offline is not None:
            continue
        try:
            to_sync, mark = log.begin_flush(indexes=indexes)
        except OSError as error:
            log.fail_sync(error)
            continue
        marks.append((log, mark))
        files.append(to_sync)
    return marks, files


def finish(log: "Log") -> bool:
    """Prepares a log for a clean stop; says whether it has to be synced."""
    if log.offline is not None or is_finished(log):
        return False
    try:
        log.take_snapshot()
        log.active.seal()
        note_transaction_index(log.disk, log.segments)
    except OSError as error:
        log.fail(f"cannot be closed: {error}")
        return False
    return True


def is_finished(log: "Log") -> bool:
    """Whether a log is as a clean stop leaves it: all synced, the producers' state written."""
    if log.recovery_point < log.end_offset:
        return False
    nothing_in_active = log.end_offset == log.active.base_offset
    return nothing_in_active or (bool(log.snapshots) and log.snapshots[-1] == log.end_offset)
