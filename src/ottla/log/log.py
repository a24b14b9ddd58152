"""One partition's log: a row of segments, appended at the end, read anywhere, cut at the front.

Work is per batch, never per record. An append reads one header, checks it (append.py), stamps
base offset and leader epoch into the request's own bytes and writes them with one call. A read
answers with a range of a file. Everything runs to completion on the caller's thread and waits for
nothing but the page cache; fsync is split into begin_flush, the syncing elsewhere, and
finish_flush.

Any I/O error takes the log offline with a reason, until the next start: after a failed write or
fsync nobody knows what the file holds, and recovery is the one place that finds out. Other logs
go on.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.log import append as checks
from ottla.log import trim
from ottla.log.append import AppendResult, Origin
from ottla.log.checksum import crc32c
from ottla.log.epochs import LeaderEpochs
from ottla.log.failures import OffsetOutOfRange
from ottla.log.producers import BatchNote, Producers
from ottla.log.segment import HEADER, RELATIVE_OFFSET_MAX, SNAPSHOT, Segment
from ottla.log.syncing import DirectoryEntry, Syncable
from ottla.wire.errors import ErrorCode
from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.transaction_index import AbortedTransaction
    from ottla.seams.disk import Disk
    from ottla.settings import LogConfig

__all__ = ["AppendResult", "Log", "OffsetOutOfRange", "Origin"]

logger = logging.getLogger("ottla.log")

_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
LEADER_EPOCH_AT = 12
_base_offset = attrgetter("base_offset")
_NONE = int(ErrorCode.NONE)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Log:
    """One partition's records. Made by `recovery.load_log` or `recovery.create_log`."""

    __slots__ = (
        "_config",
        "_epochs",
        "_index_entries_max",
        "_latest_epoch",
        "_max_message_bytes",
        "_plain",
        "_producers",
        "_segment_bytes",
        "_timestamp_after_max_ms",
        "directory",
        "disk",
        "end_offset",
        "flush_wanted",
        "jitter_ms",
        "log_start_offset",
        "offline",
        "partition",
        "recovery_point",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        segments: list[Segment],
        log_start_offset: int,
        recovery_point: int,
        snapshots: list[int],
        jitter_ms: int = 0,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.end_offset = segments[-1].next_offset
        self.recovery_point = recovery_point
        self.snapshots = snapshots  # offsets of the producer snapshots on disk, ascending
        self.jitter_ms = jitter_ms
        self.offline: str | None = None
        # Told when something should be synced soon: a full segment, or flush.messages reached.
        self.flush_wanted: Callable[[Log], object] | None = None
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None
        self._latest_epoch = -1  # the epoch the last append was stamped with
        self.config = config

    def __repr__(self) -> str:
        return f"<log {self.name} {self.log_start_offset}..{self.end_offset}>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._segment_bytes = config.segment_bytes
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self._index_entries_max = config.segment_index_bytes // 12 - 1  # the time index fills first
        # Whether a client's batch is stored as it comes. The exceptions are in inspection.py.
        self._plain = (
            not config.compact
            and not config.append_time
            and config.compression_type == "producer"
            and config.message_timestamp_before_max_ms >= 2**62
        )

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            self._producers = self._load_producers()
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = LeaderEpochs.load(self.disk, self.directory)
        return self._epochs

    @property
    def leader_epoch(self) -> int:
        """The last leader epoch known to this log, or -1."""
        return self.epochs.latest

    # Appending

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Check a client's batch, stamp it in place, write it; an error is answered, not raised.

        `records` must be writable memory of the caller's request: base offset and leader epoch go
        into it.
        """
        if self.offline is not None:
            return AppendResult(_STORAGE_ERROR)
        size = len(records)
        if size < 61 or origin is not Origin.CLIENT:
            return self._append_unusual(records, leader_epoch, now_ms, origin)
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            _,
            max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = HEADER.unpack_from(records)
        if (
            length + 12 != size
            or magic != 2
            or base_offset != 0
            or size > self._max_message_bytes
            or count != delta + 1
            or count <= 0
            or attributes & 0x28
            or attributes & 0x07 > 4
            or (producer_id >= 0 and sequence < 0)
            or not self._plain
            or max_timestamp - now_ms > self._timestamp_after_max_ms
            or crc32c(records, 21) != crc
        ):
            return self._append_unusual(records, leader_epoch, now_ms, origin)
        transactional = attributes & 0x10 != 0
        if producer_id >= 0:
            verdict = self.producers.check(
                producer_id, producer_epoch, sequence, delta, transactional
            )
            if verdict:
                return self._not_again(verdict)
        first_offset = self.end_offset
        try:
            self._write(records, first_offset, delta, max_timestamp, leader_epoch, now_ms)
        except OSError as error:
            self.fail(f"cannot append: {error}")
            return AppendResult(_STORAGE_ERROR)
        if producer_id >= 0:
            self.producers.note(
                producer_id,
                producer_epoch,
                sequence,
                first_offset,
                delta,
                max_timestamp,
                transactional,
            )
        return AppendResult(_NONE, first_offset, first_offset + delta, -1, self.log_start_offset)

    def _append_unusual(
        self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin
    ) -> AppendResult:
        """What is refused, or needs a look at the records first."""
        refused = checks.refusal(records, self._config, origin=origin)
        if refused is not None:
            logger.debug("%s: batch refused, %s", self.name, refused.reason)
            return AppendResult(
                refused.error_code,
                log_start_offset=self.log_start_offset if refused.tells_log_start else -1,
            )
        raise NotImplementedError

    def _not_again(self, verdict: BatchNote | int) -> AppendResult:
        """A retry is answered with the offsets of the first time, anything else with its error."""
        if isinstance(verdict, int):
            return AppendResult(verdict, log_start_offset=self.log_start_offset)
        return AppendResult(
            _NONE,
            verdict.base_offset,
            verdict.last_offset,
            verdict.timestamp,  # Kafka's answer, whatever the timestamp type
            self.log_start_offset,
            duplicate=True,
        )

    def _write(
        self,
        batch: memoryview,
        first_offset: int,
        delta: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Stamp one checked batch and put it at the end, in a new segment if this one is full."""
        if leader_epoch != self._latest_epoch:
            self._begin_epoch(leader_epoch, first_offset)
        segment = self.segments[-1]
        last_offset = first_offset + delta
        if segment.size_bytes and self._full(
            segment, len(batch), last_offset, max_timestamp, now_ms
        ):
            segment = self.roll(now_ms=now_ms)
        _pack_offset(batch, 0, first_offset)
        _pack_epoch(batch, LEADER_EPOCH_AT, leader_epoch)
        segment.append(
            batch,
            base_offset=first_offset,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        self.end_offset = last_offset + 1
        unflushed = self.end_offset - self.recovery_point
        if unflushed >= self._config.flush_messages and self.flush_wanted:
            self.flush_wanted(self)

    def _full(
        self, segment: Segment, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch must go into a new segment: Kafka's rules for rolling."""
        if segment.size_bytes + size > self._segment_bytes:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        since = segment.rolling_timestamp()
        waited_ms = max_timestamp - since if since >= 0 else now_ms - segment.created_ms
        return (
            waited_ms > self._config.segment_ms - self.jitter_ms
            or segment.index_entries >= self._index_entries_max
        )

    def _begin_epoch(self, leader_epoch: int, first_offset: int) -> None:
        """The first append of a leader: its epoch is on disk before its records are."""
        self.epochs.assign(leader_epoch, first_offset)
        if self.epochs.dirty:
            self.epochs.write(sync=False)
        self._latest_epoch = leader_epoch

    def begin_epoch(self, leader_epoch: int) -> None:
        """This broker leads from here on; on disk only once an append needs it."""
        self.epochs.assign(leader_epoch, self.end_offset)

    def roll(self, *, now_ms: int) -> Segment:
        """Close the active segment and begin a new one at the end offset."""
        active = self.segments[-1]
        if not active.size_bytes and active.base_offset == self.end_offset:
            return active
        active.seal()
        self.take_snapshot()
        segment = Segment.create(self.disk, self.directory, self.end_offset, now_ms=now_ms)
        self.segments.append(segment)
        if self.flush_wanted:
            self.flush_wanted(self)
        return segment

    def take_snapshot(self) -> None:
        """Write the producers' state as of the end offset, unless that is there already."""
        if self.snapshots and self.snapshots[-1] >= self.end_offset:
            return
        path = f"{self.directory}/{self.end_offset:020d}{SNAPSHOT}"
        self.disk.write_atomically(path, self.producers.snapshot(), sync=False)
        self.snapshots.append(self.end_offset)

    def _load_producers(self) -> Producers:
        return Producers()

    def reload_producers(self) -> None:
        """The log was cut: read the state again when it is needed."""
        self._producers = None
        self._latest_epoch = -1

    # Reading

    def read(
        self, offset: int, *, bytes_max: int, end_offset: int, first_batch_whole: bool = True
    ) -> FileRange | None:
        """Where the batches from `offset` on lie: whole ones and, at the cut, part of one.

        Never beyond `end_offset`. The first batch comes whole, even if larger than `bytes_max`;
        without `first_batch_whole` None is the answer then. None also when there is nothing yet.
        """
        if offset < self.log_start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(self.name, offset, self.log_start_offset, self.end_offset)
        limit = end_offset if end_offset < self.end_offset else self.end_offset
        if offset >= limit:
            return None
        try:
            return self._read(offset, bytes_max, limit, first_batch_whole)
        except OSError as error:
            self.fail(f"cannot read: {error}")
            raise

    def _read(
        self, offset: int, bytes_max: int, limit: int, first_batch_whole: bool
    ) -> FileRange | None:
        at = len(self.segments) - 1
        if offset < self.segments[at].base_offset:
            at = bisect_right(self.segments, offset, key=_base_offset) - 1
        while (position := self.segments[at].position_of(offset)) is None:
            at += 1  # compaction may have taken all that followed in this segment
            if at == len(self.segments) or self.segments[at].base_offset >= limit:
                return None
        segment = self.segments[at]
        end = segment.size_bytes
        if limit < segment.next_offset:
            stop = segment.position_of(limit)
            end = end if stop is None else stop
        else:
            segment.hint(segment.next_offset, end)
        size = end - position
        if size > bytes_max:
            first = segment.batch_at(position).size
            if first <= bytes_max:
                size = bytes_max
            elif first_batch_whole:
                size = first
            else:
                return None
        return FileRange(segment.file, position, size) if size > 0 else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ended (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def first_unstable_offset(self) -> int | None:
        return self.producers.first_unstable_offset()

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader from `start` up to `end` must leave out."""
        found = []
        for segment in self._segments_from(start):
            for aborted in segment.transaction_index.all():
                if aborted.last_offset >= start and aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return found
        return found

    # Taking away; see trim.py

    def delete_oldest(self, count: int, *, now_ms: int) -> list[Segment]:
        return trim.delete_oldest(self, count, now_ms=now_ms)

    def delete_records_before(self, offset: int) -> int:
        if offset > self.end_offset:
            raise OffsetOutOfRange(self.name, offset, self.log_start_offset, self.end_offset)
        return trim.raise_log_start(self, offset)

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        return trim.truncate_to(self, offset, now_ms=now_ms)

    def truncate_fully(self, offset: int, *, now_ms: int) -> int:
        return trim.truncate_fully(self, offset, now_ms=now_ms)

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Cleaned segments take the place of old ones; their files stand already (swap.py)."""
        gone = set(map(id, old))
        kept = [segment for segment in self.segments if id(segment) not in gone]
        self.segments = sorted([*kept, *new], key=_base_offset)

    # Flushing

    def begin_flush(self, *, indexes: bool = False) -> tuple[list[Syncable], int]:
        """What to sync, in any thread, so that all below the returned offset is safe.

        `indexes`: also the files that recovery could rebuild, as before a checkpoint.
        """
        end_offset = self.end_offset
        found: list[Syncable] = []
        names_changed = False
        for segment in self._segments_from(self.recovery_point):
            if indexes:
                segment.write_out_indexes()
                found.extend(segment.files())
            else:
                found.append(segment.file)
            names_changed |= segment.unsynced_name
            segment.unsynced_name = False
        if names_changed:
            found.append(DirectoryEntry(self.disk, self.directory))
        return found, end_offset

    def finish_flush(self, end_offset: int) -> None:
        """What begin_flush returned has been synced."""
        self.recovery_point = max(self.recovery_point, min(end_offset, self.end_offset))

    def flush(self) -> None:
        """Sync everything here and now."""
        try:
            files, end_offset = self.begin_flush(indexes=True)
            for file in files:
                file.sync()
        except OSError as error:
            self.fail(f"cannot sync: {error}")
            raise
        self.finish_flush(end_offset)

    def _segments_from(self, offset: int) -> list[Segment]:
        """The segments that hold `offset` or anything after it."""
        at = bisect_right(self.segments, offset, key=_base_offset) - 1
        return self.segments[max(at, 0) :]

    def fail(self, reason: str) -> None:
        """Take the log offline until the next start."""
        if self.offline is None:
            self.offline = reason
            logger.error("%s: offline until the next start: %s", self.name, reason)

    def close(self) -> None:
        """Leave everything as a clean stop should: indexes complete, producers in a snapshot,
        synced.
        """
        if self.offline is None:
            self.take_snapshot()
            self.active.seal()
            self.flush()
        for segment in self.segments:
            segment.close()
