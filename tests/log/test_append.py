"""Appending: what is taken, how it is stamped, and what is refused with which of Kafka's errors."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log import inspection
from ottla.log.append import Origin
from ottla.log.log import Log
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, read_header, read_records, write_batch
from tests.log.logs import DIRECTORY, NOW_MS, batch, new_log, put, read_all, values

ROOMY = LogConfig()


def log_with(**config: object) -> Log:
    return new_log(SimulatedDisk(), ROOMY._replace(**config))  # type: ignore[arg-type]


def changed(view: memoryview, layout: str, position: int, value: int) -> memoryview:
    """The batch with one header field changed, and its checksum made right again."""
    struct.pack_into(layout, view, position, value)
    struct.pack_into(">I", view, 17, crc32c(view, 21))
    return view


def error_of(log: Log, view: memoryview, **options: object) -> int:
    """The error code; nothing may have been written."""
    end_offset, size_bytes = log.end_offset, log.size_bytes
    result = log.append(view, leader_epoch=0, now_ms=NOW_MS, **options)  # type: ignore[arg-type]
    if result.error_code:
        assert (log.end_offset, log.size_bytes) == (end_offset, size_bytes)
        assert result.base_offset == -1
    return result.error_code


def test_offset_and_epoch_are_stamped_in_place() -> None:
    """The request's own bytes get base offset and leader epoch; the rest stays as it was."""
    log = log_with()
    put(log, b"a", b"b")
    view = batch(b"c", b"d", b"e")
    before = bytes(view)
    result = log.append(view, leader_epoch=7, now_ms=NOW_MS)
    assert (result.error_code, result.base_offset, result.last_offset) == (0, 2, 4)
    assert (result.append_time_ms, result.log_start_offset) == (-1, 0)
    header = read_header(view)
    assert (header.base_offset, header.leader_epoch) == (2, 7)
    assert bytes(view[16:]) == before[16:]
    assert bytes(view[8:12]) == before[8:12]
    assert values(log) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("layout", "position", "value", "error"),
    [
        (">b", 16, 1, ErrorCode.INVALID_RECORD),  # an old format
        (">b", 16, 3, ErrorCode.CORRUPT_MESSAGE),  # one from the future
        (">q", 0, 5, ErrorCode.INVALID_RECORD),  # clients start at offset 0
        (">i", 57, 3, ErrorCode.INVALID_RECORD),  # count and last offset delta disagree
        (">i", 57, 0, ErrorCode.INVALID_RECORD),
        (">i", 23, -1, ErrorCode.INVALID_RECORD),
        (">h", 21, 0x20, ErrorCode.INVALID_RECORD),  # control records are the broker's
        (">q", 43, 9, ErrorCode.INVALID_RECORD),  # a producer id without a sequence
        (">h", 21, 0x07, ErrorCode.UNKNOWN_SERVER_ERROR),  # no such compression, as Kafka says it
    ],
)
def test_bad_headers_are_refused(layout: str, position: int, value: int, error: int) -> None:
    """Kafka's error code for each, and nothing written."""
    assert error_of(log_with(), changed(batch(b"a", b"b"), layout, position, value)) == error


