"""The power is cut: what was acknowledged after a sync is there; without it, a suffix is lost.

Through the simulated disk: un-synced writes are lost, torn, zeroed or kept, each on its own, and
names that were not synced may be missing.
"""

from __future__ import annotations

import errno
import random

import pytest

from ottla.log.log import Log
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from tests.log.logs import DIRECTORY, NOW_MS, SMALL, new_log, put, read_all, reopen, values

ROUNDS = 150


def sync(log: Log, *, indexes: bool = False) -> None:
    files, mark = log.begin_flush(indexes=indexes)
    for file in files:
        file.sync()
    log.finish_flush(mark)


def start(config: LogConfig = SMALL) -> tuple[SimulatedDisk, Log]:
    disk = SimulatedDisk()
    log = new_log(disk, config)
    disk.sync_directory("/")
    return disk, log


def recovered(disk: SimulatedDisk, recovery_point: int, config: LogConfig = SMALL) -> Log:
    disk.mkdir(DIRECTORY)
    return reopen(disk, config, recovery_point=recovery_point)


@pytest.mark.parametrize("compact", [False, True])
def test_nothing_synced_is_lost(compact: bool) -> None:
    """log.flush.before.ack: every record acknowledged after its sync is there, in order, once."""
    config = SMALL._replace(cleanup_policy=frozenset(("compact",))) if compact else SMALL
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        disk, log = start(config)
        number = acknowledged = 0
        for _ in range(chance.randrange(1, 5)):
            for _ in range(chance.randrange(1, 30)):
                put(log, b"%d" % number, leader_epoch=seed % 3)
                number += 1
                if chance.random() < 0.4:
                    sync(log, indexes=chance.random() < 0.2)
                    acknowledged = number
            recovery_point = log.recovery_point if chance.random() < 0.5 else 0
            disk.crash(chance.randrange(10**6))
            log = recovered(disk, recovery_point, config)
            found = values(log)
            assert len(found) >= acknowledged, f"seed {seed}"
            assert found == [b"%d" % n for n in range(len(found))], f"seed {seed}"
            number = len(found)
            acknowledged = min(acknowledged, number)


def test_without_a_sync_exactly_a_suffix_is_lost() -> None:
    """What is left is a prefix of what was written, batch by batch, and the log goes on from
    there.
    """
    lost_something = kept_something = 0
    for seed in range(ROUNDS):
        disk, log = start()
        for number in range(60):
            put(log, b"%d" % number)
        disk.crash(seed)
        log = recovered(disk, 0)
        found = values(log)
        assert found == [b"%d" % n for n in range(len(found))], f"seed {seed}"
        lost_something += len(found) < 60
        kept_something += len(found) > 0
        assert put(log, b"on").base_offset == len(found)
    assert lost_something > ROUNDS // 2
    assert kept_something > ROUNDS // 10


def test_producers_after_a_power_cut_know_what_is_there() -> None:
    """The last batch that survived is a duplicate when it comes again; the next one is taken."""
    for seed in range(ROUNDS):
        disk, log = start()
        for number in range(50):
            put(log, b"v", producer_id=6, producer_epoch=0, base_sequence=number)
            if number == seed % 50:
                sync(log)
        recovery_point = log.recovery_point
        disk.crash(seed)
        log = recovered(disk, recovery_point)
        end = log.end_offset
        assert end > seed % 50
        mine = {"producer_id": 6, "producer_epoch": 0}
        assert put(log, b"v", base_sequence=end - 1, **mine).duplicate, f"seed {seed}"
        assert put(log, b"v", base_sequence=end, **mine).base_offset == end, f"seed {seed}"


