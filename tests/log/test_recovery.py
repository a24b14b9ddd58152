"""Opening a log again: after a clean stop, after a crash, with damage in every kind of file."""

from __future__ import annotations

import errno
import logging
import random
import struct
from pathlib import Path

import pytest

from ottla.log.failures import CorruptSegment
from ottla.log.log import Log
from ottla.log.sync_failure import SYNC_FAILURE
from ottla.seams.disk import RealDisk
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.errors import ErrorCode
from tests.log.logs import DIRECTORY, NOW_MS, SMALL, new_log, put, read_all, reopen, values

COUNT = 120


def written(
    count: int = COUNT, config: LogConfig = SMALL, *, close: bool = True
) -> tuple[SimulatedDisk, Log]:
    """A log of several segments, with an idempotent producer and two leaders in it."""
    disk = SimulatedDisk()
    log = new_log(disk, config)
    for number in range(count):
        put(
            log,
            b"%d" % number,
            leader_epoch=number // 70,
            timestamp=NOW_MS + number,
            producer_id=4,
            producer_epoch=0,
            base_sequence=number,
        )
    if close:
        log.close()
    return disk, log


def files(disk: SimulatedDisk, suffix: str) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.listdir(DIRECTORY) if name.endswith(suffix)]


def check_prefix(log: Log) -> int:
    """All that is served is what was written, from the start and without gaps; says how much."""
    found = values(log)
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) == log.end_offset
    for offset in range(0, len(found), 7):
        assert read_all(log, offset)[0].offset == offset
        at_time = log.offset_for_timestamp(NOW_MS + offset, end_offset=log.end_offset)
        assert at_time is not None
        assert at_time.offset == offset
    return len(found)


def goes_on(log: Log) -> None:
    """After whatever happened the producer's next batch is taken, and read again."""
    end = log.end_offset
    result = put(
        log,
        b"%d" % end,
        leader_epoch=max(log.leader_epoch, 0),
        timestamp=NOW_MS + end,
        producer_id=4,
        producer_epoch=0,
        base_sequence=end,
    )
    assert (result.error_code, result.base_offset) == (0, end)
    assert check_prefix(log) == end + 1


