"""Finding offsets by time: in any segment, inside compressed batches, within the limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.failures import CorruptSegment
from ottla.log.log import Log
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.compression import Compression
from ottla.wire.records import Record, write_batch
from tests.log.logs import DIRECTORY, NOW_MS, SMALL, new_log, put, reopen

ONE_SEGMENT = LogConfig(index_interval_bytes=100)


def append_times(log: Log, *timestamps: int, compression: int = 0) -> None:
    """One batch whose records have these times."""
    records = [Record(b"v", key=b"k", timestamp=timestamp) for timestamp in timestamps]
    batch = bytearray(write_batch(records, compression=compression))
    result = log.append(memoryview(batch), leader_epoch=3, now_ms=NOW_MS)
    assert result.error_code == 0


@pytest.mark.parametrize("compression", list(Compression))
def test_the_record_inside_the_batch_is_found(compression: Compression) -> None:
    """Not the batch's first offset, the record's own, compressed or not."""
    log = new_log(SimulatedDisk(), ONE_SEGMENT)
    append_times(log, 100, 110, 120, compression=compression)
    append_times(log, 130, 140, 150, compression=compression)
    end = log.end_offset
    for timestamp, expected in ((0, 0), (100, 0), (101, 1), (120, 2), (121, 3), (145, 5)):
        found = log.offset_for_timestamp(timestamp, end_offset=end)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (expected, 3)
        assert found.timestamp >= timestamp
    assert log.offset_for_timestamp(151, end_offset=end) is None


def test_answers_stay_between_log_start_and_end() -> None:
    """Never below the log start, never at or beyond what the reader may see."""
    log = new_log(SimulatedDisk())
    for number in range(50):
        append_times(log, NOW_MS + number)
    log.delete_records_before(30)
    found = log.offset_for_timestamp(NOW_MS, end_offset=50)
    assert found is not None
    assert found.offset == 30
    assert log.offset_for_timestamp(NOW_MS + 40, end_offset=40) is None
    assert log.offset_for_timestamp(NOW_MS + 39, end_offset=40) == (NOW_MS + 39, 39, 3)


def test_the_largest_timestamp_is_the_first_record_that_bears_it() -> None:
    """ListOffsets with -3: also when it lies in an old segment; None for an empty log."""
    log = new_log(SimulatedDisk())
    assert log.max_timestamp() is None
    for number in range(30):
        append_times(log, NOW_MS + number)
    append_times(log, NOW_MS + 5, NOW_MS + 1000, NOW_MS + 1000)
    for number in range(30):
        append_times(log, NOW_MS + number)
    assert len(log.segments) > 2
    assert log.max_timestamp() == (NOW_MS + 1000, 31, 3)
    log.close()
    log = reopen(log.disk, clean=True, recovery_point=log.end_offset)
    assert log.max_timestamp() == (NOW_MS + 1000, 31, 3)


def test_records_without_a_time_are_not_found() -> None:
    """Timestamp -1 is none; Kafka names the first record when asked for the largest."""
    log = new_log(SimulatedDisk())
    assert log.max_timestamp() is None
    append_times(log, -1)
    assert log.max_timestamp() == (-1, 0, 3)
    assert log.offset_for_timestamp(0, end_offset=1) is None


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=80),
    st.integers(-1, 62),
    st.sampled_from(["fresh", "closed", "killed"]),
)
@settings(deadline=None, max_examples=60)
def test_any_order_of_times(batches: list[list[int]], timestamp: int, how: str) -> None:
    """Times may go up and down: the answer is the first record at or after, as in a list."""
    log = new_log(SimulatedDisk(), SMALL)
    flat = []
    for times in batches:
        append_times(log, *times)
        flat.extend(times)
    if how != "fresh":
        if how == "closed":
            log.close()
        log = reopen(log.disk, clean=how == "closed", recovery_point=log.recovery_point)
    expected = next((at for at, time in enumerate(flat) if time >= timestamp), None)
    found = log.offset_for_timestamp(timestamp, end_offset=len(flat))
    assert (found.offset if found else None) == expected
    largest = log.max_timestamp()
    assert largest is not None
    assert (largest.timestamp, largest.offset) == (max(flat), flat.index(max(flat)))


def test_a_damaged_batch_is_reported() -> None:
    """A search that must open a spoilt batch says so instead of guessing."""
    disk = SimulatedDisk()
    log = new_log(disk)
    append_times(log, 100, 200)
    disk.flip_bit(f"{DIRECTORY}/00000000000000000000.log", 8 * 70)
    with pytest.raises(CorruptSegment):
        log.offset_for_timestamp(150, end_offset=2)


def test_flushes_are_asked_for() -> None:
    """After a roll, and when flush.messages are not yet synced."""
    asked: list[int] = []
    log = new_log(SimulatedDisk(), SMALL._replace(flush_messages=5))
    log.flush_wanted = lambda one: asked.append(one.end_offset)
    for _ in range(4):
        put(log, b"x")
    assert asked == []
    put(log, b"x")
    assert asked == [5]
    log.flush()
    assert log.recovery_point == 5
    for _ in range(4):
        put(log, b"x")
    assert asked == [5]
    log.roll(now_ms=NOW_MS)
    assert asked == [5, 9]


def test_overlapping_flushes_do_not_forget_a_name() -> None:
    """A quick sync that begins and ends within a slow one still has the folder synced."""
    for seed in range(20):
        disk = SimulatedDisk()
        log = new_log(disk)
        disk.sync_directory("/")
        put(log, b"a")
        log.begin_flush()  # the slow one: handed to a thread, nothing done yet
        put(log, b"b")
        files, mark = log.begin_flush()
        for file in files:
            file.sync()
        log.finish_flush(mark)
        disk.crash(seed)
        assert reopen(disk, recovery_point=2).end_offset == 2


def test_no_flush_vouches_for_what_replaced_its_bytes() -> None:
    """Two syncs overlap with a truncation: neither moves the recovery point over new bytes."""
    log = new_log(SimulatedDisk())
    put(log, b"a")
    put(log, b"b")
    _, first = log.begin_flush()
    _, second = log.begin_flush()
    log.finish_flush(first)
    assert log.recovery_point == 2
    log.truncate_to(1, now_ms=NOW_MS)
    put(log, b"c")
    log.finish_flush(second)
    assert log.recovery_point == 1