def test_leader_epochs_after_a_power_cut() -> None:
    """Each surviving batch's epoch is known, at the offset where it began."""
    for seed in range(ROUNDS):
        disk, log = start()
        for number in range(40):
            put(log, b"v", leader_epoch=number // 9)
            if number == seed % 40:
                sync(log)
        recovery_point = log.recovery_point
        disk.crash(seed)
        log = recovered(disk, recovery_point)
        expected = [(epoch, epoch * 9) for epoch in range(5) if epoch * 9 < log.end_offset]
        assert log.epochs.entries == expected, f"seed {seed}"


def test_aborted_transactions_after_a_power_cut() -> None:
    """Markers that survived still hide their transactions."""
    from ottla.log.append import Origin
    from tests.log.test_append import marker

    for seed in range(ROUNDS):
        disk, log = start()
        for number in range(12):
            mine = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
            put(log, b"a", b"b", transactional=True, **mine)
            log.append(
                marker(number, 0, commit=number % 2 == 0),
                leader_epoch=0,
                now_ms=NOW_MS,
                origin=Origin.COORDINATOR,
            )
            if number == seed % 12:
                sync(log)
        recovery_point = log.recovery_point
        disk.crash(seed)
        log = recovered(disk, recovery_point)
        found = [(one.producer_id, one.last_offset) for one in log.aborted_transactions(0, 99)]
        expected = [(n, n * 3 + 2) for n in range(1, 12, 2) if n * 3 + 2 < log.end_offset]
        assert found == expected, f"seed {seed}"


def test_a_failed_sync_is_for_ever() -> None:
    """After it the log is offline; a second sync would succeed although the data is lost."""
    disk, log = start()
    put(log, b"a")
    sync(log)
    put(log, b"b")
    disk.fail("sync", ".log", errno.EIO, times=1)
    with pytest.raises(OSError):
        log.flush()
    assert log.offline is not None
    assert log.recovery_point == 1
    assert put(log, b"c").error_code == 56
    disk.crash(1)
    log = recovered(disk, 1)
    assert values(log)[:1] == [b"a"]


def test_what_a_failed_sync_left_out_is_written_again() -> None:
    """The next process finds it in memory only, where no sync would write it: a power cut after
    that takes nothing that a sync has followed, nor an index, an epoch or the end of a segment.
    """
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        disk, log = start()
        count = 0
        for _ in range(chance.randrange(2, 4)):
            for number in range(count, count + chance.randrange(1, 40)):
                put(log, b"%d" % number, timestamp=NOW_MS + number, leader_epoch=number // 9)
            count = number + 1
            disk.fail("sync", "", errno.EIO, after=chance.randrange(6), times=1)
            try:
                sync(log, indexes=chance.random() < 0.3)
            except OSError as error:
                log.fail_sync(error)
            recovery_point = log.recovery_point
            disk.kill()
            log = recovered(disk, recovery_point)
            assert log.end_offset == count, f"seed {seed}"
        sync(log)
        assert log.recovery_point == count
        disk.crash(seed)
        log = recovered(disk, count)
        assert values(log) == [b"%d" % n for n in range(count)], f"seed {seed}"
        assert log.epochs.entries == [(n, n * 9) for n in range(-(-count // 9))], f"seed {seed}"
        for offset in range(0, count, 5):
            found = log.offset_for_timestamp(NOW_MS + offset, end_offset=count)
            assert found is not None, f"seed {seed}"
            assert found.offset == offset, f"seed {seed}"


def test_power_cuts_during_recovery() -> None:
    """Cut again right after the log was opened, and again: still the same prefix."""
    for seed in range(60):
        disk, log = start()
        for number in range(60):
            put(log, b"%d" % number)
            if number == 20:
                sync(log)
        recovery_point = log.recovery_point
        for again in range(4):
            disk.crash(seed * 10 + again)
            log = recovered(disk, recovery_point)
            found = values(log)
            assert len(found) > 20
            assert found == [b"%d" % n for n in range(len(found))]
            put(log, b"%d" % len(found))


def test_everything_readable_after_a_cut_with_sealed_segments() -> None:
    """Sealed segments below the recovery point keep their indexes: every offset, every time."""
    for seed in range(40):
        disk, log = start(SMALL._replace(segment_bytes=4000))
        for number in range(150):
            put(log, b"%d" % number, timestamp=NOW_MS + number)
            if number % 40 == 0:
                sync(log)
        recovery_point = log.recovery_point
        disk.crash(seed)
        log = recovered(disk, recovery_point)
        for offset in range(0, log.end_offset, 5):
            assert read_all(log, offset)[0].value == b"%d" % offset
            found = log.offset_for_timestamp(NOW_MS + offset, end_offset=log.end_offset)
            assert found is not None
            assert found.offset == offset


def test_the_owner_of_synced_records_lasts_with_them() -> None:
    """The first sync also keeps `partition.metadata`: no later topic can be given these records."""
    content = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    for seed in range(ROUNDS):
        disk, log = start()
        file = disk.open(f"{DIRECTORY}/partition.metadata", create=True)
        file.append(content)
        put(log, b"mine")
        sync(log)
        disk.crash(seed)
        assert disk.open(f"{DIRECTORY}/partition.metadata").pread(100, 0) == content, seed
