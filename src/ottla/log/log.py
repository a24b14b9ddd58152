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
from typing import TYPE_CHECKING

from ottla.log import lookup, trim
from ottla.log.append import AppendResult, Origin
from ottla.log.epochs import LeaderEpochs, load_epochs
from ottla.log.failures import CorruptSegment, OffsetOutOfRange
from ottla.log.header import HEADER
from ottla.log.producers import OUT_OF_ORDER_SEQUENCE_NUMBER, BatchNote, Producers
from ottla.log.reading import aborted_between, base_offset_of, offset_behind, read_range
from ottla.log.replay import load_producers, read_back
from ottla.log.segment import INDEX_INTERVAL_BYTES_MAX, SNAPSHOT, Segment
from ottla.log.syncing import Syncable, synced, to_sync
from ottla.log.unusual import append_unusual
from ottla.seams.disk import OutOfDescriptors
from ottla.wire.checksum import crc32c
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.lookup import FoundOffset
    from ottla.log.transaction_index import AbortedTransaction
    from ottla.seams.disk import Disk
    from ottla.settings import LogConfig
    from ottla.wire.out import FileRange

__all__ = ["AppendResult", "Log", "OffsetOutOfRange", "Origin"]

logger = logging.getLogger("ottla.log")

_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
LEADER_EPOCH_AT = 12
_NONE = int(ErrorCode.NONE)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Log:
    """One partition's records. Made by `recovery.load_log` or `recovery.create_log`."""

    __slots__ = (
        "_config",
        "_epochs",
        "_flush_messages",
        "_index_interval_bytes",
        "_latest_epoch",
        "_max_message_bytes",
        "_out_of_descriptors",
        "_plain",
        "_producers",
        "_timestamp_after_max_ms",
        "directory",
        "disk",
        "end_offset",
        "flush_wanted",
        "jitter_ms",
        "log_start_offset",
        "offline",
        "on_change",
        "partition",
        "recovery_point",
        "segments",
        "set_aside_bytes",
        "snapshots",
        "topic",
        "topic_id",
        "unsynced_epoch_offset",
        "unsynced_folder",
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
        self._out_of_descriptors = False  # has been, which is logged once
        self.set_aside_bytes = 0  # cut and kept as `.corrupt` when this log was loaded
        # Told when something should be synced soon: a full segment, or flush.messages reached.
        self.flush_wanted: Callable[[Log], object] | None = None
        # Called after the log start has moved or the log has gone offline.
        self.on_change: Callable[[], object] | None = None
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None
        # What the next sync must not forget: names and epochs since the last one.
        self.unsynced_epoch_offset: int | None = None
        self.unsynced_folder = recovery_point == 0
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
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self._index_interval_bytes = min(config.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX)
        self._flush_messages = config.flush_messages - 1
        # Whether a client's batch is stored as it comes; the exceptions are in inspection.py.
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
        """What producers wrote last, read from disk when first asked for."""
        if self._producers is None:
            try:
                self._producers = load_producers(self)
            except OSError as error:
                self.fail("cannot read the producers' state", error)
                if self.offline is None:
                    raise
                return Producers()
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = load_epochs(self.disk, self.directory, self.segments)
            self._epochs.truncate_from_start(self.log_start_offset)
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
            return append_unusual(
                self, records, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
            )
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            base_timestamp,
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
            or not 0 < base_timestamp <= max_timestamp  # see inspection.max_timestamp_is_doubtful
            or max_timestamp - now_ms > self._timestamp_after_max_ms
            or crc32c(records, 21) != crc
        ):
            return append_unusual(
                self, records, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
            )
        return self.append_sound(
            records,
            delta,
            max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            attributes & 0x10 != 0,
            leader_epoch,
            now_ms,
        )

    def append_sound(
        self,
        batch: memoryview,
        delta: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        transactional: bool,
        leader_epoch: int,
        now_ms: int,
        append_time_ms: int = -1,
    ) -> AppendResult:
        """Append a batch whose header and records are in order, if its producer's sequence is."""
        if producer_id >= 0 and sequence >= 0:
            verdict = self.producers.check(
                producer_id, producer_epoch, sequence, delta, transactional
            )
            if verdict == OUT_OF_ORDER_SEQUENCE_NUMBER:
                verdict = self._check_older_batches(
                    producer_id, producer_epoch, sequence, delta, transactional
                )
            if verdict:
                return self._not_again(verdict)
            if self.offline is not None:
                return AppendResult(_STORAGE_ERROR)
        first_offset = self.end_offset
        failed = self.write_batch(batch, delta, max_timestamp, leader_epoch, now_ms)
        if failed is not None:
            return failed
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
        return AppendResult(
            _NONE, first_offset, first_offset + delta, append_time_ms, self.log_start_offset
        )

    def _check_older_batches(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        delta: int,
        transactional: bool,
    ) -> BatchNote | int:
        """A batch out of sequence may be a retry from before a restart: look in the log, once."""
        known = self.producers.by_id.get(producer_id)
        if known is not None and known.incomplete:
            try:
                read_back(self, producer_id, known)
            except CorruptSegment as problem:
                logger.error("%s: older batches of a producer: %s", self.name, problem)
            except OSError as error:
                self.fail("cannot read a producer's batches", error)
                return _STORAGE_ERROR
        return self.producers.check(producer_id, producer_epoch, sequence, delta, transactional)

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

    def write_batch(
        self,
        batch: memoryview,
        delta: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult | None:
        """Stamp a checked batch and put it at the end, in a new segment if this one is full.

        None when it is there; a disk that refuses takes the log offline.
        """
        first_offset = self.end_offset
        last_offset = first_offset + delta
        segment = self.segments[-1]
        try:
            if leader_epoch != self._latest_epoch:
                self._write_epoch(leader_epoch, first_offset)
            if segment.size_bytes and segment.is_full(
                len(batch), last_offset, max_timestamp, now_ms, self._config, self.jitter_ms
            ):
                segment = self.roll(now_ms=now_ms)
            _pack_offset(batch, 0, first_offset)
            _pack_epoch(batch, LEADER_EPOCH_AT, leader_epoch)
            segment.append(
                batch,
                base_offset=first_offset,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
                index_interval_bytes=self._index_interval_bytes,
            )
        except OSError as error:
            self.fail("cannot append", error)
            return AppendResult(_STORAGE_ERROR)
        self.end_offset = last_offset + 1
        if last_offset - self.recovery_point >= self._flush_messages and self.flush_wanted:
            self.flush_wanted(self)
        return None

    def _write_epoch(self, leader_epoch: int, first_offset: int) -> None:
        """The first append of a leader: its epoch is in the file before its records are."""
        self.epochs.assign(leader_epoch, first_offset)
        if self.epochs.dirty:
            self.epochs.write(sync=False)
            self.unsynced_epoch_offset = first_offset
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

    def adopt(self, epochs: LeaderEpochs, producers: Producers | None) -> None:
        """Take over what recovery found."""
        self._epochs = epochs
        self._producers = producers

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
            return read_range(self.segments, offset, bytes_max, limit, first_batch_whole)
        except OSError as error:
            self.fail("cannot read", error)
            raise

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ended (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def offset_for_timestamp(self, timestamp: int, *, end_offset: int) -> FoundOffset | None:
        """The first record at or after `timestamp` and below `end_offset`."""
        return lookup.offset_for_timestamp(self, timestamp, end_offset=end_offset)

    def max_timestamp(self) -> FoundOffset | None:
        """The first record that bears the largest timestamp."""
        return lookup.max_timestamp(self)

    def first_unstable_offset(self, high_watermark: int | None = None) -> int | None:
        """Where the earliest undecided transaction begins, or None; never below the log's start.

        One that was ended by a marker below the high watermark is decided for everybody. The start
        of one still open may have been deleted (DeleteRecords, retention): as in Kafka it then
        begins with the log, or the last stable offset would lie before all that can be read.
        """
        producers = self.producers
        if high_watermark is not None and producers.completed:
            producers.forget_completed_below(high_watermark)
        first = producers.first_unstable_offset()
        return None if first is None else max(first, self.log_start_offset)

    def aborted_transactions(
        self, start: int, end: int, *, found: FileRange | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions that a reader from `start` up to `end` must leave out.

        With `found`, what was read, only those that can have records in it.
        """
        if found is not None:
            end = min(end, offset_behind(self.segments, start, found))
        return aborted_between(self.segments, start, end)

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
        self.segments = sorted([*kept, *new], key=base_offset_of)

    # Flushing

    def begin_flush(self, *, indexes: bool = False) -> tuple[list[Syncable], int]:
        """What to sync, in any thread, so that all below the returned offset is safe.

        `indexes`: also the files that recovery could rebuild, as before a checkpoint.
        """
        return to_sync(self, indexes=indexes), self.end_offset

    def finish_flush(self, end_offset: int) -> None:
        """What begin_flush returned has been synced."""
        synced(self, end_offset)

    def flush(self) -> None:
        """Sync everything here and now."""
        try:
            files, end_offset = self.begin_flush(indexes=True)
            for file in files:
                file.sync()
        except OSError as error:
            self.fail("cannot sync", error)
            raise
        self.finish_flush(end_offset)

    def fail(self, reason: str, error: OSError | None = None) -> None:
        """Take the log offline until the next start, because of an error if there is one.

        That no descriptor was free is no fault of the disk, and nothing was done then: the log
        stays online, the caller answers with an error that clients retry.
        """
        if isinstance(error, OutOfDescriptors):
            if not self._out_of_descriptors:
                self._out_of_descriptors = True
                logger.warning("%s: %s for now: %s", self.name, reason, error)
            return
        if self.offline is None:
            self.offline = reason = reason if error is None else f"{reason}: {error}"
            logger.error("%s: offline until the next start: %s", self.name, reason)
            if self.on_change is not None:
                self.on_change()

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
