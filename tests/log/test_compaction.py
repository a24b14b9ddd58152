"""Compaction against a simple model: a dict of what each key's last committed value is."""

import tempfile
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.log import offset_map, rewrite
from ottla.log.batch import Batch, CorruptBatch, rebuild, scan_records
from ottla.log.offset_map import SLOT_BYTES, OffsetMap
from ottla.log.rewrite import Plan, SourceSegment, position_of
from ottla.log.segment import INDEX, LOG, TRANSACTION_INDEX
from ottla.log.transaction_index import TransactionIndex
from ottla.seams.disk import RealDisk
from ottla.wire.compression import Compression
from ottla.wire.records import Record, read_records, write_batch
from tests.log.offset_map_forms import FORMS
from tests.log.partition_files import ABORT, COMMIT, PartitionFiles, Read

START_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 1_000
PLENTY = 1_000_000

KEYS = [b"a", b"b", b"c", b"", b"a long key, longer than sixteen bytes", b"another such long key!!"]
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, (1, 2), (11, 12)


class Put(NamedTuple):
    """A batch of records by a producer: (key, value) pairs."""

    producer_id: int
    pairs: list[tuple[bytes | None, bytes | None]]
    compression: Compression


class End(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    kind: int


class Roll(NamedTuple):
    """A new segment begins."""


class Clean(NamedTuple):
    """A cleaning, some time later, with an offset map of so many keys; perhaps from the start."""

    later_ms: int
    keys_max: int
    again: bool


PAIRS = st.tuples(st.sampled_from([*KEYS, None]), st.none() | st.binary(min_size=0, max_size=30))
STEPS = st.lists(
    st.one_of(
        st.builds(
            Put,
            st.sampled_from([PLAIN, *IDEMPOTENT, *TRANSACTIONAL]),
            st.lists(PAIRS, min_size=1, max_size=4),
            st.sampled_from(list(Compression)),
        ),
        st.builds(End, st.sampled_from(TRANSACTIONAL), st.sampled_from([ABORT, COMMIT])),
        st.builds(Roll),
        st.builds(Clean, st.integers(0, 1_500), st.sampled_from([1, 3, 1_000]), st.booleans()),
    ),
    max_size=40,
)


def new_partition(directory: str) -> PartitionFiles:
    return PartitionFiles(RealDisk(), f"{directory}/first-0")


def latest(records: list[Read]) -> dict[bytes, Read]:
    """The model: the last value of each key, nothing where that was a tombstone."""
    found: dict[bytes, Read] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record
    return found


def last_sequences(batches: list[Batch]) -> dict[int, tuple[int, int]]:
    """Last sequence and offset of each producer, as a restart would learn them from the log."""
    return {
        batch.producer_id: (
            batch.base_sequence + batch.last_offset - batch.base_offset,
            batch.last_offset,
        )
        for batch in batches
        if batch.producer_id >= 0 and not batch.is_control
    }


def check_cleaning(partition: PartitionFiles, clean: Clean, now_ms: int) -> None:
    if clean.again:
        partition.clean_offset = 0
    plan = partition.plan(
        now_ms=now_ms,
        delete_retention_ms=DELETE_RETENTION_MS,
        dedupe_bytes=(clean.keys_max + 1) * SLOT_BYTES,
    )
    if plan is None:
        return
    before, before_batches = partition.committed(), partition.batches()
    spans = {batch.base_offset: batch.last_offset for batch in before_batches}
    sequences = last_sequences(before_batches)
    young_tombstones = {
        record.offset
        for record in latest_by_key(before, plan.first_uncleanable_offset).values()
        if record.value is None and not past_horizon(before_batches, record.offset, now_ms)
    }
    outcome = partition.clean(plan)
    after, after_batches = partition.committed(), partition.batches()

    assert plan.first_dirty_offset < outcome.end_offset <= plan.first_uncleanable_offset
    assert latest(after) == latest(before), "the last values are the same"
    assert set(after) <= set(before), "what remains is as it was"
    assert last_sequences(after_batches) == sequences, "producers go on where they were"
    assert {b.base_offset: b.last_offset for b in after_batches}.items() <= spans.items()
    assert after_batches[-1].last_offset == before_batches[-1].last_offset
    cleaned = [record for record in after if record.offset < outcome.end_offset]
    keys = [record.key for record in cleaned]
    assert len(keys) == len(set(keys)), "below the cleaned end each key is there once"
    assert None not in keys
    assert [r for r in after if r.offset >= outcome.end_offset] == [
        r for r in before if r.offset >= outcome.end_offset
    ], "above it nothing has changed"
    if outcome.end_offset == plan.first_uncleanable_offset:
        assert young_tombstones <= {record.offset for record in after}
    for batch in after_batches:
        batch.check()
    partition.check_indexes()


def latest_by_key(records: list[Read], below: int) -> dict[bytes, Read]:
    return {r.key: r for r in records if r.key is not None and r.offset < below}


def past_horizon(batches: list[Batch], offset: int, now_ms: int) -> bool:
    for batch in batches:
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= now_ms
    raise AssertionError(f"no batch holds {offset}")


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_compaction_keeps_what_the_model_keeps(form: type[OffsetMap], steps: list[object]) -> None:
    """Whatever was written, aborted and cleaned before: the last values, and no others, remain."""
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(offset_map, "best_form", return_value=form),
    ):
        partition = new_partition(directory)
        now_ms = START_MS
        for step in [*steps, Roll(), *[Clean(2_000, 1_000, again=True)] * 3]:
            if isinstance(step, Put):
                partition.append(
                    [
                        Record(value, key=key, timestamp=now_ms + n, headers=[("h", b"x")])
                        for n, (key, value) in enumerate(step.pairs)
                    ],
                    producer_id=step.producer_id,
                    transactional=step.producer_id in TRANSACTIONAL,
                    compression=step.compression,
                )
            elif isinstance(step, End) and step.producer_id in partition.open_transactions:
                partition.end_transaction(step.producer_id, step.kind, now_ms)
            elif isinstance(step, Roll):
                partition.roll()
            elif isinstance(step, Clean):
                now_ms += step.later_ms
                check_cleaning(partition, step, now_ms)


