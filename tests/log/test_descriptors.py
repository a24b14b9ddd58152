"""A process without a free descriptor: logs stay online, and nothing is lost or written twice."""

import asyncio
import errno

import pytest

from ottla.log.log import Log
from ottla.seams.disk import OutOfDescriptors
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.log.cleaning import COMPACT, clean, fill, last_values, left_over, new_log
from tests.log.managed import TOPIC_ID, contents, make_manager, put, started

NOW = 1_700_000_000_000


def append(log: Log, value: bytes, sequence: int) -> int:
    """One batch of an idempotent producer; answers the error code."""
    batch = write_batch(
        [Record(value, timestamp=NOW)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    try:
        return log.append(memoryview(bytearray(batch)), leader_epoch=0, now_ms=NOW).error_code
    except OutOfDescriptors:  # the partition answers with this error
        return ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("operation", ["open", "read", "write"])
def test_an_append_without_a_descriptor_can_be_repeated(operation: str) -> None:
    """Whichever file of a roll or an append lacks one: an error once, then it works, exactly once.

    The indexes get an entry for every batch, the third batch begins a segment.
    """

    async def run(after: int) -> bool:
        disk = SimulatedDisk()
        manager = make_manager("/data", disk=disk, topic={"index.interval.bytes": "0"})
        await manager.start()
        log = manager.create("first", 0, TOPIC_ID)
        log.config = log.config._replace(segment_bytes=180)
        disk.fail(operation, "first-0", errno.EMFILE, after=after, times=1)
        refused = 0
        for sequence in range(5):
            while append(log, b"%d" % sequence, sequence):
                refused += 1
                assert refused < 3
        assert log.offline is None
        disk.heal()
        expected = [(offset, None, b"%d" % offset) for offset in range(5)]
        assert contents(log) == expected
        assert len(log.segments) == 3
        disk.kill()
        async with started(make_manager("/data", disk=disk)) as again:
            assert contents(again.get("first", 0)) == expected  # type: ignore[arg-type]
        return bool(refused)

    outcomes = [asyncio.run(run(after)) for after in range(12)]
    assert any(outcomes) or operation == "read"


@pytest.mark.parametrize("operation", ["open", "read"])
def test_a_read_without_a_descriptor_can_be_repeated(operation: str) -> None:
    """The log stays online, and the next read finds everything."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log, 1)
        await manager.close()
        async with started(make_manager("/data", disk=disk)) as again:
            disk.fail(operation, ".log", errno.ENFILE, times=1)
            found = None
            for _ in range(2):
                try:
                    found = again.get("first", 0)
                    assert found is not None
                    assert len(contents(found)) == 3
                except OutOfDescriptors:
                    continue
            assert found is not None
            assert found.offline is None
            assert len(contents(found)) == 3

    asyncio.run(run())


def test_a_log_that_cannot_be_opened_now_is_opened_later() -> None:
    """The want of a descriptor is not remembered as a fault, and makes no new log."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log, 1)
        put(log, (b"c", b"in the active segment"))
        await manager.close()
        async with started(make_manager("/data", disk=disk)) as again:
            disk.fail("read", "first-0", errno.EMFILE)
            disk.fail("open", "first-0", errno.EMFILE)
            with pytest.raises(OutOfDescriptors):
                again.get("first", 0)
            with pytest.raises(OutOfDescriptors):
                again.create("first", 0, TOPIC_ID)
            assert list(again.every()) == []
            assert clean(again) == 0
            disk.heal()
            found = again.get("first", 0)
            assert found is not None
            assert len(contents(found)) == 4

    asyncio.run(run())


def test_a_flush_without_a_descriptor_is_no_clean_stop() -> None:
    """A log that could not be synced at the stop is checked at the next start; all is there."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        put(log, (b"a", b"1"))
        disk.fail("sync", "first-0", errno.EMFILE)
        await manager.close()
        assert log.offline is None
        disk.heal()
        assert not disk.exists("/data/.kafka_cleanshutdown")
        async with started(make_manager("/data", disk=disk)) as again:
            assert len(contents(again.get("first", 0))) == 1  # type: ignore[arg-type]

    asyncio.run(run())


@pytest.mark.parametrize("operation", ["open", "read", "write", "sync"])
def test_a_compaction_without_a_descriptor_is_done_later(operation: str) -> None:
    """Wherever it lacks one before its swap: the log stays online and as it was."""

    async def run(after: int) -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk, topic=COMPACT)
        fill(log)
        before = last_values(contents(log))
        disk.fail(operation, "first-0", errno.EMFILE, after=after, times=1)
        clean(manager)
        assert log.offline is None
        disk.heal()
        assert left_over(disk) == []
        clean(manager)
        assert last_values(contents(log)) == before
        assert len(contents(log)) == 5
        assert ("first", 0) not in manager.cleaner.uncleanable

    for after in range(12):
        asyncio.run(run(after))
