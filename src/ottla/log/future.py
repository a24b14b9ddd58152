"""The copy of a log that is to replace it, in another data directory of the broker (KIP-113).

It lies in a folder `topic-partition.UNIQUE-future` and is a log of its own, written as a follower
writes: batches as they are in the source, checked; indexes, producers, aborted transactions and
leader epochs follow from them. `FutureLog.copy` brings over one slice, on the event loop, so
nothing else happens to either log meanwhile. The copy begins where the source begins, and follows
it when that moves or when the source is truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.epochs import LeaderEpochs
from ottla.log.failures import LogProblem
from ottla.log.producers import Producers
from ottla.log.replicated import append_replicated
from ottla.log.retention import below_log_start, facts_of
from ottla.wire.batch_header import HEADER_BYTES

if TYPE_CHECKING:
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.directories import DataDirectory
    from ottla.log.log import Log
    from ottla.log.segment import Segment
    from ottla.wire.out import FileRange

SLICE_BYTES = 256 * 1024  # copied in one turn of the event loop: a millisecond or two


class FutureLog:
    """A log, and its copy in another data directory."""

    __slots__ = ("_cut_to", "checkpointed", "data_dir", "log", "source")

    def __init__(self, source: Log, log: Log, data_dir: DataDirectory) -> None:
        self.source = source
        self.log = log
        self.data_dir = data_dir
        # Whether the checkpoints of the data directory have it: all below its end is synced.
        self.checkpointed = False
        self._cut_to: int | None = None  # the source was truncated to here since the last slice

    @property
    def key(self) -> TopicPartition:
        return self.log.topic, self.log.partition

    @property
    def size_bytes(self) -> int:
        """The bytes of the copy's segments."""
        return self.log.size_bytes

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        return max(self.source.end_offset - self.log.end_offset, 0)

    @property
    def is_cut(self) -> bool:
        """Whether the source was truncated since the last slice."""
        return self._cut_to is not None

    def source_truncated(self, offset: int) -> None:
        """The source ends at `offset` now; the next slice begins with cutting the copy there."""
        self._cut_to = offset if self._cut_to is None else min(self._cut_to, offset)

    def next_range(self) -> FileRange | None:
        """What `copy` would read next, so that a thread can read it ahead."""
        start = max(self.log.end_offset, self.source.log_start_offset)
        return self._read(start) if start < self.source.end_offset else None

    def _read(self, offset: int) -> FileRange | None:
        source = self.source
        return source.read(offset, bytes_max=SLICE_BYTES, end_offset=source.end_offset)

    def copy(self, *, now_ms: int) -> int:
        """Bring over one slice; the bytes copied. Does nothing when the copy is complete.

        Raises InvalidReplica when a batch of the source is damaged, OSError when a disk fails.
        """
        source, log = self.source, self.log
        if log.config is not source.config:
            log.config = source.config
        if self._cut_to is not None:
            log.truncate_to(self._cut_to, now_ms=now_ms)
            self._cut_to = None
        self._follow_start(now_ms)
        if log.end_offset >= source.end_offset:
            return 0
        found = self._read(max(log.end_offset, source.log_start_offset))
        if found is None:
            # Compaction has taken the last batches: the log ends behind what is left of it.
            self._end_at(source.end_offset, now_ms)
            return 0
        data = memoryview(found.file.pread(found.size, found.position))
        copied = append_replicated(
            log, data, leader_epoch=source.epochs.latest, now_ms=now_ms, bytes_max=SLICE_BYTES
        )
        self._raise_start()
        return copied

    def _follow_start(self, now_ms: int) -> None:
        """Begin at the batch that the source begins with, if all before it is gone there."""
        source, log = self.source, self.log
        if log.end_offset < source.log_start_offset:
            found = self._read(source.log_start_offset)
            first = source.end_offset
            if found is not None:
                first = int.from_bytes(found.file.pread(8, found.position), "big", signed=True)
            log.truncate_fully(min(first, source.log_start_offset), now_ms=now_ms)
        self._raise_start()
        self._drop_segments(now_ms)

    def _raise_start(self) -> None:
        start = min(self.source.log_start_offset, self.log.end_offset)
        if start > self.log.log_start_offset:
            self.log.delete_records_before(start)

    def _drop_segments(self, now_ms: int) -> None:
        log = self.log
        if len(log.segments) < 2 or log.segments[1].base_offset > log.log_start_offset:
            return
        facts = [facts_of(segment, lambda _: 0) for segment in log.segments]
        count = below_log_start(facts, log.log_start_offset)
        for segment in log.delete_oldest(count, now_ms=now_ms):
            segment.delete()

    def _end_at(self, offset: int, now_ms: int) -> None:
        self.log.active.next_offset = self.log.end_offset = offset
        self.log.roll(now_ms=now_ms)

    def align(self) -> None:
        """The copy has all that the source has: take over what does not follow from the batches.

        Leader epochs without a record, and producers whose batches are gone. Written, not synced.
        """
        source, log = self.source, self.log
        assert log.end_offset == source.end_offset, f"{log} is not as {source}"
        producers = Producers()
        producers.load(source.producers.snapshot())
        log.take_over(LeaderEpochs(log.disk, log.directory, list(source.epochs.entries)), producers)

    def agrees(self) -> bool:
        """Whether a copy that a start has found may go on: its last batch is in the source too."""
        source, log = self.source, self.log
        if log.offline is not None or log.end_offset > source.end_offset:
            return False
        last = _last_batch(log.segments)
        if last is None:
            return True
        try:
            at = source.read(last[0], bytes_max=len(last[1]), end_offset=source.end_offset)
        except (LogProblem, OSError):
            return False
        return at is not None and at.file.pread(len(last[1]), at.position) == last[1]


def _last_batch(segments: list[Segment]) -> tuple[int, bytes] | None:
    """Base offset and header of the last batch."""
    for segment in reversed(segments):
        if segment.size_bytes:
            indexed = segment.last_indexed()
            last = None
            for batch in segment.batches(indexed[1] if indexed else 0, strict=False):
                last = batch
            if last is not None:
                return last.base_offset, segment.file.pread(HEADER_BYTES, last.position)
    return None