def clean_again(partition: PartitionFiles, now_ms: int) -> None:
    """A cleaning of everything, whether dirty or not, as one that a new record would bring."""
    partition.clean_offset = 0
    plan = partition.plan(
        now_ms=now_ms, delete_retention_ms=DELETE_RETENTION_MS, dedupe_bytes=PLENTY
    )
    assert plan is not None
    partition.clean(plan)


def test_a_tombstone_goes_after_its_horizon(tmp_path: object) -> None:
    """The first cleaning stamps a horizon; before it the tombstone stays, after it it goes."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"1", key=b"a", timestamp=START_MS)])
    partition.append([Record(None, key=b"a", timestamp=START_MS + 5, headers=[("h", None)])])
    partition.append([Record(b"2", key=b"b", timestamp=START_MS + 7)])
    partition.roll()

    clean_again(partition, START_MS + 100)
    tombstone = partition.batches()[0]
    assert tombstone.delete_horizon_ms == START_MS + 100 + DELETE_RETENTION_MS
    (record,) = read_records(tombstone.data)
    assert (record.key, record.value, record.timestamp) == (b"a", None, START_MS + 5)
    assert tombstone.max_timestamp == START_MS + 5

    clean_again(partition, START_MS + 99 + DELETE_RETENTION_MS)
    assert [r.key for r in partition.committed()] == [b"a", b"b"]
    clean_again(partition, START_MS + 100 + DELETE_RETENTION_MS)
    assert [r.key for r in partition.committed()] == [b"b"]


def test_an_aborted_transaction_goes_and_its_marker_follows(tmp_path: object) -> None:
    """Aborted records go at once; the marker only once they are gone and a horizon has passed."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"1", key=b"a")], producer_id=11, transactional=True)
    partition.end_transaction(11, ABORT, START_MS)
    partition.append([Record(b"2", key=b"b")])
    partition.last_data.clear()  # no producer is active any more
    partition.roll()

    def kinds() -> list[str]:
        return ["marker" if batch.is_control else "data" for batch in partition.batches()]

    def indexed() -> int:
        return len(TransactionIndex(partition.disk, partition.path(0, TRANSACTION_INDEX)).all())

    clean_again(partition, START_MS)
    assert kinds() == ["marker", "data"]
    assert partition.batches()[0].delete_horizon_ms is None
    assert indexed() == 1
    clean_again(partition, START_MS + 10)
    assert kinds() == ["marker", "data"]
    assert indexed() == 0
    assert partition.batches()[0].delete_horizon_ms == START_MS + 10 + DELETE_RETENTION_MS
    clean_again(partition, START_MS + 9 + DELETE_RETENTION_MS)
    assert kinds() == ["marker", "data"]
    clean_again(partition, START_MS + 10 + DELETE_RETENTION_MS)
    assert kinds() == ["data"]


