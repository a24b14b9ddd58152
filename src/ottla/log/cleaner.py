"""The cleaner: chooses the log to compact next, and compacts it, from the plan to the swap.

Kafka's rules. The dirty part of a log runs from where the last cleaning ended to the first offset
that may not be cleaned yet: the active segment, an undecided transaction, what consumers cannot
see, what is younger than `min.compaction.lag.ms`. Of the logs whose dirty share is above
`min.cleanable.dirty.ratio`, or whose oldest dirty records are past `max.compaction.lag.ms`, the
filthiest comes first; one at a time, until none is left.

Before that the log is synced and its recovery point checkpointed: above a checkpointed recovery
point there has never been a compaction, so recovery may take a gap between offsets for damage.
The event loop makes the plan and renames files; a helper process reads and writes them
(rewrite.py). Retention skips a log that is being compacted. A log that cannot be compacted (because
of a corrupt batch, say) is logged once and not tried again until the next start; after an error of
the disk it is tried later.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.log.compaction import LastRecord
from ottla.log.rewrite import Group, Outcome, Plan, SourceSegment
from ottla.log.segment import CLEANED, SWAP, TRANSACTION_INDEX, Segment
from ottla.log.swap import discard_cleaned, rename_segment, retire_segments
from ottla.log.upkeep import Remover, TimeSlice
from ottla.seams.background import HelperFailed
from ottla.seams.disk import OutOfDescriptors

if TYPE_CHECKING:
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.log import Log
    from ottla.seams.background import Background
    from ottla.seams.chance import Chance
    from ottla.seams.clock import Clock
    from ottla.seams.disk import Disk
    from ottla.settings import Settings

logger = logging.getLogger("ottla.log.cleaner")

COMPACT_JOB = "compact"
LAG_NEVER = 2**62  # max.compaction.lag.ms is a Java long; the largest of them says: never
UNLIMITED_BYTES_PER_SECOND = 1e15  # no disk is faster
DEDUPE_BYTES_DEFAULT = 128 * 1024 * 1024  # Kafka's log.cleaner.dedupe.buffer.size
LOAD_FACTOR_DEFAULT = 0.9  # Kafka's log.cleaner.io.buffer.load.factor
DESCRIPTOR_RETRY_S = 0.1
DISK_ERRORS = frozenset(
    {"OSError", "PermissionError", "FileNotFoundError", "NoAnswer", "OutOfDescriptors"}
)
Result = TypeVar("Result")


class Candidate(NamedTuple):
    """A compacted log, and how dirty it is."""

    log: "Log"
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # by max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.dirty_bytes == 0:
            return False
        return self.overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def candidate(
    log: "Log", *, cleaned_offset: int | None, last_stable_offset: int, now_ms: int
) -> Candidate:
    """How much of a log is dirty and may be cleaned now."""
    first_dirty_offset = first_dirty(log, cleaned_offset)
    inactive = log.segments[:-1]
    uncleanable_offset = min(last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in inactive:
            if (
                segment.next_offset > first_dirty_offset
                and segment.largest().timestamp > now_ms - lag_ms
            ):
                uncleanable_offset = min(uncleanable_offset, segment.base_offset)
                break
    # Only whole segments are cleaned: up to the last border at or below that offset.
    bound = max(
        (
            segment.base_offset
            for segment in log.segments
            if segment.base_offset <= max(uncleanable_offset, first_dirty_offset)
        ),
        default=log.segments[0].base_offset,
    )
    clean_bytes = dirty_bytes = 0
    for segment in inactive:
        if segment.base_offset >= bound:
            break
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
        else:
            dirty_bytes += segment.size_bytes
    return Candidate(
        log,
        first_dirty_offset,
        bound,
        clean_bytes,
        dirty_bytes,
        is_overdue(log, first_dirty_offset, now_ms),
    )


def first_dirty(log: "Log", cleaned_offset: int | None) -> int:
    """Where the dirty part begins; all of the log when the checkpoint cannot be true."""
    if cleaned_offset is None or not log.log_start_offset <= cleaned_offset <= log.end_offset:
        return log.log_start_offset
    return cleaned_offset


def is_overdue(log: "Log", first_dirty_offset: int, now_ms: int) -> bool:
    """Whether a dirty, closed segment began longer ago than `max.compaction.lag.ms`."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LAG_NEVER:
        return False
    return any(
        0 < segment.rolling_timestamp() < now_ms - lag_ms
        for segment in log.segments[:-1]
        if segment.next_offset > first_dirty_offset
    )


