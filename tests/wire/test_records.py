"""Record batches: what is written is read, what is damaged is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire import control
from ottla.wire.compression import Compression
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_BYTES,
    CorruptBatch,
    Record,
    UnsupportedMagic,
    batch_bounds,
    crc32c,
    read_header,
    read_records,
    write_batch,
)

blobs = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
timestamps = st.integers(-1, 2**60)
records = st.builds(Record, blobs, key=blobs, headers=headers, timestamp=timestamps)
batches = st.builds(
    write_batch,
    st.lists(records, min_size=1, max_size=5),
    compression=st.sampled_from(Compression),
    base_offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 2**31 - 1),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
)
quick = settings(max_examples=60, deadline=None, database=None)


def resealed(batch: bytearray) -> bytearray:
    """The batch with a checksum that is right again, so that only the inside is wrong."""
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(bytes(batch[ATTRIBUTES_POSITION:])))
    return batch


@quick
@given(st.lists(records, min_size=1, max_size=8), st.sampled_from(Compression))
def test_records_read_back(wanted: list[Record], codec: Compression) -> None:
    """Keys, values, nulls, headers, timestamps and offsets survive, in every codec."""
    batch = write_batch(wanted, compression=codec, base_offset=7)
    found = read_records(memoryview(batch))
    for position, record in enumerate(wanted):
        record.offset = 7 + position
    assert found == wanted


@quick
@given(st.lists(records, min_size=1, max_size=4), st.integers(0, 2**40), st.integers(0, 2**31 - 1))
def test_header_reads_back(wanted: list[Record], base_offset: int, sequence: int) -> None:
    """The header holds what was given, and its derived figures follow."""
    batch = write_batch(
        wanted,
        base_offset=base_offset,
        leader_epoch=5,
        producer_id=9,
        producer_epoch=3,
        base_sequence=sequence,
        transactional=True,
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.magic == 2
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + len(wanted) - 1)
    assert header.last_sequence == (sequence + len(wanted) - 1) % 2**31
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (9, 3, 5)
    assert header.max_timestamp == max(record.timestamp for record in wanted)
    assert (header.record_count, header.is_transactional, header.is_control) == (
        len(wanted),
        True,
        False,
    )
    assert header.crc == crc32c(batch[ATTRIBUTES_POSITION:])
    assert header.delete_horizon_ms is None


def test_log_append_time_is_every_records_time() -> None:
    """With LogAppendTime the broker's time stands in the header and holds for each record."""
    wanted = [Record(b"a", timestamp=1), Record(b"b", timestamp=2)]
    batch = write_batch(wanted, log_append_time_ms=99)
    assert read_header(batch).log_append_time
    assert [record.timestamp for record in read_records(batch)] == [99, 99]


def test_offsets_may_have_gaps() -> None:
    """A compacted batch keeps its records' offsets."""
    batch = write_batch([Record(b"a", offset=10), Record(b"b", offset=15)])
    assert read_header(batch).last_offset == 15
    assert [record.offset for record in read_records(batch)] == [10, 15]


def test_a_batch_needs_a_record() -> None:
    """There is no way to write a batch of nothing."""
    with pytest.raises(ValueError, match="at least one record"):
        write_batch([])


@pytest.mark.parametrize("kind", [control.ABORT, control.COMMIT])
def test_control_batch_reads_back(kind: int) -> None:
    """The marker of a transaction's end is a control batch with type and coordinator epoch."""
    batch = control.write_marker(
        kind, producer_id=7, producer_epoch=2, coordinator_epoch=11, timestamp=5, base_offset=40
    )
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    (record,) = read_records(batch)
    assert control.control_type(record.key) == kind
    assert control.coordinator_epoch(record.value) == 11


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_damaged_control_records_are_refused(data: bytes | None) -> None:
    """A marker that is absent, short or of a negative version is malformed."""
    with pytest.raises(MalformedMessage):
        control.control_type(data)
    with pytest.raises(MalformedMessage):
        control.coordinator_epoch(data)


@quick
@given(batches)
def test_a_batch_that_is_cut_short_is_refused(batch: bytes) -> None:
    """No proper prefix of a batch gives records, and none is counted as whole."""
    for size in range(0, len(batch), max(1, len(batch) // 50)):
        with pytest.raises(MalformedMessage):
            read_records(batch[:size])
        assert list(batch_bounds(batch[:size])) == []


@quick
@given(batches, st.data())
def test_one_wrong_byte_is_found(batch: bytes, data: st.DataObject) -> None:
    """A flipped bit anywhere under the checksum, or in it, is a corrupt batch."""
    damaged = bytearray(batch)
    position = data.draw(st.integers(CRC_POSITION, len(batch) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch):
        read_records(bytes(damaged))


@settings(max_examples=300, deadline=None, database=None)
@given(batches, st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1))
def test_damage_behind_a_right_checksum_is_refused(
    batch: bytes, mutations: list[tuple[int, int]]
) -> None:
    """A hostile producer seals nonsense with a right checksum: records or MalformedMessage."""
    damaged = bytearray(batch)
    for position, value in mutations:
        damaged[ATTRIBUTES_POSITION + position % (len(batch) - ATTRIBUTES_POSITION)] = value
    try:
        read_records(bytes(resealed(damaged)), limit=1 << 20)
    except MalformedMessage:
        pass


def test_a_huge_record_count_is_refused_at_once() -> None:
    """A count that the bytes cannot hold is refused before anything is read."""
    damaged = bytearray(write_batch([Record(b"x")]))
    for count in (2**31 - 1, -1, 3):
        struct.pack_into(">i", damaged, HEADER_BYTES - 4, count)
        with pytest.raises(CorruptBatch, match="cannot fit"):
            read_records(bytes(resealed(damaged)))


@pytest.mark.parametrize(
    ("magic", "words"), [(0, "before Kafka 0.11"), (1, "before Kafka 0.11"), (3, "not known")]
)
def test_other_formats_are_refused_by_name(magic: int, words: str) -> None:
    """Magic 0 and 1 are refused with a sentence that says why, as an unknown one is."""
    batch = bytearray(write_batch([Record(b"x")]))
    batch[16] = magic
    with pytest.raises(UnsupportedMagic, match=words):
        read_header(batch)
    with pytest.raises(UnsupportedMagic, match=words):
        read_records(bytes(batch))
    # A message set of v0 is shorter than a header of v2.
    old = struct.pack(">qiIbbii", 0, 14, 0, magic, 0, -1, -1)
    with pytest.raises(UnsupportedMagic, match=words):
        list(batch_bounds(old))
    with pytest.raises(UnsupportedMagic, match=words):
        read_header(old)


def test_bounds_of_several_batches() -> None:
    """Whole batches are found one after the other; a last one that is cut off is left out."""
    batches = [write_batch([Record(b"x" * size)]) for size in (1, 100, 1000)]
    view = memoryview(b"".join(batches) + batches[0][:50])
    assert [bytes(view[start:end]) for start, end in batch_bounds(view)] == batches
    assert list(batch_bounds(b"")) == []


@pytest.mark.parametrize("length", [-1, 0, 13, 48, -(2**31)])
def test_bounds_refuse_a_length_shorter_than_a_header(length: int) -> None:
    """A batch length that cannot be true never moves the position back or stands still."""
    with pytest.raises(CorruptBatch, match="says it has"):
        list(batch_bounds(struct.pack(">qiib", 0, length, 0, 2) + bytes(100)))