def test_a_wrong_checksum_is_refused() -> None:
    """CORRUPT_MESSAGE, with no log start in the answer."""
    view = batch(b"a" * 100)
    view[80] ^= 1
    result = log_with().append(view, leader_epoch=0, now_ms=NOW_MS)
    assert (result.error_code, result.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_exactly_one_batch_a_partition() -> None:
    """None, two, or a part of one: INVALID_RECORD; a length that cannot be: CORRUPT_MESSAGE."""
    log = log_with()
    one = bytes(batch(b"a"))
    for records in (b"", one[:10], one[:-1], one + one):
        assert error_of(log, memoryview(bytearray(records))) == ErrorCode.INVALID_RECORD
    broken = memoryview(bytearray(one))
    struct.pack_into(">i", broken, 8, 3)
    assert error_of(log, broken) == ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(data: bytes) -> None:
    """Whatever comes, the answer is an error code."""
    assert error_of(log_with(), memoryview(bytearray(data))) != 0


@given(st.data())
def test_mutated_batches_never_raise_and_never_spoil_the_log(data: st.DataObject) -> None:
    """A few changed bytes, checksum made right: taken or refused, and the log stays readable."""
    log = log_with()
    put(log, b"before")
    view = batch(b"a" * 20, b"b" * 20)
    for _ in range(data.draw(st.integers(1, 3))):
        view[data.draw(st.integers(0, 60))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        struct.pack_into(">I", view, 17, crc32c(view, 21))
    log.append(view, leader_epoch=0, now_ms=NOW_MS)
    end = log.end_offset
    assert put(log, b"after").base_offset == end
    assert log.read(end, bytes_max=1000, end_offset=log.end_offset) is not None


def test_message_too_large_counts_the_whole_batch() -> None:
    """max.message.bytes is of the batch with its header; exactly as much is still allowed."""
    view = batch(b"a" * 1000)
    assert error_of(log_with(max_message_bytes=len(view)), view) == 0
    view = batch(b"a" * 1000)
    log = log_with(max_message_bytes=len(view) - 1)
    assert error_of(log, view) == ErrorCode.MESSAGE_TOO_LARGE


def test_larger_than_a_segment() -> None:
    """RECORD_LIST_TOO_LARGE, Kafka's RecordBatchTooLargeException."""
    view = batch(b"a" * 1000)
    assert error_of(log_with(segment_bytes=500), view) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_append_time_changes_the_header_only() -> None:
    """LogAppendTime: attribute bit, largest timestamp, checksum; every record has that time."""
    log = log_with(message_timestamp_type="LogAppendTime")
    view = batch(b"a", b"b", timestamp=5, compression=Compression.ZSTD)
    records = bytes(view[61:])
    result = log.append(view, leader_epoch=0, now_ms=NOW_MS)
    assert (result.error_code, result.append_time_ms) == (0, NOW_MS)
    assert bytes(view[61:]) == records
    assert [record.timestamp for record in read_all(log)] == [NOW_MS, NOW_MS]
    assert log.max_timestamp() == (NOW_MS, 0, 0)


def test_client_may_not_claim_append_time() -> None:
    """INVALID_TIMESTAMP with an error for each record."""
    log = log_with(message_timestamp_type="LogAppendTime")
    view = changed(batch(b"a", b"b"), ">h", 21, 0x08)
    result = log.append(view, leader_epoch=0, now_ms=NOW_MS)
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in result.record_errors] == [0, 1]
    assert result.error_message == "One or more records have been rejected due to invalid timestamp"


def test_claimed_append_time_is_taken_back_on_a_create_time_topic() -> None:
    """There the bit is cleared, as Kafka does, and the checksum is right again."""
    log = log_with()
    view = changed(batch(b"a", timestamp=NOW_MS - 5), ">h", 21, 0x08)
    assert error_of(log, view) == 0
    assert not read_header(view).log_append_time
    assert read_all(log)[0].timestamp == NOW_MS - 5


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize(
    ("first_ms", "stated_ms", "stored_ms"),
    [(-1, 0, -1), (-1, 7, -1), (NOW_MS, 0, NOW_MS + 1), (NOW_MS, -1, NOW_MS + 1), (0, 0, 1)],
)
def test_a_maximum_timestamp_that_cannot_be_right_is_computed(
    compression: Compression, first_ms: int, stated_ms: int, stored_ms: int
) -> None:
    """Kafka stores what the records say; so does a batch whose header contradicts itself."""
    log = log_with()
    records = [Record(b"a", timestamp=first_ms), Record(b"b", timestamp=first_ms)]
    if first_ms >= 0:
        records[1] = Record(b"b", timestamp=first_ms + 1)
    view = memoryview(bytearray(write_batch(records, compression=compression)))
    assert error_of(log, changed(view, ">q", 35, stated_ms)) == 0
    stored = read_header(log.active.file.pread(61, 0))
    assert (stored.max_timestamp, stored.base_timestamp) == (stored_ms, first_ms)
    assert [record.timestamp for record in read_all(log)] == [r.timestamp for r in records]
    assert log.active.largest().timestamp == stored_ms
    found = log.max_timestamp()
    assert found is not None
    assert found.timestamp == stored_ms
    if stored_ms < 0:
        assert log.offset_for_timestamp(0, end_offset=2) is None
        assert found.offset == 0


def test_only_doubtful_batches_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain batch is stored unread; one without times is opened once."""
    opened = []
    real = inspection.read_records
    monkeypatch.setattr(
        inspection, "read_records", lambda *args, **more: opened.append(1) or real(*args, **more)
    )
    log = log_with()
    for timestamp in (NOW_MS, 1, NOW_MS - 10**11):
        assert put(log, b"a", b"b", timestamp=timestamp).error_code == 0
    assert not opened
    assert put(log, b"a", timestamp=-1).error_code == 0
    assert len(opened) == 1


def test_records_from_too_far_ahead() -> None:
    """message.timestamp.after.max.ms, an hour by default; the error names the record."""
    log = log_with()
    limit = NOW_MS + 3_600_000
    assert error_of(log, batch(b"a", timestamp=limit)) == 0
    result = put(log, b"a", b"b", timestamp=limit)
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in result.record_errors] == [1]
    assert "is out of range" in result.record_errors[0].message
    assert result.log_start_offset == 0


def test_records_from_too_long_ago() -> None:
    """message.timestamp.before.max.ms looks at every record."""
    log = log_with(message_timestamp_before_max_ms=1000)
    assert put(log, b"a", timestamp=NOW_MS - 1000).error_code == 0
    assert put(log, b"a", timestamp=NOW_MS - 1001).error_code == ErrorCode.INVALID_TIMESTAMP
    assert put(log, b"a", timestamp=-1).error_code == 0  # no timestamp at all


def test_compacted_topic_wants_keys() -> None:
    """INVALID_RECORD, with the first three errors in the message."""
    log = log_with(cleanup_policy=frozenset(("compact",)))
    assert put(log, b"a").error_code == 0
    result = put(log, b"a", b"b", key=None)
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [0, 1]
    assert result.error_message is not None
    assert "rejected due to 2 record errors" in result.error_message
    assert "without key in topic partition events-0" in result.record_errors[0].message


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", list(Compression))
def test_compression_type_of_the_topic(wanted: str, source: Compression) -> None:
    """Another codec than the producer's: the batch is made anew, with its producer and times."""
    log = log_with(compression_type=wanted)
    view = batch(
        b"a" * 300, b"b" * 300, compression=source, producer_id=3, producer_epoch=1, base_sequence=0
    )
    assert log.append(view, leader_epoch=4, now_ms=NOW_MS).error_code == 0
    found = log.read(0, bytes_max=10_000, end_offset=2)
    assert found is not None
    data = found.file.pread(found.size, found.position)
    header = read_header(data)
    assert header.compression == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3}.get(
        wanted, 4
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 0)
    assert (header.base_offset, header.leader_epoch) == (0, 4)
    assert [(r.offset, r.value, r.timestamp) for r in read_records(data)] == [
        (0, b"a" * 300, NOW_MS),
        (1, b"b" * 300, NOW_MS + 1),
    ]


