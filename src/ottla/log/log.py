"""One partition's log: a list of segments, appended at the end, read anywhere, cut at the front.

Work is per batch, never per record. An append reads one header, checks it (append.py), stamps
base offset and leader epoch into the request's own bytes and writes them with one call. A read
answers with a range of a file. Everything runs to completion on the caller's thread and waits for
nothing but the page cache; fsync is split into begin_flush, the syncing on another thread, and
finish_flush.

Any I/O error takes the log offline with a reason, until the next start: after a failed write or
fsync the content of the file is not known, and only recovery finds it out. Other logs go on.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from ottla.log import lookup, sync_failure
from ottla.log.append import CODEC_MAX, AppendResult, Origin, validate
from ottla.log.checkpoints import PARTITION_METADATA
from ottla.log.directories import FUTURE_SUFFIX
from ottla.log.epochs import CHECKPOINT, LeaderEpochs, load_epochs
from ottla.log.failures import CorruptSegment, OffsetOutOfRange
from ottla.log.inspection import InvalidRecords, prepare
from ottla.log.producers import OUT_OF_ORDER_SEQUENCE_NUMBER, BatchNote, Producers
from ottla.log.reading import (
    aborted_between,
    base_offset_of,
    offset_behind,
    read_range,
    segments_from,
)
from ottla.log.replay import (
    end_transaction,
    load_producers,
    note_batch,
    read_back,
    read_marker,
)
from ottla.log.segment import DELETED, INDEX_INTERVAL_BYTES_MAX, SNAPSHOT, Segment
from ottla.log.syncing import DirectoryEntry, FlushMark, Syncable
from ottla.log.transaction_index_checkpoint import note_transaction_index
from ottla.seams.disk import OutOfDescriptors
from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    LEADER_EPOCH_POSITION,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from ottla.wire.checksum import crc32c
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import MalformedMessage

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
_NOT_PLAIN = CONTROL | LOG_APPEND_TIME  # attributes that a client's batch should not have
_NONE = int(ErrorCode.NONE)
_CLIENT = Origin.CLIENT
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Log:
    """One partition's records. Made by `recovery.load_log` or `recovery.create_log`."""

    __slots__ = (
        "_config",
        "_epochs",
        "_flush_messages",
        "_has_folder",
        "_index_interval_bytes",
        "_latest_epoch",
        "_max_message_bytes",
        "_out_of_descriptors",
        "_plain",
        "_producers",
        "_timestamp_after_max_ms",
        "_truncations",
        "_unsynced_epoch_offset",
        "_unsynced_folder",
        "directory",
        "disk",
        "end_offset",
        "flush_wanted",
        "holds_syncs",
        "jitter_ms",
        "log_start_offset",
        "offline",
        "on_change",
        "on_truncated",
        "partition",
        "recovery_point",
        "segments",
        "set_aside_bytes",
        "snapshots",
        "sync_failed",
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
        has_folder: bool = True,
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
        self.sync_failed = False  # then the device may have lost what was written
        self._out_of_descriptors = False  # has been, which is logged once
        self.set_aside_bytes = 0  # cut and kept as `.corrupt` when this log was loaded
        # Called when something should be synced soon: a full segment, or flush.messages reached.
        self.flush_wanted: Callable[[Log], object] | None = None
        # Called after the log start has moved or the log has gone offline.
        self.on_change: Callable[[], object] | None = None
        # Called with the new end after the log was cut: whoever copies it must follow.
        self.on_truncated: Callable[[int], object] | None = None
        self.holds_syncs = False  # its copy has been synced and replaces it: see moves.py
        self._producers: Producers | None = None
        self._epochs = None if has_folder else LeaderEpochs(disk, directory)
        # What the next sync must not forget: names and epochs since the last one.
        self._unsynced_epoch_offset: int | None = None
        self._unsynced_folder = recovery_point == 0
        self._has_folder = has_folder  # or it may not: a new log
        self._latest_epoch = -1  # the epoch the last append was stamped with
        self._truncations = 0  # see FlushMark
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
                self._producers, self.snapshots = load_producers(
                    self.disk, self.directory, self.segments, self.snapshots
                )
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
        header: BatchHeader | None = None,
    ) -> AppendResult:
        """Check a batch, stamp it in place, write it; an error is answered, not raised.

        `records` must be writable memory of the caller's request: base offset and leader epoch are
        written into it. `header`: what the caller has read from its first 61 bytes already.
        """
        if self.offline is not None:
            return AppendResult(_STORAGE_ERROR)
        if header is None:
            if len(records) < HEADER_BYTES:
                return self._validate(records, origin) or AppendResult(ErrorCode.CORRUPT_MESSAGE)
            header = BatchHeader(records)
        attributes = header.attributes
        max_timestamp = header.max_timestamp
        if (
            header.size != len(records)
            or origin is not _CLIENT
            or header.magic != MAGIC
            or header.base_offset != 0
            or header.size > self._max_message_bytes
            or header.record_count != header.last_offset_delta + 1
            or header.record_count <= 0
            or attributes & _NOT_PLAIN
            or attributes & COMPRESSION_MASK > CODEC_MAX
            or (header.producer_id >= 0 and header.base_sequence < 0)
            or not self._plain
            or not 0 < header.base_timestamp <= max_timestamp  # see inspection.py
            or max_timestamp - now_ms > self._timestamp_after_max_ms
            or crc32c(records, ATTRIBUTES_POSITION) != header.crc
        ):
            return self._append_checked(records, header, leader_epoch, now_ms, origin)
        return self._append_sound(records, header, leader_epoch, now_ms)

    def _append_checked(
        self,
        records: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        origin: Origin,
    ) -> AppendResult:
        """Append what is not plain: answer Kafka's error, or prepare it first.

        Speed matters less here than naming the right error, so the checks start again.
        """
        invalid = self._validate(records, origin)
        if invalid is not None:
            return invalid
        records = records[: header.size]  # what follows is part of a batch that did not come whole
        if origin is not _CLIENT:
            if header.is_control:
                return self._append_marker(records, header, leader_epoch, now_ms)
            return self._append_sound(records, header, leader_epoch, now_ms)
        prepared = prepare(records, header, self._config, name=self.name, now_ms=now_ms)
        if isinstance(prepared, InvalidRecords):
            too_large = prepared.error_code == ErrorCode.MESSAGE_TOO_LARGE
            return AppendResult(
                prepared.error_code,
                log_start_offset=-1 if too_large else self.log_start_offset,
                error_message=prepared.message,
                record_errors=prepared.record_errors,
            )
        return self._append_sound(
            prepared.batch, prepared.header, leader_epoch, now_ms, prepared.append_time_ms
        )

    def _validate(self, records: memoryview, origin: Origin) -> AppendResult | None:
        """The error of records whose header is not sound; None when it is."""
        invalid = validate(records, self._config, origin=origin)
        if invalid is None:
            return None
        logger.debug("%s: invalid batch: %s", self.name, invalid.reason)
        start = self.log_start_offset if invalid.has_log_start else -1
        return AppendResult(invalid.error_code, log_start_offset=start)

    def _append_sound(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        append_time_ms: int = -1,
    ) -> AppendResult:
        """Append a batch whose header and records are in order, if its producer's sequence is."""
        producer_id = header.producer_id
        if producer_id >= 0 and header.base_sequence >= 0:
            producers = self._producers or self.producers
            verdict = producers.check(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                header.attributes & TRANSACTIONAL != 0,
            )
            if verdict == OUT_OF_ORDER_SEQUENCE_NUMBER:
                verdict = self._check_older_batches(header)
            if verdict:
                return self._not_again(verdict)
            if self.offline is not None:
                return AppendResult(_STORAGE_ERROR)
        first_offset = self.end_offset
        failed = self._write(batch, header, leader_epoch, now_ms)
        if failed is not None:
            return failed
        if producer_id >= 0:
            producers = self._producers or self.producers
            producers.note(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                first_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.attributes & TRANSACTIONAL != 0,
            )
        last_offset = first_offset + header.last_offset_delta
        return AppendResult(_NONE, first_offset, last_offset, append_time_ms, self.log_start_offset)

    def _check_older_batches(self, header: BatchHeader) -> BatchNote | int:
        """A batch out of sequence may be a retry from before a restart: look in the log, once."""
        producers = self.producers
        known = producers.by_id.get(header.producer_id)
        if known is not None and known.incomplete:
            try:
                read_back(self.segments, header.producer_id, known)
            except CorruptSegment as problem:
                logger.error("%s: older batches of a producer: %s", self.name, problem)
            except OSError as error:
                self.fail("cannot read a producer's batches", error)
                return _STORAGE_ERROR
            known.incomplete = False
        return producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.is_transactional,
        )

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

    def _append_marker(
        self, records: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append what a coordinator ends a transaction with."""
        try:
            marker = read_marker(records)
        except MalformedMessage:
            marker = None
        error = 0 if marker is not None else int(ErrorCode.INVALID_RECORD)
        if marker is not None:
            error = self.producers.check_marker(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch
            )
        if marker is None or error:
            return AppendResult(error, log_start_offset=self.log_start_offset)
        first_offset = self.end_offset
        failed = self._write(records, header, leader_epoch, now_ms)
        if failed is not None:
            return failed
        header.base_offset = first_offset
        try:
            end_transaction(self.producers, self.active, header, marker)
        except OSError as problem:
            self.fail(f"cannot note an aborted transaction: {problem}")
            return AppendResult(_STORAGE_ERROR)
        return AppendResult(_NONE, first_offset, header.last_offset, -1, self.log_start_offset)

    def _write(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult | None:
        """Stamp a checked batch and put it at the end, in a new segment if this one is full.

        None when it is written; a disk that fails takes the log offline.
        """
        first_offset = self.end_offset
        last_offset = first_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        segment = self.segments[-1]
        try:
            if leader_epoch != self._latest_epoch:
                self._write_epoch(leader_epoch, first_offset)
            if segment.size_bytes and segment.is_full(
                len(batch), last_offset, max_timestamp, now_ms, self._config, self.jitter_ms
            ):
                segment = self.roll(now_ms=now_ms)
            _pack_offset(batch, 0, first_offset)
            _pack_epoch(batch, LEADER_EPOCH_POSITION, leader_epoch)
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

    def append_as_follower(
        self, data: memoryview, batches: list[BatchHeader], *, now_ms: int
    ) -> None:
        """Write checked batches as the leader stamped them (replicated.py); raises OSError.

        They are of one epoch and follow each other in `data`, behind the `position` of the first; a
        marker is the last of them. Base offsets may lie beyond the end: compaction leaves gaps.
        """
        segment, first, last = self.segments[-1], batches[0], batches[-1]
        try:
            # Before a batch is written: what is read from the log must not have it yet.
            noted = [batch for batch in batches if batch.producer_id >= 0]
            producers = self.producers if noted else Producers()
            if first.leader_epoch != self._latest_epoch:
                self._write_epoch(first.leader_epoch, first.base_offset)
            if segment.size_bytes and self.is_full_for(first, first.size, now_ms=now_ms):
                segment = self.roll(now_ms=now_ms)
            segment.append_all(data, batches, self._index_interval_bytes)
            self.end_offset = last.last_offset + 1
            for batch in noted:
                note_batch(producers, segment, batch, data[batch.position - first.position :])
        except OSError as error:
            self.fail("cannot append", error)
            raise
        if last.last_offset - self.recovery_point >= self._flush_messages and self.flush_wanted:
            self.flush_wanted(self)

    def is_full_for(self, batch: BatchHeader, more_bytes: int, *, now_ms: int) -> bool:
        """Whether the active segment has no space for a batch, the last of `more_bytes`."""
        return self.segments[-1].is_full(
            more_bytes,
            batch.last_offset,
            batch.max_timestamp,
            now_ms,
            self._config,
            self.jitter_ms,
        )

    def _write_epoch(self, leader_epoch: int, first_offset: int) -> None:
        """The first append of a leader: its epoch is in the file before its records are."""
        self.make_folder()
        self.epochs.assign(leader_epoch, first_offset)
        if self.epochs.dirty:
            self.epochs.write(sync=False)
            self._unsynced_epoch_offset = first_offset
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
        note_transaction_index(self.disk, self.segments)
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

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have not written for `producer.id.expiration.ms`.

        Nothing is loaded for it: while no producer has written, there is none to forget.
        """
        if self._producers is not None:
            self._producers.expire(now_ms, self._config.producer_id_expiration_ms)

    def adopt(self, epochs: LeaderEpochs, producers: Producers | None) -> None:
        """Take over what recovery found; producers that are None are read from disk now, and not
        while a client waits.
        """
        self._epochs = epochs
        if epochs.dirty:
            epochs.write(sync=False)
            self._unsynced_epoch_offset = self.end_offset - 1
        self._producers = producers
        if producers is None:
            _ = self.producers

    def take_over(self, epochs: LeaderEpochs, producers: Producers) -> None:
        """Write what the log that this is a complete copy of knows beside its batches."""
        epochs.dirty = True
        self.adopt(epochs, producers)
        self._latest_epoch = -1
        self._remove_snapshots([self.end_offset])
        self.take_snapshot()
        # With a snapshot at its end it counts as closed (`upkeep.is_finished`): so it is all of it.
        self.active.seal()
        note_transaction_index(self.disk, self.segments)

    def inherit(self, source: Log) -> None:
        """Go on as `source`, which has the same records: its producers, its leader epochs."""
        self._epochs = LeaderEpochs(self.disk, self.directory, list(source.epochs.entries))
        self._epochs.dirty = True
        self._latest_epoch = -1
        self._producers = source._producers
        self.set_aside_bytes = source.set_aside_bytes

    def make_folder(self) -> None:
        """Make the folder of a new log, unless it is there: before anything is written into it."""
        if not self._has_folder:
            self.disk.mkdir(self.directory)
            self._has_folder = True

    def rename(self, directory: str) -> None:
        """Give the folder another name, which is not synced yet; files are opened anew under it.

        Raises OSError: then it has the old one.
        """
        for segment in self.segments:
            segment.close()
        self.disk.rename(self.directory, directory)
        for segment in self.segments:
            segment.move(directory)
        self.directory = self.epochs.directory = directory
        self._unsynced_folder = True

    # Reading

    def read(
        self, offset: int, bytes_max: int, end_offset: int, first_batch_whole: bool = True
    ) -> FileRange | None:
        """Where the batches from `offset` on lie: whole ones and, at the cut, part of one.

        Never beyond `end_offset`. The first batch comes whole, even if larger than `bytes_max`;
        without `first_batch_whole` the range has no bytes then. None when there is nothing yet.
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
        return lookup.offset_for_timestamp(
            self.segments, timestamp, start_offset=self.log_start_offset, end_offset=end_offset
        )

    def max_timestamp(self) -> FoundOffset | None:
        """The first record that bears the largest timestamp."""
        return lookup.max_timestamp(self.segments)

    def first_unstable_offset(self, high_watermark: int | None = None) -> int | None:
        """Where the earliest undecided transaction begins, or None; never below the log's start.

        One that was ended by a marker below the high watermark is decided for everybody. The start
        of one still open may have been deleted (DeleteRecords, retention): as in Kafka it then
        begins with the log, or the last stable offset would lie before all that can be read.
        """
        producers = self._producers or self.producers
        if not producers.ongoing and not producers.completed:
            return None
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

    # Deleting and truncating

    def delete_oldest(self, count: int, *, now_ms: int) -> list[Segment]:
        """Take the `count` oldest segments out; the last one of all only after a roll.

        Their files are renamed to `.deleted` at once; the caller removes them after
        `file.delete.delay.ms`, so that a fetch under way reads on. A crash in between leaves
        `.deleted` files, which the next load removes.
        """
        if count <= 0:
            return []
        if count >= len(self.segments):
            self.roll(now_ms=now_ms)
            count = min(count, len(self.segments) - 1)
        removed = self.segments[:count]
        self.segments = self.segments[count:]
        for segment in removed:
            segment.change_suffix(DELETED)
        first_offset = self.segments[0].base_offset
        # A snapshot before the first segment is of no use to a recovery, which starts there.
        self._remove_snapshots([at for at in self.snapshots if at < first_offset])
        self._raise_log_start(first_offset)
        return removed

    def delete_records_before(self, offset: int) -> int:
        """Make everything below `offset` unreadable; returns the log start after it."""
        if offset > self.end_offset:
            raise OffsetOutOfRange(self.name, offset, self.log_start_offset, self.end_offset)
        self._raise_log_start(offset)
        return self.log_start_offset

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.forget_completed_below(offset)
            if self.on_change is not None:
                self.on_change()

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        """Cut the log back so that it ends at `offset`, or where the batch that holds it begins.

        Returns the bytes removed.
        """
        if offset >= self.end_offset:
            # An epoch that this broker led without writing begins at the end, and conflicts with
            # what the next leader has there.
            self.epochs.truncate_from_end(offset)
            self._latest_epoch = -1
            return 0
        if offset < self.segments[0].base_offset:
            return self.truncate_fully(offset, now_ms=now_ms)
        removed_bytes = 0
        while self.segments[-1].base_offset > offset:
            segment = self.segments.pop()
            removed_bytes += segment.size_bytes
            segment.void_ranges(0)
            segment.change_suffix(DELETED)
            segment.delete()
        removed_bytes += self.active.truncate_to(offset)
        self._end_at(self.active.next_offset)
        return removed_bytes

    def truncate_fully(self, offset: int, *, now_ms: int) -> int:
        """Drop everything and begin again, empty, at `offset`; returns the bytes removed."""
        removed_bytes = self.size_bytes
        self.make_folder()
        for segment in reversed(self.segments):
            segment.void_ranges(0)
            segment.change_suffix(DELETED)
            segment.delete()
        self._remove_snapshots(self.snapshots)
        self.segments = [Segment.create(self.disk, self.directory, offset, now_ms=now_ms)]
        self.log_start_offset = offset
        self._end_at(offset)
        return removed_bytes

    def _end_at(self, offset: int) -> None:
        """The log has been cut: bring all that follows from its end in line with it."""
        self.end_offset = offset
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        if self.epochs.dirty:
            self.epochs.write(sync=False)
        self._remove_snapshots([at for at in self.snapshots if at > offset])
        self._producers = None  # read again when they are needed
        self._latest_epoch = -1
        if self.on_truncated is not None:
            self.on_truncated(offset)

    def _remove_snapshots(self, offsets: list[int]) -> None:
        gone = set(offsets)
        self.snapshots = [at for at in self.snapshots if at not in gone]
        for offset in gone:
            self.disk.unlink(f"{self.directory}/{offset:020d}{SNAPSHOT}", missing_ok=True)

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Compacted segments take the place of old ones; their files are in place (swap.py).

        The snapshots that began with an old segment are gone with it.
        """
        gone = set(map(id, old))
        kept = [segment for segment in self.segments if id(segment) not in gone]
        self.segments = sorted([*kept, *new], key=base_offset_of)
        bases = {segment.base_offset for segment in old} - {each.base_offset for each in new}
        self.snapshots = [at for at in self.snapshots if at not in bases]

    # Flushing

    def begin_flush(self, *, indexes: bool = False) -> tuple[list[Syncable], FlushMark]:
        """What to sync, in any thread, so that all below the returned mark is safe.

        `indexes`: also the files that recovery could rebuild, as before a checkpoint.

        Of the active segment the log file, and the aborted transactions if there are any: what
        recovery makes anew behind the recovery point may be lost. What lies before it must last,
        so full segments are synced with all their files, and the leader epochs with them.
        """
        found: list[Syncable] = []
        names_changed = False
        active = self.active
        for segment in segments_from(self.segments, self.recovery_point):
            if segment.unsynced_name and not segment.size_bytes and segment.base_offset == 0:
                continue  # its file comes with the first batch
            names_changed |= segment.unsynced_name
            if indexes or segment is not active:
                segment.write_out_indexes()
                found.extend(segment.files())
                names_changed = True
            else:
                found.append(segment.file)
                found.extend(segment.transaction_files())
        small = []
        if self._unsynced_epoch_offset is not None:
            small.append(f"{self.directory}/{CHECKPOINT}")
        if indexes and self.snapshots:
            small.append(f"{self.directory}/{self.snapshots[-1]:020d}{SNAPSHOT}")
        # The topic's id must last with the records, or a later topic of that name gets them.
        metadata = f"{self.directory}/{PARTITION_METADATA}"
        if self._unsynced_folder and self.disk.exists(metadata):
            small.append(metadata)
        found.extend(map(self.disk.open, small))
        if names_changed or small:
            found.append(DirectoryEntry(self.disk, self.directory))
        if self._unsynced_folder:
            found.append(DirectoryEntry(self.disk, self.directory.rpartition("/")[0]))
        return found, FlushMark(self.end_offset, self._truncations)

    def finish_flush(self, mark: FlushMark) -> None:
        """What begin_flush returned with `mark` has been synced.

        Syncs may overlap, so a flag is cleared only when its cause is older than this beginning:
        the segment or the epoch had a batch below the mark's end. After a truncation in between
        nothing is known: what was synced may have been replaced.
        """
        end_offset, truncations = mark
        if truncations != self._truncations or self.holds_syncs:
            return
        for segment in segments_from(self.segments, self.recovery_point):
            if segment.base_offset < end_offset:
                segment.unsynced_name = False
        if self._unsynced_epoch_offset is not None and self._unsynced_epoch_offset < end_offset:
            self._unsynced_epoch_offset = None
        if end_offset > 0:
            self._unsynced_folder = False
        self.recovery_point = max(self.recovery_point, min(end_offset, self.end_offset))

    def lower_recovery_point(self, offset: int) -> None:
        """What follows `offset` is about to be cut: nothing on disk vouches for it any more."""
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, offset)

    def flush(self) -> None:
        """Sync everything here and now."""
        try:
            files, mark = self.begin_flush(indexes=True)
            for file in files:
                file.sync()
        except OSError as error:
            self.fail_sync(error)
            raise
        self.finish_flush(mark)

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
            if not self.directory.endswith(FUTURE_SUFFIX):  # moves.py says what it means
                logger.error("%s: offline until the next start: %s", self.name, reason)
            if self.on_change is not None:
                self.on_change()

    def fail_sync(self, error: OSError) -> None:
        self.sync_failed |= sync_failure.note(self.disk, self.directory, error)
        self.fail("cannot sync", error)

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