def test_a_commit_marker_stays_while_its_records_do(tmp_path: object) -> None:
    """A committed record keeps its marker; once it is superseded the marker may follow."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"1", key=b"a")], producer_id=11, transactional=True)
    partition.end_transaction(11, COMMIT, START_MS)
    partition.last_data.clear()
    partition.append([Record(b"2", key=b"b")])
    partition.roll()
    for later in range(0, 5 * DELETE_RETENTION_MS, DELETE_RETENTION_MS):
        clean_again(partition, START_MS + later)
    assert [batch.is_control for batch in partition.batches()] == [False, True, False]
    partition.append([Record(b"3", key=b"a")])
    partition.roll()
    for later in range(0, 5 * DELETE_RETENTION_MS, DELETE_RETENTION_MS):
        clean_again(partition, START_MS + later)
    assert [batch.is_control for batch in partition.batches()] == [False, False]


def test_a_producers_last_sequence_stays_as_an_empty_batch(tmp_path: object) -> None:
    """A superseded batch with an active producer's last sequence stays, without its records."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"1", key=b"a"), Record(b"2", key=b"b")], producer_id=1)
    partition.append([Record(b"3", key=b"a"), Record(b"4", key=b"b")])
    partition.roll()
    clean_again(partition, START_MS)
    empty, full = partition.batches()
    assert (empty.record_count, empty.base_sequence, empty.producer_id) == (0, 0, 1)
    assert (empty.base_offset, empty.last_offset, empty.base_timestamp) == (0, 1, -1)
    assert full.record_count == 2
    partition.last_data.clear()  # the producer has expired
    clean_again(partition, START_MS)
    assert [batch.base_offset for batch in partition.batches()] == [2]


def test_the_last_offset_of_a_cleaning_is_never_forgotten(tmp_path: object) -> None:
    """Even if nothing of the last batch survives, an empty batch holds its offsets."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"1", key=b"a")])
    partition.append([Record(b"no key", key=None)])
    partition.roll()
    clean_again(partition, START_MS)
    assert [(b.base_offset, b.record_count) for b in partition.batches()] == [(0, 1), (1, 0)]


def test_untouched_batches_are_the_same_bytes(tmp_path: object) -> None:
    """A batch that loses nothing is copied as it is, whatever its compression."""
    partition = new_partition(str(tmp_path))
    for number, codec in enumerate(Compression):
        partition.append([Record(b"v" * 100, key=bytes([number]))], compression=codec)
    partition.append([Record(b"old", key=b"x")])
    partition.append([Record(b"new", key=b"x")])
    partition.roll()
    before = [bytes(batch.data) for batch in partition.batches()]
    clean_again(partition, START_MS)
    assert [bytes(batch.data) for batch in partition.batches()] == [*before[:5], before[6]]


def test_a_clean_segment_is_left_alone(tmp_path: object) -> None:
    """A cleaning that would change nothing in a segment replaces nothing."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"v" * 1_500, key=b"a")])
    partition.roll()
    partition.append([Record(b"v" * 1_500, key=b"b")])
    partition.roll()
    plan = partition.plan(
        now_ms=START_MS, delete_retention_ms=DELETE_RETENTION_MS, dedupe_bytes=PLENTY
    )
    assert plan is not None
    with mock.patch.object(rewrite, "CleanedSegment") as written:
        outcome = partition.clean(plan)
    written.assert_not_called()
    assert outcome.groups == []
    assert outcome.end_offset == 2


def test_what_lies_before_the_first_change_is_copied(tmp_path: object) -> None:
    """A segment whose last batches lose records keeps those before them, byte for byte."""
    partition = new_partition(str(tmp_path))
    for number in range(20):
        partition.append([Record(b"v" * 100, key=bytes([number]))])
    partition.append([Record(b"old", key=b"x"), Record(b"kept", key=b"y")])
    partition.append([Record(b"new", key=b"x")])
    partition.roll()
    before = [bytes(batch.data) for batch in partition.batches()]
    clean_again(partition, START_MS)
    after = [bytes(batch.data) for batch in partition.batches()]
    assert after[:20] == before[:20]
    assert [record.value for record in read_records(after[20])] == [b"kept"]
    assert after[21:] == before[21:]
    partition.check_indexes()


