"""What a moved log still knows: producers, aborted transactions, that it was compacted; readers."""

from __future__ import annotations

from ottla.log.checkpoints import COMPACTION_METADATA
from ottla.log.log import Log, Origin
from ottla.log.manager import LogManager
from ottla.log.transaction_index_checkpoint import TRANSACTION_INDEX_CHECKPOINT
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.control import ABORT, write_marker
from tests.log import logs
from tests.log.cleaning import COMPACT, clean, fill
from tests.log.managed import contents
from tests.log.moving import KEY, B, filled, folders, move, over, two_directories
from tests.simulated import pass_time, run_simulated


async def moved(manager: LogManager) -> Log:
    """first-0, after it has moved to /b."""
    move(manager)
    await over(manager)
    log = manager.get(*KEY)
    assert log is not None
    assert log.directory == "/b/first-0"
    return log


async def started_again(disk: SimulatedDisk) -> Log:
    """first-0 as it is after a kill."""
    disk.kill()
    again = two_directories(disk)
    await again.start()
    log = again.get(*KEY)
    assert log is not None
    assert log.directory == "/b/first-0"
    return log


def test_a_retry_is_known_after_a_move() -> None:
    """Also of a producer whose batches were deleted, and also after a kill."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager, 0)
        for number in range(3):
            logs.put(log, b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
        log.roll(now_ms=0)
        logs.put(log, b"other", producer_id=8, producer_epoch=0, base_sequence=0)
        log.delete_records_before(3)
        log.delete_oldest(1, now_ms=0)
        new = await moved(manager)
        assert new.log_start_offset == 3
        retry = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2}
        result = logs.put(new, b"2", **retry)
        assert (result.duplicate, result.base_offset) == (True, 2)
        found = await started_again(disk)
        assert found.producers.by_id[7].last_sequence == 2
        assert found.producers.by_id[8].last_sequence == 0

    run_simulated(run())


def test_aborted_transactions_move_along() -> None:
    """The index of aborted transactions is made anew from the batches."""

    async def run() -> None:
        manager = two_directories(SimulatedDisk())
        log = await filled(manager, 3)
        of = {"producer_id": 7, "producer_epoch": 0}
        logs.put(log, b"aborted", base_sequence=0, transactional=True, **of)
        marker = write_marker(ABORT, coordinator_epoch=0, timestamp=logs.NOW_MS, **of)
        log.append(
            memoryview(bytearray(marker)), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR
        )
        logs.put(log, b"open", base_sequence=1, transactional=True, **of)
        before = log.aborted_transactions(0, log.end_offset)
        new = await moved(manager)
        assert before
        assert new.aborted_transactions(0, new.end_offset) == before
        assert new.first_unstable_offset(new.end_offset) == 5
        await manager.close()
        # As every log after a clean stop: with an index, and a note of the aborted transactions.
        names = manager.disk.listdir(new.directory)
        assert "00000000000000000000.index" in names
        assert TRANSACTION_INDEX_CHECKPOINT in names

    run_simulated(run())


def test_a_compacted_log_moves_with_its_gaps() -> None:
    """Gaps between segments are no damage in the new directory, also for a start after a kill."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk, topic=COMPACT)
        log = await filled(manager, 0)
        fill(log)
        assert clean(manager) == 1
        before = contents(log)
        cleaned = manager.cleaner.offsets[KEY]
        new = await moved(manager)
        assert (contents(new), new.end_offset) == (before, log.end_offset)
        assert disk.exists(f"{new.directory}/{COMPACTION_METADATA}")
        assert manager.cleaner.offsets[KEY] == cleaned
        found = await started_again(disk)
        assert (contents(found), found.end_offset) == (before, log.end_offset)

    run_simulated(run())


def test_a_reader_goes_on_with_the_old_file() -> None:
    """A range that was read before the move is there until it is sent, removed files or not."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        found = log.read(0, bytes_max=1_000, end_offset=log.end_offset)
        assert found is not None
        data = found.file.pread(found.size, found.position)
        await moved(manager)
        await pass_time(61_000)
        assert folders(disk, "/a") == []
        assert found.file.pread(found.size, found.position) == data
        assert folders(disk, B) == ["first-0"]
        await manager.close()

    run_simulated(run())
