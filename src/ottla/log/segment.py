"""One segment: a log file and its indexes, from a base offset to where the next segment begins.

It finds positions and decides nothing. Files are opened and indexes loaded when they are first
used: a segment that is not read costs a few hundred bytes. I/O errors pass through as
OSError; the log above takes itself offline.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.failures import CorruptSegment
from ottla.log.index import OffsetIndex
from ottla.log.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from ottla.log.transaction_index import TransactionIndex
from ottla.seams.disk import OutOfDescriptors
from ottla.wire.batch_header import BATCH_OVERHEAD, HEADER_BYTES, MAGIC, BatchHeader, unpack_bounds
from ottla.wire.out import FileRange, Lent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.seams.disk import Bytes, Disk, File
    from ottla.settings import LogConfig

__all__ = [
    "CLEANED", "CORRUPT", "DELETED", "INDEX", "INDEX_INTERVAL_BYTES", "LOG", "SNAPSHOT", "SWAP",
    "TIME_INDEX", "TRANSACTION_INDEX", "Segment",
]  # fmt: skip

logger = logging.getLogger("ottla.log")

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
CORRUPT = ".corrupt"  # cut by recovery and kept for an operator; set_aside.py
RELATIVE_OFFSET_MAX = 2**31 - 1  # both indexes hold relative offsets as int32

SCAN_BYTES = 4 * 1024  # read first when looking for a batch: an interval of the index
PIECE_BYTES = 64 * 1024  # read at once when walking on over headers
INDEX_INTERVAL_BYTES = 4096  # Kafka's default, for an index made anew
# A lookup that walks further than this past its index entry has found a hole in the index. So
# entries are never further apart than half of it, whatever index.interval.bytes says.
WALK_BATCHES_MAX = 8
WALK_BYTES_MAX = 256 * 1024
INDEX_INTERVAL_BYTES_MAX = WALK_BYTES_MAX // 2
HINTS_MAX = 32


class Segment:
    """The files of one segment."""

    __slots__ = (
        "_disk",
        "_file",
        "_index",
        "_last_batch_offset",
        "_last_batch_position",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "first_timestamp",
        "hints",
        "largest_timestamp",
        "largest_timestamp_offset",
        "lent",
        "next_offset",
        "size_bytes",
        "suffix",
        "unsynced_name",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size_bytes: int = 0,
        next_offset: int | None = None,
        created_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.size_bytes = size_bytes
        self.next_offset = base_offset if next_offset is None else next_offset
        self.created_ms = created_ms
        self.bytes_since_index = 0
        self.first_timestamp: int | None = None  # None: not looked up yet
        self.largest_timestamp: int | None = None if size_bytes else NO_TIMESTAMP
        self.largest_timestamp_offset = -1
        self.unsynced_name = not size_bytes
        self.hints: dict[int, int] | None = None  # offset -> position, where recent reads ended
        self.lent: Lent | None = None  # of the ranges lent since the last truncation
        self._last_batch_offset = -1  # of the last append by this process
        self._last_batch_position = 0
        self._file: File | None = None
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, suffix: str = ""
    ) -> Segment:
        """A new, empty segment; its log file exists at once, its indexes when they have entries."""
        segment = cls(disk, directory, base_offset, created_ms=now_ms, suffix=suffix)
        segment._file = disk.open(segment.path(LOG), create=True)
        segment._file.truncate(0)
        for extension in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
            disk.unlink(segment.path(extension), missing_ok=True)
        segment.unsynced_name = True
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG)!r}, next_offset={self.next_offset}, {self.size_bytes} B)"

    def path(self, extension: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{extension}{self.suffix}"

    @property
    def file(self) -> File:
        if self._file is None:
            # The file of an empty segment may come with its first batch.
            self._file = self._disk.open(self.path(LOG), create=not self.size_bytes)
        return self._file

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            file, size = self._open(INDEX)
            self._index = OffsetIndex(self.base_offset, file, size)
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            file, size = self._open(TIME_INDEX)
            self._time_index = TimeIndex(self.base_offset, file, size)
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(self._disk, self.path(TRANSACTION_INDEX))
        return self._transaction_index

    def _open(self, extension: str) -> tuple[File, int]:
        path = self.path(extension)
        file = self._disk.open(path)
        return file, file.size() if self._disk.exists(path) else 0

    def append(
        self,
        data: Bytes,
        *,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end, and note it in the indexes once an interval is full."""
        position = self.size_bytes
        if self.largest_timestamp is None:
            self.load_timestamps()
        (self._file or self.file).append(data)
        self.note(position, len(data), last_offset, max_timestamp, index_interval_bytes)
        self._last_batch_offset = base_offset
        self._last_batch_position = position

    def append_all(self, data: Bytes, batches: list[BatchHeader], interval_bytes: int) -> None:
        """Write several batches, one behind the other in `data`, as `append` writes one."""
        position = self.size_bytes
        if self.largest_timestamp is None:
            self.load_timestamps()
        (self._file or self.file).append(data)
        for batch in batches:
            last, timestamp = batch.last_offset, batch.max_timestamp
            self.note(position, batch.size, last, timestamp, interval_bytes)
            position += batch.size
        self._last_batch_offset = batch.base_offset
        self._last_batch_position = position - batch.size

    def note(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Count a batch at the end of the file, and put it into the indexes if an entry is due.

        The index entry is of the batch that follows a full interval, as in Kafka.
        """
        largest = self.largest_timestamp
        if largest is None or max_timestamp > largest:
            self.largest_timestamp = largest = max_timestamp
            self.largest_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > index_interval_bytes:
            try:
                self.index.append(last_offset, position)
                if largest >= 0:
                    self.time_index.append(largest, self.largest_timestamp_offset)
            except OutOfDescriptors:
                pass  # the batch counts all the same: entries may be missing, or written later
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.size_bytes = position + size
        self.next_offset = last_offset + 1

    def is_full(
        self,
        more_bytes: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        config: LogConfig,
        jitter_ms: int,
    ) -> bool:
        """Whether a batch must go into a new segment: Kafka's rules for rolling."""
        if (
            self.size_bytes + more_bytes > config.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        ):
            return True
        since = self.first_timestamp
        if since is None:
            since = self.rolling_timestamp()
        waited_ms = max_timestamp - since if since >= 0 else now_ms - self.created_ms
        segment_ms = config.segment_ms
        if config.compact and config.max_compaction_lag_ms < segment_ms:
            segment_ms = config.max_compaction_lag_ms  # the active segment is never compacted
        if waited_ms > segment_ms - jitter_ms:
            return True
        # The time index has the larger entries, so it is the first to be full.
        index = self._index
        return index is not None and len(index) >= config.segment_index_bytes // 12 - 1

    def position_of(self, offset: int) -> int | None:
        """The position of the first batch that ends at or after `offset`.

        None when there is none; raises CorruptSegment when damage lies before it.
        """
        if offset >= self.next_offset:
            return None
        if offset >= self._last_batch_offset >= 0:
            return self._last_batch_position
        if self.hints is not None and (hint := self.hints.get(offset)) is not None:
            return hint
        entry = self.index.lookup(offset) if self.size_bytes > SCAN_BYTES else None
        if entry is not None and not self._sound(entry, offset):
            self.rebuild_indexes("an entry does not match the log")
            entry = self.index.lookup(offset)
        start = position = entry[1] if entry else 0
        end = self.size_bytes
        walked = 0
        data = self.file.pread(SCAN_BYTES, position)
        first = position  # where `data` lies in the file
        while True:
            at = position - first
            if at + HEADER_BYTES > len(data):
                if position >= end:
                    return None
                data = self.file.pread(PIECE_BYTES, position)
                first, at = position, 0
                if len(data) < HEADER_BYTES:
                    raise CorruptSegment(self.path(LOG), position, f"{len(data)} bytes are left")
            base_offset, length, magic, delta = unpack_bounds(data, at)
            if magic != MAGIC or length < HEADER_BYTES - BATCH_OVERHEAD:
                raise CorruptSegment(self.path(LOG), position, f"magic {magic}, length {length}")
            if base_offset + delta >= offset:
                break
            position += length + BATCH_OVERHEAD
            walked += 1
        if walked > WALK_BATCHES_MAX and position - start > WALK_BYTES_MAX:
            self.rebuild_indexes(f"{walked} batches in a row are not in it")
        return position

    def _sound(self, entry: tuple[int, int], offset: int) -> bool:
        """Whether the index entry is one of this log, and not beyond `offset`."""
        last_offset, position = entry
        if last_offset > offset or position + HEADER_BYTES > self.size_bytes:
            return False
        head = self.file.pread(HEADER_BYTES, position).ljust(HEADER_BYTES)  # of a file that was cut
        base_offset, _, magic, delta = unpack_bounds(head)
        return bool(magic == MAGIC and base_offset + delta == last_offset)

    def batch_at(self, position: int) -> BatchHeader:
        """The header of the batch that begins here."""
        return BatchHeader(self.file.pread(HEADER_BYTES, position), 0, position)

    def confirmed(self, offset: int) -> tuple[int, int] | None:
        """The last index entry at or before `offset`, if the log confirms it."""
        entry = self.index.lookup(offset)
        return entry if entry is not None and self._sound(entry, offset) else None

    def last_indexed(self) -> tuple[int, int] | None:
        """The last sound index entry; the indexes are made anew if the last is not."""
        entry = self.index.last()
        if entry is None or self._sound(entry, entry[0]):
            return entry
        self.rebuild_indexes("the last entry does not match the log")
        return self.index.last()

    def rebuild_indexes(self, reason: str) -> None:
        """Make both indexes anew from the headers in the log file."""
        logger.warning("%s: index made anew: %s", self.path(INDEX), reason)
        size_bytes, next_offset = self.size_bytes, self.next_offset
        self.index.reset()
        self.time_index.reset()
        self.largest_timestamp, self.largest_timestamp_offset = NO_TIMESTAMP, -1
        self.bytes_since_index = 0
        for batch in self.batches(strict=False):
            self.note(
                batch.position,
                batch.size,
                batch.last_offset,
                batch.max_timestamp,
                INDEX_INTERVAL_BYTES,
            )
            self.size_bytes = size_bytes
        self.size_bytes, self.next_offset = size_bytes, next_offset
        self.write_out_indexes()

    def hint(self, offset: int, position: int) -> None:
        """The batch with `offset` will begin at `position`: what a tailing reader asks for next."""
        if self.hints is None or len(self.hints) >= HINTS_MAX:
            self.hints = {}
        self.hints[offset] = position

    def batches(self, position: int = 0, *, strict: bool = True) -> Iterator[BatchHeader]:
        """Headers from `position` to the end; what is no batch raises CorruptSegment or, if not
        `strict`, ends the walk.
        """
        end = self.size_bytes
        file = self.file
        data = b""
        start = position  # where `data` lies in the file
        piece = SCAN_BYTES
        while position < end:
            at = position - start
            if at + HEADER_BYTES > len(data):
                data = file.pread(min(piece, end - position), position)
                start, at = position, 0
                if len(data) < HEADER_BYTES:
                    problem = f"{len(data)} bytes are left"
                    break
            batch = BatchHeader(data, at, position)
            if batch.magic != MAGIC or batch.size < HEADER_BYTES or position + batch.size > end:
                problem = f"magic {batch.magic}, {batch.size} bytes"
                break
            yield batch
            position += batch.size
            # Small batches come in bigger pieces once the walk goes on; of large ones only the
            # header.
            piece = HEADER_BYTES if batch.size > PIECE_BYTES else PIECE_BYTES
        else:
            return
        if strict:
            raise CorruptSegment(self.path(LOG), position, problem)

    def load_timestamps(self) -> None:
        """Find the largest timestamp of a segment that was not written by this process."""
        if self.largest_timestamp is not None:
            return
        last_indexed = self.last_indexed()
        largest = self.time_index.last() or TimestampOffset(NO_TIMESTAMP, -1)
        for batch in self.batches(last_indexed[1] if last_indexed else 0, strict=False):
            if batch.max_timestamp > largest.timestamp:
                largest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        self.largest_timestamp, self.largest_timestamp_offset = largest

    def largest(self) -> TimestampOffset:
        """The largest timestamp in the segment and the last offset of the batch that carries it."""
        if self.largest_timestamp is None:
            self.load_timestamps()
        assert self.largest_timestamp is not None
        return TimestampOffset(self.largest_timestamp, self.largest_timestamp_offset)

    def rolling_timestamp(self) -> int:
        """The first batch's timestamp, from which `segment.ms` counts; -1 when it has none."""
        if self.first_timestamp is None:
            first = next(self.batches(strict=False), None)
            self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        return self.first_timestamp

    def seal(self) -> None:
        """Nothing more will be appended: complete the time index and write both out.

        Kafka's tools open the offset index of every time index: an empty one means no entries.
        """
        if self.size_bytes:
            largest = self.largest()
            if largest.timestamp >= 0:
                self.time_index.append(*largest)
                self._disk.open(self.path(INDEX), create=True)
        self.write_out_indexes()
        self.hints = None

    def write_out_indexes(self) -> None:
        if self._index is not None:
            self._index.write_out()
        if self._time_index is not None:
            self._time_index.write_out()

    def files(self) -> list[File]:
        """What a flush must sync, indexes written out before. Empty ones last by their names."""
        found = [self.file]
        for extension in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
            path = self.path(extension)
            if self._disk.exists(path) and (file := self._disk.open(path)).size():
                found.append(file)
        return found

    def transaction_files(self) -> list[File]:
        """The index of aborted transactions, if it is in use."""
        if self._transaction_index is None or not self._transaction_index.all():
            return []
        return [self._disk.open(self.path(TRANSACTION_INDEX))]

    def truncate_to(self, offset: int) -> int:
        """Cut away the batch that holds `offset` and all after it; returns the bytes removed."""
        position = self.position_of(offset)
        if position is None:
            return 0
        removed = self.size_bytes - position
        self.cut(position)
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.next_offset = offset
        self.bytes_since_index = 0
        self.largest_timestamp = None if self.size_bytes else NO_TIMESTAMP
        self.largest_timestamp_offset = -1
        self.first_timestamp = None
        return removed

    def cut(self, size_bytes: int) -> None:
        """Shorten the log file alone."""
        self.void_ranges(size_bytes)
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._last_batch_offset = -1
        self.hints = None

    def lend(self, position: int, size: int) -> FileRange:
        """A range of the log file, to be read or sent before the next truncation."""
        lent = self.lent
        if lent is None:
            lent = self.lent = Lent()
        return FileRange(self._file or self.file, position, size, lent)

    def void_ranges(self, position: int) -> None:
        """What was lent behind `position` may not be sent any more: it is being cut."""
        if self.lent is not None:
            self.lent.void_from = position
            self.lent = None

    def change_suffix(self, suffix: str) -> None:
        """Rename all files, say from `.swap` to none, or to `.deleted`."""
        self.write_out_indexes()
        old = self.suffix
        for extension in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            path = self.path(extension)
            if self._disk.exists(path):
                self._disk.rename(path, path.removesuffix(old) + suffix if old else path + suffix)
        self.suffix = suffix
        self._transaction_index = None

    def delete(self) -> None:
        """Unlink all files. Whoever was lent a range of the log file can still read it."""
        for extension in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            self._disk.unlink(self.path(extension), missing_ok=True)
        self.close()

    def move(self, directory: str) -> None:
        """The directory has been renamed."""
        self.directory = directory
        self._transaction_index = None

    def close(self) -> None:
        """Give back descriptors and memory; the next use loads again."""
        self.write_out_indexes()
        self._file = self._index = self._time_index = self._transaction_index = None
        self.hints = None