def test_small_segments_are_put_together(tmp_path: object) -> None:
    """Neighbours become one segment as long as they fit into one."""
    partition = new_partition(str(tmp_path))
    for number in range(6):
        partition.append([Record(b"v" * 700, key=bytes([number]))])
        partition.roll()
    clean_again(partition, START_MS)
    assert partition.bases == [0, 2, 4, 6]
    assert [record.offset for record in partition.committed()] == list(range(6))


def test_a_corrupt_batch_stops_the_cleaning(tmp_path: object) -> None:
    """A flipped bit is never given a new checksum: the cleaning fails and changes nothing."""
    partition = new_partition(str(tmp_path))
    partition.append([Record(b"value", key=b"a")])
    partition.append([Record(b"value", key=b"a")])
    partition.roll()
    path = partition.path(0, LOG)
    data = bytearray(partition.disk.read(path))
    data[-3] ^= 1
    partition.disk.open(path).pwrite(data, 0)
    with pytest.raises(CorruptBatch, match="checksum"):
        clean_again(partition, START_MS)
    assert partition.disk.read(path) == data


def test_every_cut_of_a_record_is_noticed() -> None:
    """Records that end too early, or leave bytes over, are refused."""
    data = Batch(memoryview(write_batch([Record(b"value", key=b"k"), Record(None)]))).records()
    assert len(list(scan_records(data, 2))) == 2
    for cut in range(len(data)):
        with pytest.raises(CorruptBatch):
            list(scan_records(data[:cut], 2))
    with pytest.raises(CorruptBatch, match="after the last"):
        list(scan_records(data, 1))


def test_a_new_horizon_keeps_every_field() -> None:
    """Re-stamping a batch changes no record as a reader sees it, at any codec."""
    records = [
        Record(b"v" * n, key=b"k", timestamp=START_MS + n * 1_000_000, headers=[("h", b"v" * n)])
        for n in (0, 1, 63, 64, 200)
    ]
    for codec in Compression:
        batch = Batch(memoryview(write_batch(records, compression=codec, base_offset=50)))
        data = batch.records()
        new = rebuild(batch, data, batch.record_count, 200_000_000, START_MS * 2)
        assert read_records(new) == read_records(batch.data)
        assert Batch(memoryview(new)).delete_horizon_ms == START_MS * 2


def test_a_pass_begins_where_the_last_ended(tmp_path: object) -> None:
    """With more keys than the map holds, a pass learns from the batch on at which the last ended.

    Its place is found in the segment's index; an index that is damaged is not believed.
    """
    partition = new_partition(str(tmp_path))
    for number in range(60):
        partition.append([Record(b"v" * 50, key=b"%d" % max(1, number))])
    partition.roll()
    learned: list[int] = []

    class Recording(OffsetMap):
        """An offset map that notes the offsets of the batches it learns."""

        __slots__ = ()

        def add(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
            learned.append(base_offset)
            super().add(records, count, base_offset, start_offset)

    def plan() -> Plan:
        plan = partition.plan(
            now_ms=START_MS,
            delete_retention_ms=DELETE_RETENTION_MS,
            dedupe_bytes=21 * SLOT_BYTES,
            segment_bytes=1 << 20,
        )
        assert plan is not None
        return plan

    with mock.patch.object(offset_map, "best_form", return_value=Recording):
        ends = []
        while partition.clean_offset < 60:
            ends.append(partition.clean(plan()).end_offset)
    assert ends == [19, 37, 55, 60]
    assert learned == list(range(60)), "each batch once"

    segment = SourceSegment(0, partition.disk.open(partition.path(0, LOG)).size(), 0, 0)
    place = position_of(partition.disk, partition.directory, segment, 36)
    (found,) = [batch for at, batch in partition.batches_of(0) if at == place]
    assert 30 < found.last_offset <= 36
    index = partition.disk.open(partition.path(0, INDEX))
    index.pwrite(b"\x7f" * index.size(), 0)
    assert position_of(partition.disk, partition.directory, segment, 36) == 0
