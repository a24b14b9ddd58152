"""One compaction of one log on its files: the job of the helper process.

Reads the dirty segments once to learn each key's last offset, forms groups of the segments below
the offset that was reached, each of which fits into one segment, and writes each group through the
batch filter into one `.cleaned` segment with its indexes. No file that the broker uses is changed:
it swaps the result in afterwards (swap.py), or removes it.

Plan and outcome are plain JSON values; every file is synced before the outcome is returned. Memory:
the offset map's budget, plus a buffer for reading and one for writing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.log.batch import Batch, Buffer, CorruptBatch
from ottla.log.compaction import (
    BatchFilter,
    LastRecord,
    Transactions,
)
from ottla.log.index import OffsetIndex
from ottla.log.offset_map import OffsetMap, offset_map_of
from ottla.log.segment import (
    CLEANED,
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from ottla.log.swap import discard_cleaned
from ottla.log.swap import segment_name as name_of
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.seams.background import Pace
from ottla.wire.batch_header import BATCH_OVERHEAD, HEADER_BYTES

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

READ_BYTES = 1024 * 1024  # as Kafka's log.cleaner.io.buffer.size for reading and writing together
WRITE_BYTES = 1024 * 1024
RELATIVE_OFFSET_MAX = 2**31 - 1  # what an index entry can hold
LOG_BYTES_MAX = 2**31 - 1


class SourceSegment(NamedTuple):
    """A segment to compact: its base offset, and the sizes of its files."""

    base_offset: int
    bytes: int
    index_bytes: int
    time_index_bytes: int


class Plan(NamedTuple):
    """The arguments of a compaction; `to_json` and `from_json` pass it through a pipe."""

    directory: str
    segments: list[SourceSegment]  # every segment below the first uncleanable offset
    transaction_indexes: list[str]  # paths, of the segments above as well
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_bytes: int  # for the offset map
    load_factor: float  # the share of the map that may be used
    hash_secret: str  # 16 bytes in hexadecimal: the key of the map's hash
    bytes_per_second: float | None  # reading and writing together; None for no limit
    producers: dict[int, LastRecord]

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {
            "segments": [list(segment) for segment in self.segments],
            "producers": [[id_, *last] for id_, last in self.producers.items()],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Plan":
        return cls(
            **values
            | {
                "segments": [SourceSegment(*segment) for segment in values["segments"]],
                "producers": {id_: LastRecord(*last) for id_, *last in values["producers"]},
            }
        )


class Group(NamedTuple):
    """Old segments, and the size of the one cleaned segment that replaces them."""

    base_offset: int
    old_base_offsets: list[int]
    bytes: int


class Outcome(NamedTuple):
    """The result of a compaction; segments in no group are as they were."""

    end_offset: int  # everything below is clean now
    groups: list[Group]
    bytes_read: int
    bytes_kept: int
    records_read: int
    records_kept: int
    records_without_key: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"groups": [list(group) for group in self.groups]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Outcome":
        return cls(**values | {"groups": [Group(*group) for group in values["groups"]]})


def clean_job(disk: "Disk", arguments: dict[str, Any]) -> dict[str, Any]:
    """The job "compact" of the helper process."""
    return clean(disk, Plan.from_json(arguments)).to_json()


def clean(disk: "Disk", plan: Plan) -> Outcome:
    discard_cleaned(disk, plan.directory)  # a left-over would be taken for a part of this one
    pace = Pace(plan.bytes_per_second)
    aborted = read_aborted(disk, plan.transaction_indexes)
    offsets = build_offset_map(disk, plan, aborted, pace)
    end_offset = offsets.latest_offset + 1
    transactions = Transactions(aborted)
    batch_filter = BatchFilter(
        offsets,
        transactions,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.delete_retention_ms,
        producers=plan.producers,
        upper_bound_offset=plan.first_uncleanable_offset,
    )
    groups = []
    bytes_read = bytes_kept = 0
    segments = [segment for segment in plan.segments if segment.base_offset < end_offset]
    for sources in group_segments(segments, plan):
        group = clean_group(disk, plan, sources, batch_filter, transactions, pace)
        source_bytes = sum(source.bytes for source in sources)
        bytes_read += source_bytes
        if group is None:
            bytes_kept += source_bytes
        else:
            bytes_kept += group.bytes
            groups.append(group)
    if groups:
        disk.sync_directory(plan.directory)
    return Outcome(
        end_offset,
        groups,
        bytes_read,
        bytes_kept,
        batch_filter.records_read,
        batch_filter.records_kept,
        batch_filter.records_without_key,
    )


def read_aborted(disk: "Disk", paths: list[str]) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for path in paths:
        found += TransactionIndex(disk, path).all()
    return found


def build_offset_map(
    disk: "Disk", plan: Plan, aborted: list[AbortedTransaction], pace: Pace
) -> OffsetMap:
    """Learns the keys of the dirty segments, as many whole batches as the budget holds."""
    start_offset = plan.first_dirty_offset
    offsets = offset_map_of(
        plan.dedupe_bytes,
        plan.load_factor,
        bytes.fromhex(plan.hash_secret),
        records_max=plan.first_uncleanable_offset - start_offset,
    )
    offsets.latest_offset = start_offset - 1
    transactions = Transactions(a for a in aborted if a.last_offset >= start_offset)
    bounds = [segment.base_offset for segment in plan.segments[1:]]
    for segment, bound in zip(plan.segments, [*bounds, plan.first_uncleanable_offset], strict=True):
        if bound <= start_offset:
            continue
        position = position_of(disk, plan.directory, segment, start_offset)
        for batch in read_batches(disk, plan.directory, segment, pace, position):
            if batch.last_offset < start_offset:
                continue
            if batch.is_control:
                transactions.on_control(batch)
            elif not transactions.on_batch(batch):
                if not offsets.has_capacity(batch.record_count):
                    return offsets
                batch.check()
                offsets.add(batch.records(), batch.record_count, batch.base_offset, start_offset)
            offsets.latest_offset = batch.last_offset
        offsets.latest_offset = max(offsets.latest_offset, bound - 1)  # over a gap in the offsets
    return offsets


def position_of(disk: "Disk", directory: str, segment: SourceSegment, offset: int) -> int:
    """Where to begin to read for an offset: a batch at or before it, from the segment's index."""
    prefix = f"{directory}/{name_of(segment.base_offset)}"
    if offset <= segment.base_offset or not disk.exists(prefix + INDEX):
        return 0
    index = disk.open(prefix + INDEX)
    found = OffsetIndex(segment.base_offset, index, index.size()).lookup(offset)
    index.close()
    if found is None:
        return 0
    last_offset, position = found
    header = disk.open(prefix + LOG).pread(HEADER_BYTES, position)
    # A damaged index may say anything; only an entry that its batch confirms is used.
    is_sound = len(header) == HEADER_BYTES and last_offset_of(header) == last_offset
    return position if is_sound else 0