def plan_of(
    chosen: Candidate,
    *,
    dedupe_bytes: int,
    load_factor: float,
    hash_secret: bytes,
    bytes_per_second: float | None,
    now_ms: int,
) -> Plan:
    log, config = chosen.log, chosen.log.config
    return Plan(
        directory=log.directory,
        segments=[
            SourceSegment(
                segment.base_offset,
                segment.size_bytes,
                segment.index.size_bytes(),
                segment.time_index.size_bytes(),
            )
            for segment in log.segments
            if segment.base_offset < chosen.first_uncleanable_offset
        ],
        transaction_indexes=[segment.path(TRANSACTION_INDEX) for segment in log.segments],
        first_dirty_offset=chosen.first_dirty_offset,
        first_uncleanable_offset=chosen.first_uncleanable_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        dedupe_bytes=dedupe_bytes,
        load_factor=load_factor,
        hash_secret=hash_secret.hex(),
        bytes_per_second=bytes_per_second,
        producers={
            producer_id: LastRecord(
                producer.last_offset if producer.last_offset >= 0 else None, producer.epoch
            )
            for producer_id, producer in log.producers.by_id.items()
        },
    )


def speed_limit(bytes_per_second: float) -> float | None:
    """The option's default is the largest number there is: no limit."""
    return bytes_per_second if 0 < bytes_per_second < UNLIMITED_BYTES_PER_SECOND else None


