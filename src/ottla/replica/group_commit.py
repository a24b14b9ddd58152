"""`log.flush.before.ack`: one round of fsyncs for all partitions with new records.

Partitions with new records are collected; while one round runs in a thread, the next is collected.
After a round each partition's synced offset is the end its log had when the round began, and the
high watermark never passes the synced offset, so neither an acknowledgement nor a reader ever sees
a record that a power cut could take back. An fsync that fails is never tried again (the kernel may
have dropped the pages and would then report success): the partition goes offline. One that could
not begin for want of a descriptor is: the partition takes part in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.log.syncing import sync_all
from ottla.seams.disk import OutOfDescriptors

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.syncing import FlushMark, Syncable
    from ottla.replica.partition import Partition
    from ottla.seams.background import Background
    from ottla.seams.clock import Clock

DESCRIPTOR_RETRY_S = 0.1  # until a sync that lacked a descriptor is tried again


class GroupCommit:
    """Syncs appended records, many partitions at a time; the partitions announce the result."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background
        self._waiting: dict[Partition, None] = {}
        self._again: dict[Partition, None] = {}  # no descriptor was free for their files
        self._running = False
        self._idle: asyncio.Future[None] | None = None

    def add(self, partition: Partition) -> None:
        """`partition` has records that are not synced yet."""
        self._waiting[partition] = None
        if not self._running:
            self._running = True
            # Not at once: what else arrives in this turn of the loop shares the round.
            self._clock.call_later(0.0, self._round)

    async def drain(self) -> None:
        """Return when nothing waits any more."""
        while self._running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _end(self) -> None:
        self._running = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _round(self) -> None:
        gathered, self._waiting = self._waiting, {}
        marks: list[tuple[Partition, Log, FlushMark]] = []
        files: list[Sequence[Syncable]] = []
        for partition in gathered:
            try:
                if partition.offline is None:
                    to_sync, mark = partition.log.begin_flush()
            except OutOfDescriptors:
                self._again[partition] = None
                continue
            except OSError as error:
                partition.log.fail_sync(error)
            if partition.offline is not None:
                partition.announce()  # requests that wait for this round end now
                continue
            marks.append((partition, partition.log, mark))
            files.append(to_sync)
        if not marks:
            self._continue()
            return
        future = self._background.thread(sync_all, files)
        future.add_done_callback(lambda done: self._finished(marks, done))

    def _finished(
        self, marks: list[tuple[Partition, Log, FlushMark]], done: asyncio.Future[Any]
    ) -> None:
        error = None if done.cancelled() else done.exception()
        failures: list[OSError | None] = (
            [OSError(str(error or "the broker is stopping"))] * len(marks)
            if error is not None or done.cancelled()
            else done.result()
        )
        for (partition, log, mark), failure in zip(marks, failures, strict=True):
            if partition.log is not log:
                self._waiting[partition] = None  # it was replaced by its copy in another directory
                continue
            if isinstance(failure, OutOfDescriptors):
                self._again[partition] = None
                continue
            if failure is not None:
                partition.log.fail_sync(failure)
            if partition.offline is None:
                partition.synced(mark)
            else:
                partition.announce()
        self._continue()

    def _continue(self) -> None:
        """The next round at once, later if it is only for those that lacked a descriptor, or no
        round.
        """
        if self._waiting:
            self._round()
        elif self._again:
            self._waiting, self._again = self._again, {}
            self._clock.call_later(DESCRIPTOR_RETRY_S, self._round)
        else:
            self._end()
