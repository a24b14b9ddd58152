"""The scrubber: reads all logs again, slowly, and reports batches that were damaged at rest.

A pass goes over every log up to its limit (what is synced and committed), at
`log.scrub.bytes.per.second`, and begins `log.scrub.interval.ms` after the end of the last one.
Where it has come to is not kept: a pass begins with a log drawn at random, so that no log is left
out for ever on a broker that is often started again.

The bytes are read in slices on a thread, and leave the page cache as it was. What the page cache
has is checked, not what is on the device below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.log.failures import CorruptSegment
from ottla.log.reading import segments_from
from ottla.log.repair import may_have_gaps
from ottla.log.scrubbing import BatchWalk, Damage, damage_of, ends_at_next
from ottla.log.upkeep import TimeSlice
from ottla.seams.disk import NO_DESCRIPTOR, OutOfDescriptors
from ottla.seams.waiting import pause

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.manager import LogManager
    from ottla.log.segment import Segment
    from ottla.seams.chance import Chance
    from ottla.seams.clock import Timer
    from ottla.settings import Settings

logger = logging.getLogger("ottla.log")

SLICE_BYTES = 256 * 1024  # its checksum takes less than a millisecond
FIRST_DELAY_MS = 60_000  # a start has other things to read
TIMER_MS_MAX = 2**31
ENDS_S = 0.005  # between two segments whose ends are looked at


class Scrubber:
    """Walks the logs of one broker, one at a time.

    `limit_of(log)`: below this offset records are synced and committed. `damaged(log, damage)` is
    called for each damage that is found.
    """

    def __init__(
        self,
        logs: LogManager,
        chance: Chance,
        *,
        limit_of: Callable[[Log], int],
        damaged: Callable[[Log, Damage], object],
    ) -> None:
        self._logs = logs
        self._clock = logs.clock
        self._chance = chance
        self._limit_of = limit_of
        self._damaged = damaged
        self.bytes_per_second = 0
        self.interval_ms = 0
        self.bytes_read = 0  # since the start
        self.passes = 0
        self._begun = False
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None

    def reconfigure(self, settings: Settings) -> None:
        """Take over the options; a pass under way goes on at the new rate."""
        self.bytes_per_second = settings.integer("log.scrub.bytes.per.second")
        interval_ms, self.interval_ms = (
            self.interval_ms,
            settings.integer("log.scrub.interval.ms"),
        )
        if self._timer is not None and (
            not self.bytes_per_second or interval_ms != self.interval_ms
        ):
            self._timer.cancel()
            self._timer = None
        if self._begun and self._timer is None and self._task is None:
            self.begin()

    def begin(self) -> None:
        """Set the next pass, if there is one."""
        self._begun = True
        self._timer = None
        if not self.bytes_per_second:
            return
        delay_ms = min(self.interval_ms, TIMER_MS_MAX if self.passes else FIRST_DELAY_MS)
        self._timer = self._clock.call_later(delay_ms / 1000, self._due)

    def stop(self) -> None:
        """Give up a pass that is under way, and begin no other."""
        self._begun = False
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _due(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._pass(), name="scrub")

    async def _pass(self) -> None:
        try:
            await self.scrub_all()
        except Exception:
            logger.exception("the scrubber has failed; the next pass begins later")
        self._task = None
        self.begin()

    async def scrub_all(self) -> None:
        """One pass over all logs; the first one looks at the ends of all segments before."""
        if not self.passes:
            await self._each(self.check_ends)
        if await self._each(self.scrub):
            self.passes += 1

    async def _each(self, check: Callable[[Log], Coroutine[Any, Any, None]]) -> bool:
        """Apply a check to every log, from one drawn at random on; whether it came to the last."""
        found = sorted(self._logs.found())
        first = self._chance.integer(0, len(found) - 1) if found and self.bytes_per_second else 0
        for topic, partition, _ in [*found[first:], *found[:first]]:
            if not self.bytes_per_second:
                return False
            try:
                log = self._logs.get(topic, partition)
                if log is not None:
                    await check(log)
            except OutOfDescriptors as error:
                logger.info("%s-%d is not scrubbed now: %s", topic, partition, error)
            except Exception:
                # One log that cannot be checked keeps no other from it.
                logger.exception("%s-%d cannot be scrubbed", topic, partition)
            await asyncio.sleep(0)
        return True

    async def check_ends(self, log: Log, *, urgent: bool = False) -> None:
        """Check the segments that do not reach to the next one: a whole pass may take days.

        `urgent`: somebody waits for it, so no rate counts, and none need be set.
        """
        if log.offline is not None or len(log.segments) < 2 or may_have_gaps(log):
            return
        time_slice = TimeSlice(self._clock)
        for segment in log.segments[:-1]:
            try:
                if not ends_at_next(segment):
                    await self._scrub_segment(log, segment, urgent=urgent)
            except FileNotFoundError:
                continue  # retention has renamed it
            if urgent:
                await time_slice.yield_if_over()
            else:
                await pause(self._clock, ENDS_S)

    async def scrub(self, log: Log) -> None:
        """Check a log."""
        for segment in list(log.segments):
            if segment.base_offset < self._limit_of(log):
                await self._scrub_segment(log, segment)

    async def scrub_range(self, log: Log, first_offset: int, next_offset: int) -> None:
        """Check the segments that hold these offsets; somebody waits for it."""
        for segment in segments_from(log.segments, first_offset):
            if segment.base_offset < next_offset:
                await self._scrub_segment(log, segment, urgent=True)

    async def scrub_at(self, log: Log, offset: int) -> None:
        """Check the batches from the one that holds `offset` on, a slice of them."""
        segment = segments_from(log.segments, offset)[0]
        try:
            position = segment.position_of(offset)
        except CorruptSegment:
            await self._scrub_segment(log, segment)
            return
        if position is not None:
            first_offset = min(offset, segment.batch_at(position).base_offset)
            end = min(segment.size_bytes, position + SLICE_BYTES)
            await self._scrub_segment(log, segment, position, first_offset, end)

    async def _scrub_segment(
        self,
        log: Log,
        segment: Segment,
        position: int = 0,
        first_offset: int = 0,
        stop_position: int = 2**62,
        *,
        urgent: bool = False,
    ) -> None:
        """Check a segment, or the batches in it from `position` on that begin before another."""
        end = segment.size_bytes
        walk = BatchWalk(
            position=position,
            end_position=end,
            next_offset=max(first_offset, segment.base_offset),
            end_offset=self._limit_of(log),
        )
        while not walk.ended and walk.position < stop_position:
            data = await self._read(log, segment, position, min(SLICE_BYTES, end - position))
            if data is None:
                return
            if not urgent:
                await self._wait_for(len(data))
            # It may have gone meanwhile, or been cut and written again.
            there = any(each is segment for each in log.segments) and segment.size_bytes >= end
            if not there or log.offline is not None or not (urgent or self.bytes_per_second):
                return
            position += len(data)
            unsound = walk.take(data) if data else walk.cut_short()
            if unsound is not None:
                damage = damage_of(segment, unsound, end)
                if damage.next_offset > log.log_start_offset:
                    self._damaged(log, damage)
                position = damage.end_position
                walk = BatchWalk(
                    position=position,
                    end_position=end,
                    next_offset=damage.next_offset,
                    end_offset=self._limit_of(log),
                )
        ends_early = walk.position == end and walk.next_offset < segment.next_offset
        if ends_early and not walk.is_compacted:
            self._ends_early(log, segment, walk)

    def _ends_early(self, log: Log, segment: Segment, walk: BatchWalk) -> None:
        """The batches of a segment end before the next one begins: that was cut off, or a segment
        between them removed, while the broker did not run; unless it is compaction's work.
        """
        is_closed = any(each is segment for each in log.segments[:-1])
        if not is_closed or segment.next_offset > self._limit_of(log) or may_have_gaps(log):
            return
        if segment.next_offset > log.log_start_offset:
            self._damaged(log, damage_of(segment, walk.cut_short(), walk.position))

    async def _wait_for(self, size: int) -> None:
        """Until so many bytes are due; in parts, so that another rate counts from now on."""
        while size > 0 and (rate := self.bytes_per_second):
            part = min(size, rate)
            await pause(self._clock, part / rate)
            size -= part

    async def _read(self, log: Log, segment: Segment, position: int, size: int) -> bytes | None:
        """The next bytes; None if they cannot be read."""
        try:
            data = await self._logs.background.thread(segment.file.reading_once(position, size))
        except FileNotFoundError:
            return None  # retention or compaction has renamed it
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise OutOfDescriptors(*error.args) from error
            # Whoever needs it finds out: until then the other records can be read.
            logger.error("%s: cannot be scrubbed: %s", log.name, error)
            return None
        self.bytes_read += len(data)
        return data