def last_offset_of(header: Buffer) -> int:
    base_offset = int.from_bytes(header[:8], "big", signed=True)
    return base_offset + int.from_bytes(header[23:27], "big", signed=True)


def group_segments(segments: list[SourceSegment], plan: Plan) -> list[list[SourceSegment]]:
    """Neighbours whose files together still fit one segment."""
    groups: list[list[SourceSegment]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        last_offset = (following or plan.first_uncleanable_offset) - 1
        if (
            groups
            and log_bytes + segment.bytes <= plan.segment_bytes
            and index_bytes + segment.index_bytes <= plan.segment_index_bytes
            and time_index_bytes + segment.time_index_bytes <= plan.segment_index_bytes
            and (
                segment.bytes == 0 or last_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes = index_bytes = time_index_bytes = 0
        log_bytes += segment.bytes
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
    return groups


def clean_group(
    disk: "Disk",
    plan: Plan,
    sources: list[SourceSegment],
    batch_filter: BatchFilter,
    transactions: Transactions,
    pace: Pace,
) -> Group | None:
    """Writes what is left of these segments into one under `.cleaned`, synced.

    None for one segment that loses nothing: it stays, and nothing is written. A pass over a log
    with more keys than the map holds leaves most segments of the clean part so.
    """
    target = None if len(sources) == 1 else CleanedSegment(disk, plan, sources[0])
    same_bytes = 0  # of the one segment, while there is no target
    for source in sources:
        for batch in read_batches(disk, plan.directory, source, pace):
            kept = batch_filter.clean(batch)
            if target is None:
                if kept is batch.data:
                    same_bytes += len(batch.data)
                    continue
                target = CleanedSegment(disk, plan, source)
                target.copy(source, same_bytes, pace)
            if kept is not None:
                pace.moved(len(kept))
                target.append(batch.last_offset, max_timestamp_of(kept), kept)
    aborted = transactions.take_retained()
    if target is None:
        return None
    target.finish(aborted)
    newest = f"{plan.directory}/{name_of(sources[-1].base_offset)}{LOG}"
    disk.set_modified_ms(target.path, disk.modified_ms(newest))
    old = [source.base_offset for source in sources]
    return Group(sources[0].base_offset, old, target.size)


def max_timestamp_of(batch: Buffer) -> int:
    return int.from_bytes(batch[35:43], "big", signed=True)


class CleanedSegment:
    """A segment being written under `.cleaned`, with its indexes."""

    def __init__(self, disk: "Disk", plan: Plan, first: SourceSegment) -> None:
        base_offset = first.base_offset
        prefix = f"{plan.directory}/{name_of(base_offset)}"
        self.path = prefix + LOG + CLEANED
        self.size = 0
        self._file = disk.open(self.path, create=True)
        self._index = OffsetIndex(base_offset, disk.open(prefix + INDEX + CLEANED, create=True), 0)
        self._time_index = TimeIndex(
            base_offset, disk.open(prefix + TIME_INDEX + CLEANED, create=True), 0
        )
        self._transaction_index = TransactionIndex(disk, prefix + TRANSACTION_INDEX + CLEANED)
        self._transaction_path = prefix + TRANSACTION_INDEX + CLEANED
        self._disk = disk
        self._directory = plan.directory
        self._index_interval_bytes = plan.index_interval_bytes
        self._since_entry = 0
        self._max_timestamp = -1
        self._offset_of_max_timestamp = base_offset
        self._buffer = bytearray()

    def copy(self, source: SourceSegment, size: int, pace: Pace) -> None:
        """Appends the batches in the first `size` bytes of a segment as they are."""
        for batch in read_batches(self._disk, self._directory, source._replace(bytes=size), pace):
            self.append(batch.last_offset, batch.max_timestamp, batch.data)

    def append(self, last_offset: int, max_timestamp: int, data: Buffer) -> None:
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._since_entry > self._index_interval_bytes:
            self._index.append(last_offset, self.size)
            self._time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
            self._since_entry = 0
        self._since_entry += len(data)
        self.size += len(data)
        if self.size > LOG_BYTES_MAX:
            raise OverflowError(f"{self.path}: more than {LOG_BYTES_MAX} bytes after cleaning")
        self._buffer += data
        if len(self._buffer) >= WRITE_BYTES:
            self._write()

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Writes the rest and returns when all of it is on the device."""
        self._write()
        if self._max_timestamp >= 0:
            self._time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
        self._index.write_out()
        self._time_index.write_out()
        files = [self._file, self._index.file, self._time_index.file]
        for transaction in sorted(aborted, key=lambda a: a.last_offset):
            self._transaction_index.append(transaction)
        if aborted:
            files.append(self._disk.open(self._transaction_path))
        for file in files:
            file.sync()
            file.close()

    def _write(self) -> None:
        if self._buffer:
            self._file.append(self._buffer)
            self._buffer = bytearray()


def read_batches(
    disk: "Disk", directory: str, segment: SourceSegment, pace: Pace, position: int = 0
) -> Iterator[Batch]:
    """The batches of a segment in order, from a position on."""
    path = f"{directory}/{name_of(segment.base_offset)}{LOG}"
    file = disk.open(path)
    size = segment.bytes
    while position < size:
        chunk = memoryview(file.pread(min(READ_BYTES, size - position), position))
        pace.moved(len(chunk))
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            total = _batch_bytes(chunk, at, path, position + at, size)
            if at + total > len(chunk):
                break
            yield Batch(chunk[at : at + total])
            at += total
        if at == 0:
            if len(chunk) < HEADER_BYTES:
                raise CorruptBatch(f"{path}: {len(chunk)} bytes at {position} are no batch")
            at = _batch_bytes(chunk, 0, path, position, size)
            yield Batch(memoryview(file.pread(at, position)))
        position += at
    file.close()


def _batch_bytes(chunk: memoryview, at: int, path: str, position: int, size: int) -> int:
    total = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + BATCH_OVERHEAD
    if total < HEADER_BYTES or position + total > size:
        raise CorruptBatch(f"{path}: a batch of {total} bytes at {position} of {size}")
    return total