def test_a_clean_stop_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is checked, nothing is said, nothing is written."""
    disk, _ = written()
    before = {path: disk.read(path) for path in files(disk, "")}
    with caplog.at_level(logging.INFO):
        log = reopen(disk, clean=True, recovery_point=COUNT)
        assert check_prefix(log) == COUNT
    assert not caplog.records
    assert {path: disk.read(path) for path in files(disk, "")} == before
    assert log.recovery_point == COUNT
    goes_on(log)


def test_a_killed_process_loses_nothing() -> None:
    """All that was appended is there after the check, from any recovery point."""
    for recovery_point in (0, 1, 33, 70, 119, 120, 500):
        disk, before = written(close=False)
        indexes = [(segment.index.entries(), segment.largest()) for segment in before.segments]
        log = reopen(disk, recovery_point=recovery_point)
        assert check_prefix(log) == COUNT
        assert log.epochs.entries == before.epochs.entries
        assert indexes == [(segment.index.entries(), segment.largest()) for segment in log.segments]
        goes_on(log)


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_are_made_anew_when_missing(clean: bool) -> None:
    """Without any index every offset and every time is found all the same."""
    disk, _ = written()
    for path in [*files(disk, ".index"), *files(disk, ".timeindex")]:
        disk.unlink(path)
    log = reopen(disk, clean=clean, recovery_point=COUNT if clean else 0)
    assert check_prefix(log) == COUNT
    goes_on(log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_indexes_never_mislead(suffix: str, clean: bool) -> None:
    """Flipped bits, cuts and zeros in an index: still every offset and time, and nothing else."""
    chance = random.Random(4)
    for _ in range(60):
        disk, _ = written()
        for path in files(disk, suffix):
            size = len(disk.read(path))
            if not size:
                continue
            kind = chance.choice(("flip", "cut", "zero", "shift"))
            if kind == "flip":
                disk.flip_bit(path, chance.randrange(size * 8))
            elif kind == "cut":
                disk.cut(path, chance.randrange(size))
            elif kind == "zero":
                disk.open(path).pwrite(bytes(chance.randrange(1, size + 1)), 0)
            else:
                disk.open(path).pwrite(chance.randbytes(8), chance.randrange(size))
        log = reopen(disk, clean=clean, recovery_point=COUNT)
        assert check_prefix(log) == COUNT
        goes_on(log)


@pytest.mark.parametrize("suffix", [".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_small_files_are_made_anew(suffix: str, clean: bool) -> None:
    """Producers and leader epochs are as before, whatever happened to their files."""
    chance = random.Random(5)
    for _ in range(40):
        disk, before = written()
        for path in files(disk, suffix):
            size = len(disk.read(path))
            if chance.random() < 0.4 and suffix == ".snapshot":
                disk.flip_bit(path, chance.randrange(size * 8))
            else:
                disk.cut(path, chance.randrange(size))
        log = reopen(disk, clean=clean, recovery_point=COUNT)
        assert log.epochs.entries == before.epochs.entries
        assert log.producers.by_id[4].last_sequence == COUNT - 1
        goes_on(log)


def test_a_flipped_bit_behind_the_recovery_point_cuts_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any bit of a batch not yet synced: what comes before it stays; a line tells what went."""
    chance = random.Random(6)
    for _ in range(100):
        disk, _ = written(close=False)
        path = chance.choice(files(disk, ".log"))
        bit = chance.randrange(len(disk.read(path)) * 8)
        disk.flip_bit(path, bit)
        caplog.clear()
        log = reopen(disk, recovery_point=0)
        kept = check_prefix(log)
        if kept < COUNT:
            assert any("cut at offset" in record.getMessage() for record in caplog.records)
        else:  # the leader epoch lies outside the checksum: nobody can tell
            assert bit % ((len(disk.read(path)) // 1) * 8) >= 12 * 8
        goes_on(log)


def test_a_cut_log_file() -> None:
    """Cut anywhere, in any segment: the whole batches before it stay, the rest goes."""
    chance = random.Random(7)
    for clean in (True, False):
        for _ in range(40):
            disk, _ = written()
            path = files(disk, ".log")[-1] if clean else chance.choice(files(disk, ".log"))
            disk.cut(path, chance.randrange(len(disk.read(path))))
            log = reopen(disk, clean=clean, recovery_point=COUNT if clean else 0)
            assert check_prefix(log) < COUNT
            goes_on(log)


def test_damage_below_the_recovery_point_is_reported_not_skipped() -> None:
    """A batch length that is wrong in an old segment: an error for readers who must pass it."""
    disk, _ = written(config=SMALL._replace(segment_bytes=100_000, index_interval_bytes=100_000))
    disk.open(files(disk, ".log")[0]).pwrite(struct.pack(">i", -5), 8 + 0)
    log = reopen(disk, clean=False, recovery_point=COUNT)
    assert log.end_offset == 0  # the walk to the recovery point meets it: cut, and said so
    disk, _ = written()
    old = files(disk, ".log")[0]
    disk.open(old).pwrite(b"\x07", 16 + 0)
    log = reopen(disk, clean=True, recovery_point=COUNT)
    with pytest.raises(CorruptSegment):
        read_all(log)
    assert read_all(log, log.segments[1].base_offset)[0].offset == log.segments[1].base_offset


def test_zeros_allocated_by_kafka_are_no_entries() -> None:
    """Active indexes of a crashed Apache Kafka are 10 MB, mostly zeros."""
    disk, _ = written()
    for suffix, size in ((".index", 80_000), (".timeindex", 120_000)):
        path = files(disk, suffix)[-1]
        disk.open(path).append(bytes(size - len(disk.read(path)) % 24))
    log = reopen(disk, recovery_point=COUNT)
    assert check_prefix(log) == COUNT
    assert len(log.active.index) < 100
    goes_on(log)


def test_left_overs_are_tidied_up() -> None:
    """Indexes of no segment, temporary files, snapshots beyond the end, deleted segments."""
    disk, _ = written()
    for name in (
        "00000000000000099999.index",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000500.snapshot",
        "00000000000000000000.log.deleted",
    ):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    log = reopen(disk, recovery_point=COUNT)
    assert check_prefix(log) == COUNT
    assert not {"00000000000000099999.index", "leader-epoch-checkpoint.tmp"} & set(
        disk.listdir(DIRECTORY)
    )
    assert not files(disk, "500.snapshot")
    assert not files(disk, ".deleted")


def test_an_empty_folder_is_an_empty_log() -> None:
    """A topic created and never written has no file; it opens, clean or not."""
    disk = SimulatedDisk()
    disk.mkdir(DIRECTORY)
    for clean in (True, False):
        log = reopen(disk, clean=clean)
        assert (log.log_start_offset, log.end_offset) == (0, 0)
        assert disk.listdir(DIRECTORY) == []


def test_a_log_below_its_start_begins_anew() -> None:
    """Deleted records stay deleted, also when the files that hold the end were lost."""
    disk, _ = written()
    log = reopen(disk, recovery_point=0, log_start_offset=500)
    assert (log.log_start_offset, log.end_offset) == (500, 500)
    assert put(log, b"next").base_offset == 500


def test_truncation_and_a_new_start() -> None:
    """truncate_to ends the log at a batch, producers and epochs with it; truncate_fully empties
    it.
    """
    disk, log = written(close=False)
    assert log.truncate_to(75, now_ms=NOW_MS) > 0
    assert check_prefix(log) == 75
    assert log.producers.by_id[4].last_sequence == 74
    goes_on(log)
    log.truncate_to(30, now_ms=NOW_MS)
    assert [entry.epoch for entry in log.epochs.entries] == [0]
    goes_on(log)
    log.truncate_fully(1000, now_ms=NOW_MS)
    assert (log.log_start_offset, log.end_offset, len(log.producers.by_id)) == (1000, 1000, 0)
    assert put(log, b"x").base_offset == 1000
    assert values(reopen(disk)) == [b"x"]


def test_deleting_everything_keeps_the_offsets() -> None:
    """Retention may take all segments; the next record gets the next offset, also after a
    restart.
    """
    disk, log = written(close=False)
    for segment in log.delete_oldest(99, now_ms=NOW_MS):
        segment.delete()
    assert (log.log_start_offset, log.end_offset) == (COUNT, COUNT)
    log = reopen(disk)
    assert (log.log_start_offset, log.end_offset) == (COUNT, COUNT)
    assert put(log, b"x").base_offset == COUNT


def test_producers_that_cannot_be_read_take_the_log_offline() -> None:
    """An I/O error while the snapshot is read: KAFKA_STORAGE_ERROR, and nothing is written."""
    disk, _ = written()
    log = reopen(disk, clean=True, recovery_point=COUNT)
    disk.fail("read", ".snapshot", errno.EIO)
    result = put(log, b"x", producer_id=4, producer_epoch=0, base_sequence=COUNT)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is not None
    assert log.end_offset == COUNT
    assert log.first_unstable_offset() is None


def test_a_note_of_a_failed_sync_has_everything_written_again_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a real disk: nothing changes by it; the log says so, and the note is gone."""
    directory = str(tmp_path / "events-0")
    log = new_log(RealDisk(), directory=directory)
    for number in range(COUNT):
        put(log, b"%d" % number, leader_epoch=number // 70)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*/*.log")}
    assert len(before) > 2
    log.fail_sync(OSError(errno.EIO, "Input/output error"))
    assert (tmp_path / "events-0" / SYNC_FAILURE).exists()
    found = reopen(RealDisk(), clean=True, directory=directory)
    assert "a sync has failed before the last stop" in caplog.text
    assert values(found) == [b"%d" % number for number in range(COUNT)]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*/*.log")} == before
    assert not (tmp_path / "events-0" / SYNC_FAILURE).exists()
