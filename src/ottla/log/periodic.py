"""The periodic work: retention, flushing by time, checkpoints, producers' expiry, cleaning.

Each kind has its own interval (Kafka's options) and never runs twice at once: the next round is set
when one is over. Rounds walk over all logs in time slices. A failure of one log leaves the others
alone; a failure of a round is logged, and the next round runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.log import checkpoints
from ottla.log.retention import breaches, facts_of
from ottla.log.segment import LOG
from ottla.log.swap import SEGMENT_FILES
from ottla.log.upkeep import TimeSlice

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.manager import LogManager
    from ottla.log.segment import Segment
    from ottla.seams.clock import Timer
    from ottla.settings import Settings

logger = logging.getLogger("ottla.log")

FLUSH_CHECK_MS_MAX = 1_000  # a flush.ms is kept to this, whatever the scheduler's interval
TIMER_MS_MAX = 2**31  # longer than anybody waits; some timers cannot take more


class Round:
    """One kind of work, done again and again."""

    def __init__(
        self,
        manager: "LogManager",
        name: str,
        interval_ms: int,
        work: Callable[[], Awaitable[None]],
    ) -> None:
        self._manager = manager
        self._name = name
        self.interval_ms = interval_ms
        self._work = work
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def begin(self, delay_ms: int) -> None:
        delay_s = min(delay_ms, TIMER_MS_MAX) / 1000
        self._timer = self._manager.clock.call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._once(), name=self._name)

    async def _once(self) -> None:
        try:
            await self._work()
        except OSError as error:  # the error says enough without a traceback
            logger.error("%s failed; it is tried again later: %s", self._name, error)
        except Exception:
            logger.exception("%s failed; it is tried again later", self._name)
        self._task = None
        if not self._stopped:
            self.begin(self.interval_ms)

    async def stop(self) -> None:
        """Sets no more rounds, and waits for the one under way."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])


class Periodic:
    """All rounds of a log manager."""

    def __init__(self, manager: "LogManager", settings: "Settings") -> None:
        self._manager = manager
        self._initial_delay_ms = settings.integer("log.initial.task.delay.ms")
        of = settings.integer
        self._rounds = [
            Round(manager, "retention", of("log.retention.check.interval.ms"), self.retain),
            Round(
                manager,
                "flush by time",
                min(of("log.flush.scheduler.interval.ms"), FLUSH_CHECK_MS_MAX),
                self.flush_by_time,
            ),
            Round(
                manager,
                "recovery point checkpoint",
                of("log.flush.offset.checkpoint.interval.ms"),
                self.checkpoint,
            ),
            Round(
                manager,
                "high watermark checkpoint",
                of("replica.high.watermark.checkpoint.interval.ms"),
                self.checkpoint_high_watermarks,
            ),
            Round(
                manager,
                "producer expiry",
                of("producer.id.expiration.check.interval.ms"),
                self.expire_producers,
            ),
        ]
        self._cleaning: Round | None = None
        if settings.flag("log.cleaner.enable"):
            self._cleaning = Round(manager, "cleaner", of("log.cleaner.backoff.ms"), self.clean)

    def reconfigure(self, settings: "Settings") -> None:
        if self._cleaning is not None:
            self._cleaning.interval_ms = settings.integer("log.cleaner.backoff.ms")

    def begin(self) -> None:
        for each in self._rounds:
            each.begin(min(self._initial_delay_ms, each.interval_ms))
        if self._cleaning is not None:
            self._cleaning.begin(self._cleaning.interval_ms)

    async def stop(self) -> None:
        await self._manager.cleaner.stop()
        for each in [*self._rounds, *([self._cleaning] if self._cleaning else [])]:
            await each.stop()

    async def retain(self) -> None:
        """Deletes the segments that retention lets go, of every log."""
        manager = self._manager
        time_slice = TimeSlice(manager.clock)
        for log in manager.every():
            if log.offline is None and not manager.cleaner.is_cleaning(log):
                retain_log(manager, log)
            await time_slice.yield_if_over()

    async def flush_by_time(self) -> None:
        manager = self._manager
        if manager.flush_by_time:
            manager.flusher.by_time(list(manager.flush_by_time), manager.clock.now_ms())

    async def checkpoint(self) -> None:
        await self._manager.checkpointer.write(self._manager.directories)

    async def checkpoint_high_watermarks(self) -> None:
        """Where nobody else has replicas, the high watermark follows from the log."""
        manager = self._manager
        if manager.replicated():
            await manager.checkpointer.write(manager.directories, [checkpoints.HIGH_WATERMARKS])

    async def expire_producers(self) -> None:
        manager = self._manager
        time_slice = TimeSlice(manager.clock)
        for log in manager.opened():
            log.expire_producers(manager.clock.now_ms())
            await time_slice.yield_if_over()

    async def clean(self) -> None:
        manager = self._manager
        if await manager.cleaner.run():
            await manager.checkpointer.write(manager.directories, [checkpoints.CLEANER_OFFSETS])


def retain_log(manager: "LogManager", log: "Log") -> int:
    """Deletes what one log need not keep; answers how many segments went."""
    now_ms = manager.clock.now_ms()

    def modified(segment: "Segment") -> int:
        return manager.disk.modified_ms(segment.path(LOG))

    try:
        breach = breaches(
            [facts_of(segment, modified) for segment in log.segments],
            log.config,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
            high_watermark=manager.high_watermark_of(log),
        )
        if breach is None:
            return 0
        removed = log.delete_oldest(breach.segments, now_ms=now_ms)
        paths = [segment.path(kind) for segment in removed for kind in SEGMENT_FILES]
    except OSError as error:
        log.fail("cannot delete old segments", error)
        return 0
    logger.info(
        "%s: %d segments deleted by %s, the log begins at offset %d now",
        log.name, len(removed), breach.reason, log.log_start_offset,
    )  # fmt: skip
    manager.remover.files(paths, log.config.file_delete_delay_ms)
    return len(removed)