def test_a_retry_is_answered_with_its_first_offset() -> None:
    """Nothing is written, and the answer bears the old offsets."""
    log = log_with()
    mine = {"producer_id": 9, "producer_epoch": 0}
    put(log, b"x")
    first = put(log, b"a", b"b", base_sequence=0, **mine)
    put(log, b"y")
    again = put(log, b"a", b"b", base_sequence=0, **mine)
    assert (again.error_code, again.base_offset, again.last_offset) == (0, 1, 2)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert log.end_offset == 4


def test_markers_of_a_coordinator_end_transactions() -> None:
    """An abort marker: not seen by readers, and in the index of aborted transactions."""
    log = log_with()
    mine = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    put(log, b"a", base_sequence=0, **mine)
    put(log, b"b")
    assert log.first_unstable_offset() == 0
    assert error_of(log, marker(9, 0, commit=False), origin=Origin.COORDINATOR) == 0
    assert log.first_unstable_offset() == 0  # until the marker is visible
    log.producers.forget_completed_below(log.end_offset)
    assert log.first_unstable_offset() is None
    assert log.aborted_transactions(0, 3) == [(9, 0, 2, 3)]
    assert log.aborted_transactions(3, 4) == []
    put(log, b"c", base_sequence=1, **mine)
    assert error_of(log, marker(9, 0, commit=True), origin=Origin.COORDINATOR) == 0
    assert log.aborted_transactions(0, 9) == [(9, 0, 2, 3)]


def test_an_open_transaction_begins_no_earlier_than_the_log() -> None:
    """DeleteRecords past the first record of an open transaction: it begins with the log then."""
    log = log_with()
    for number in range(9):
        put(
            log,
            b"%d" % number,
            producer_id=9,
            producer_epoch=0,
            transactional=True,
            base_sequence=number,
        )
    assert log.first_unstable_offset(9) == 0
    log.delete_records_before(6)
    assert log.first_unstable_offset(9) == log.log_start_offset == 6


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> memoryview:
    record = Record(
        struct.pack(">hi", 0, coordinator_epoch),
        key=struct.pack(">hh", 0, int(commit)),
        timestamp=NOW_MS,
    )
    return memoryview(
        bytearray(
            write_batch(
                [record],
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=True,
                control=True,
            )
        )
    )


def test_stale_markers_are_fenced() -> None:
    """An old producer epoch or an old coordinator may not end a transaction."""
    log = log_with()
    put(log, b"a", producer_id=9, producer_epoch=2, base_sequence=0, transactional=True)
    as_coordinator = {"origin": Origin.COORDINATOR}
    stale = marker(9, 1, commit=True)
    assert error_of(log, stale, **as_coordinator) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert error_of(log, marker(9, 2, commit=True, coordinator_epoch=5), **as_coordinator) == 0
    fenced = error_of(log, marker(9, 2, commit=True, coordinator_epoch=4), **as_coordinator)
    assert fenced == ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_takes_the_log_offline(number: int) -> None:
    """KAFKA_STORAGE_ERROR from then on; what was there before can be recovered."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, b"a")
    disk.fail("write", ".log", number, times=1)
    assert put(log, b"b").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is not None
    assert put(log, b"c").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.entries(DIRECTORY)[0].size == log.active.size_bytes


def test_a_full_disk_leaves_no_part_of_a_batch() -> None:
    """An append is all or nothing."""
    disk = SimulatedDisk(capacity_bytes=400)
    log = new_log(disk)
    while put(log, b"x" * 50).error_code == 0:
        pass
    size = log.active.file.size()
    assert size == log.active.size_bytes > 0
