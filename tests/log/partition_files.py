"""A partition on disk written batch by batch, without a Log: what compaction's tests work on."""

import struct
from typing import NamedTuple

from ottla.log.batch import Batch, control_type
from ottla.log.compaction import LastRecord
from ottla.log.index import OffsetIndex
from ottla.log.rewrite import Outcome, Plan, SourceSegment, clean_job
from ottla.log.segment import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TRANSACTION_INDEX, Segment
from ottla.log.swap import rename_segment, retire_segments, segment_name
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.seams.disk import Disk
from ottla.wire.compression import Compression
from ottla.wire.records import Record, read_records, write_batch

ABORT, COMMIT = 0, 1
INTERVAL_BYTES = 200


class Read(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


class PartitionFiles:
    """Segments in a directory; the last one is active."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.bases = [0]
        self.end_offset = 0
        self.clean_offset = 0
        self.open_transactions: dict[int, int] = {}  # producer id -> first offset
        self.sequences: dict[int, int] = {}
        self.last_data: dict[int, int] = {}
        disk.mkdir(directory)
        disk.open(self.path(0, LOG), create=True)

    def path(self, base_offset: int, kind: str) -> str:
        return f"{self.directory}/{segment_name(base_offset)}{kind}"

    def append(
        self,
        records: list[Record],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
    ) -> int:
        base_offset = self.end_offset
        sequence = -1
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            self.last_data[producer_id] = base_offset + len(records) - 1
        if transactional:
            self.open_transactions.setdefault(producer_id, base_offset)
        self._write(
            write_batch(
                records,
                base_offset=base_offset,
                compression=compression,
                leader_epoch=3,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
                transactional=transactional,
            ),
            len(records),
        )
        return base_offset

    def end_transaction(self, producer_id: int, kind: int, now_ms: int) -> None:
        first_offset = self.open_transactions.pop(producer_id)
        marker_offset = self.end_offset
        marker = Record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, kind), timestamp=now_ms)
        self._write(
            write_batch(
                [marker],
                base_offset=marker_offset,
                producer_id=producer_id,
                producer_epoch=0,
                transactional=True,
                control=True,
            ),
            1,
        )
        if kind == ABORT:
            index = TransactionIndex(self.disk, self.path(self.bases[-1], TRANSACTION_INDEX))
            stable = min(self.open_transactions.values(), default=marker_offset + 1)
            index.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable))

    def _write(self, batch: bytes, count: int) -> None:
        self.disk.open(self.path(self.bases[-1], LOG)).append(batch)
        self.end_offset += count

    def roll(self) -> None:
        if self.end_offset > self.bases[-1]:
            self.bases.append(self.end_offset)
            self.disk.open(self.path(self.end_offset, LOG), create=True)

    def plan(
        self,
        *,
        now_ms: int,
        delete_retention_ms: int,
        dedupe_bytes: int,
        segment_bytes: int = 2_000,
    ) -> Plan | None:
        stable = min(self.open_transactions.values(), default=self.end_offset)
        bound = max((base for base in self.bases if base <= stable), default=0)
        if bound <= self.clean_offset:
            return None
        return Plan(
            directory=self.directory,
            segments=[
                SourceSegment(base, self.disk.open(self.path(base, LOG)).size(), 0, 0)
                for base in self.bases
                if base < bound
            ],
            transaction_indexes=[self.path(base, TRANSACTION_INDEX) for base in self.bases],
            first_dirty_offset=self.clean_offset,
            first_uncleanable_offset=bound,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            segment_bytes=segment_bytes,
            segment_index_bytes=10_000,
            index_interval_bytes=INTERVAL_BYTES,
            dedupe_bytes=dedupe_bytes,
            load_factor=0.9,
            hash_secret=bytes(range(16)).hex(),
            bytes_per_second=None,
            producers={
                producer_id: LastRecord(offset, 0) for producer_id, offset in self.last_data.items()
            },
        )

    def clean(self, plan: Plan) -> Outcome:
        """Cleans and swaps in, as the broker would."""
        outcome = Outcome.from_json(clean_job(self.disk, plan.to_json()))
        for group in outcome.groups:
            rename_segment(self.disk, self.directory, group.base_offset, CLEANED, SWAP)
            old = [Segment(self.disk, self.directory, base) for base in group.old_base_offsets]
            for path in retire_segments(self.disk, old, replaced_by=group.base_offset):
                self.disk.unlink(path)
            rename_segment(self.disk, self.directory, group.base_offset, SWAP, "")
            gone = set(group.old_base_offsets) - {group.base_offset}
            self.bases = [base for base in self.bases if base not in gone]
        self.clean_offset = outcome.end_offset
        return outcome

    def batches(self) -> list[Batch]:
        return [batch for base in self.bases for _, batch in self.batches_of(base)]

    def batches_of(self, base_offset: int) -> list[tuple[int, Batch]]:
        data = memoryview(self.disk.read(self.path(base_offset, LOG)))
        found, position = [], 0
        while position < len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            found.append((position, Batch(data[position : position + size])))
            position += size
        return found

    def committed(self) -> list[Read]:
        """What a read_committed consumer gets, by the rules that consumers follow."""
        coming = sorted(
            (
                aborted
                for base in self.bases
                for aborted in TransactionIndex(self.disk, self.path(base, TRANSACTION_INDEX)).all()
            ),
            key=lambda aborted: aborted.first_offset,
        )
        stable = min(self.open_transactions.values(), default=self.end_offset)
        aborting: set[int] = set()
        found: list[Read] = []
        for batch in self.batches():
            if batch.base_offset >= stable:
                break
            while coming and coming[0].first_offset <= batch.last_offset:
                aborting.add(coming.pop(0).producer_id)
            if batch.is_control:
                if control_type(batch) == ABORT:
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                found += reads(batch)
        return found

    def check_indexes(self) -> None:
        """Every index entry points to the batch that ends with its offset; times go up."""
        for base in self.bases:
            by_position = dict(self.batches_of(base))
            if self.disk.exists(self.path(base, INDEX)):
                file = self.disk.open(self.path(base, INDEX))
                for offset, position in OffsetIndex(base, file, file.size()).entries():
                    assert by_position[position].last_offset == offset
            if self.disk.exists(self.path(base, TIME_INDEX)):
                file = self.disk.open(self.path(base, TIME_INDEX))
                largest = TimeIndex(base, file, file.size()).last()
                times = [batch.max_timestamp for batch in by_position.values()]
                assert (largest.timestamp if largest else None) == max(times, default=None)


def reads(batch: Batch) -> list[Read]:
    if batch.record_count == 0:
        return []
    return [
        Read(record.offset, record.key, record.value, record.timestamp, tuple(record.headers))  # type: ignore[arg-type]
        for record in read_records(batch.data)
    ]