class Cleaner:
    """Compacts one log after the other, for as long as any is due."""

    def __init__(
        self,
        clock: "Clock",
        background: "Background",
        chance: "Chance",
        remover: Remover,
        *,
        logs: "Callable[[], Iterable[Log | None]]",
        last_stable_offset: Callable[["Log"], int],
        secure: "Callable[[Log], Awaitable[None]] | None" = None,
    ) -> None:
        self._clock = clock
        self._background = background
        self._chance = chance
        self._remover = remover
        self._logs = logs
        self._last_stable_offset = last_stable_offset
        self._secure = secure  # syncs a log and checkpoints its recovery point
        self.dedupe_bytes = DEDUPE_BYTES_DEFAULT
        self.load_factor = LOAD_FACTOR_DEFAULT
        self.bytes_per_second: float | None = None
        self.offsets: dict[TopicPartition, int] = {}  # cleaner-offset-checkpoint
        self.changed = False  # since the checkpoint was last written
        self.uncleanable: set[TopicPartition] = set()
        self._paused: Counter[TopicPartition] = Counter()  # being truncated or copied
        self.current: Log | None = None
        self._job: asyncio.Future[dict[str, object]] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._aborted = False
        self._stopping = False

    def reconfigure(self, settings: "Settings") -> None:
        """Takes over `log.cleaner.*`, from the next cleaning on."""
        self.dedupe_bytes = settings.integer("log.cleaner.dedupe.buffer.size")
        self.load_factor = settings.number("log.cleaner.io.buffer.load.factor")
        self.bytes_per_second = speed_limit(settings.number("log.cleaner.io.max.bytes.per.second"))

    async def run(self) -> int:
        """Cleans every log that is due, the filthiest first; answers how many."""
        cleaned = 0
        put_off: set[TopicPartition] = set()
        while not self._stopping:
            chosen = await self.filthiest(put_off)
            if chosen is None:
                break
            if await self.clean(chosen):
                cleaned += 1
            else:
                put_off.add((chosen.log.topic, chosen.log.partition))
        return cleaned

    async def filthiest(self, put_off: "Iterable[TopicPartition]" = ()) -> Candidate | None:
        """The log with the largest dirty share among those that are due."""
        now_ms = self._clock.now_ms()
        time_slice = TimeSlice(self._clock)
        best: Candidate | None = None
        for log in self._logs():
            await time_slice.yield_if_over()
            # One segment is the active one, which is never cleaned.
            if log is None or log.offline is not None or len(log.segments) < 2:
                continue
            key = (log.topic, log.partition)
            if key in self.uncleanable or key in self._paused or key in put_off:
                continue
            found = candidate(
                log,
                cleaned_offset=self.offsets.get(key),
                last_stable_offset=self._last_stable_offset(log),
                now_ms=now_ms,
            )
            if found.is_due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        return best

    async def clean(self, chosen: Candidate) -> bool:
        """One cleaning of one log, swapped in; False when it failed or was called off."""
        log = chosen.log
        if (log.topic, log.partition) in self._paused:
            return False
        self.current, self._aborted = log, False
        try:
            outcome = await self._rewrite_and_swap(chosen)
            if outcome is None:
                # What it wrote goes at once: on a full disk it would keep the disk full.
                await self._background.thread(discard_quietly, log.disk, log.directory)
                return False
        finally:
            self.current = self._job = None
            waiting, self._waiting = self._waiting, []
            for over in waiting:
                over.set_result(None)
        self.offsets[log.topic, log.partition] = outcome.end_offset
        self.changed = True
        self._log_outcome(log, outcome)
        return True

    async def _rewrite_and_swap(self, chosen: Candidate) -> Outcome | None:
        """None when it failed, which is logged, or was called off; files may be left over then."""
        log = chosen.log
        try:
            if self._secure is not None and not await self._is_secured(log):
                return None
            if self._aborted or log.offline is not None:
                return None
            if self._secure is not None and log.recovery_point < chosen.first_uncleanable_offset:
                return None  # it could not be synced now
            outcome = await self._rewrite(chosen)
            for group in outcome.groups:
                if not await self._swap_in(log, group):
                    return None
        except HelperFailed as failure:
            self._failed(log, failure)
            return None
        except OutOfDescriptors as error:
            logger.warning("%s: compaction is tried later: %s", log.name, error)
            return None
        except OSError as error:
            log.fail(f"cannot swap in a compacted segment: {error}")
            return None
        except asyncio.CancelledError:
            if not self._aborted:
                raise
            return None
        return outcome

    async def _is_secured(self, log: "Log") -> bool:
        """Whether a log may be compacted; a full disk here is no fault of the log's own files."""
        assert self._secure is not None
        try:
            await self._secure(log)
        except OSError as error:
            logger.error("%s: compaction is tried later: %s", log.name, error)
            return False
        return True

    async def _rewrite(self, chosen: Candidate) -> Outcome:
        plan = plan_of(
            chosen,
            dedupe_bytes=self.dedupe_bytes,
            load_factor=self.load_factor,
            hash_secret=self._chance.uuid(),
            bytes_per_second=self.bytes_per_second,
            now_ms=self._clock.now_ms(),
        )
        self._job = self._background.process(COMPACT_JOB, plan.to_json())
        return Outcome.from_json(await self._job)

    async def _swap_in(self, log: "Log", group: Group) -> bool:
        """The steps of swap.py, each made to last before the next."""
        disk, directory = log.disk, log.directory
        wanted = set(group.old_base_offsets)
        old = [segment for segment in log.segments if segment.base_offset in wanted]
        if self._aborted or log.offline is not None or len(old) != len(wanted):
            return False
        rename_segment(disk, directory, group.base_offset, CLEANED, SWAP)
        await self.sync_names(disk, directory)
        retired = retire_segments(disk, old, replaced_by=group.base_offset)
        await self.sync_names(disk, directory)
        rename_segment(disk, directory, group.base_offset, SWAP, "")
        new = Segment(
            disk,
            directory,
            group.base_offset,
            size_bytes=group.bytes,
            next_offset=old[-1].next_offset,
            created_ms=old[-1].created_ms,
        )
        log.replace_segments([new], old)
        del old
        await self.sync_names(disk, directory)
        self._remover.files(retired, log.config.file_delete_delay_ms)
        return True

    async def sync_names(self, disk: "Disk", directory: str) -> None:
        """Between two steps there is no way back: waits until a descriptor is free for it."""
        while True:
            try:
                await self._background.thread(disk.sync_directory, directory)
                return
            except OutOfDescriptors:
                waited = asyncio.get_running_loop().create_future()
                self._clock.call_later(DESCRIPTOR_RETRY_S, waited.set_result, None)
                await waited

    def _failed(self, log: "Log", failure: HelperFailed) -> None:
        if self._aborted:
            return
        if failure.kind in DISK_ERRORS:
            logger.error("%s: compaction failed and is tried later: %s", log.name, failure)
        else:
            self.uncleanable.add((log.topic, log.partition))
            logger.error("%s: cannot be compacted until the next start: %s", log.name, failure)

    def _log_outcome(self, log: "Log", outcome: Outcome) -> None:
        logger.info(
            "%s: compacted up to offset %d, %d of %d records and %d of %d bytes kept",
            log.name,
            outcome.end_offset,
            outcome.records_kept,
            outcome.records_read,
            outcome.bytes_kept,
            outcome.bytes_read,
        )
        if outcome.records_without_key:
            logger.warning(
                "%s: %d records without a key were dropped", log.name, outcome.records_without_key
            )

    def is_cleaning(self, log: "Log") -> bool:
        return self.current is log

    async def abort(self, log: "Log") -> None:
        """Calls off the cleaning of a log, if there is one; a swap under way is finished first."""
        if self.current is not log:
            return
        self._aborted = True
        if self._job is not None:
            self._job.cancel()
        over = asyncio.get_running_loop().create_future()
        self._waiting.append(over)
        await over

    async def pause(self, log: "Log") -> None:
        """Calls off the cleaning of a log and begins no other before `resume`."""
        self._paused[log.topic, log.partition] += 1
        await self.abort(log)

    def resume(self, log: "Log") -> None:
        """The log may be cleaned again, if nobody else has paused it."""
        key = (log.topic, log.partition)
        self._paused[key] -= 1
        if self._paused[key] <= 0:
            del self._paused[key]

    def truncated(self, key: "TopicPartition", offset: int) -> None:
        """What follows `offset` will be other records, which have not been cleaned."""
        if self.offsets.get(key, 0) > offset:
            self.offsets[key] = offset
            self.changed = True

    def forget(self, key: "TopicPartition") -> None:
        """A partition is gone."""
        self.uncleanable.discard(key)
        if self.offsets.pop(key, None) is not None:
            self.changed = True

    async def stop(self) -> None:
        """No more cleanings; the one under way is called off, its swap finished."""
        self._stopping = True
        if self.current is not None:
            await self.abort(self.current)


def discard_quietly(disk: "Disk", directory: str) -> None:
    """On a thread: removes what a failed compaction left; the next one tries again."""
    try:
        discard_cleaned(disk, directory)
    except OSError as error:
        logger.warning(
            "%s: the files of a failed compaction cannot be removed: %s", directory, error
        )


def run_at_once(work: Coroutine[object, None, Result]) -> Result:
    """Drives work that never has to wait, because its background is inline, to its end."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    work.close()
    raise RuntimeError("the work waits for something; give it an InlineBackground")
