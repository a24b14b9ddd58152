"""Cutting a log back: what was lent, the cleaner, the checkpoints, and bytes that are set aside."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.log.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.truncation import needs_preparation, truncation_prepared
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.records import read_records
from tests.log import logs
from tests.log.cleaning import NOW, fill, new_log
from tests.log.managed import contents, put
from tests.simulated import run_simulated

KEY = ("first", 0)


class TestLentRanges:
    """What a reader was lent, and is still being sent."""

    def ranges(self, log: Log) -> tuple[bool, bool]:
        """Lend the first and the last batch, cut between them, and see which of them are void."""
        first = log.read(0, bytes_max=1, end_offset=log.end_offset)
        last = log.read(log.end_offset - 1, bytes_max=1, end_offset=log.end_offset)
        assert first is not None
        assert last is not None
        log.truncate_to(log.end_offset - 1, now_ms=logs.NOW_MS)
        return first.is_void, last.is_void

    @pytest.mark.parametrize("count", [3, 60])
    def test_a_truncation_voids_what_lies_behind_it(self, count: int) -> None:
        """Other records will lie there; what lies before the cut is sent to its end."""
        log = logs.new_log(SimulatedDisk())
        for number in range(count):
            logs.put(log, b"%d" % number)
        assert self.ranges(log) == (False, True)

    def test_what_is_lent_after_a_truncation_is_good(self) -> None:
        """Until the next one."""
        log = logs.new_log(SimulatedDisk())
        for _ in range(2):
            for number in range(3):
                logs.put(log, b"%d" % number)
            assert self.ranges(log) == (False, True)

    def test_beginning_again_voids_everything(self) -> None:
        """The leader's log begins beyond this one's end."""
        log = logs.new_log(SimulatedDisk())
        logs.put(log, b"old")
        found = log.read(0, bytes_max=1, end_offset=1)
        log.truncate_fully(9, now_ms=logs.NOW_MS)
        assert found is not None
        assert found.is_void

    def test_retention_leaves_readers_what_they_were_lent(self) -> None:
        """A segment that is deleted stays readable until it is sent."""
        log = logs.new_log(SimulatedDisk())
        for number in range(60):
            logs.put(log, b"%d" % number)
        found = log.read(0, bytes_max=1, end_offset=60)
        log.delete_oldest(1, now_ms=logs.NOW_MS)
        assert found is not None
        assert not found.is_void


async def cleaned(disk: SimulatedDisk) -> tuple[LogManager, Log]:
    """A log of 9 records that was compacted up to its end, and synced."""
    manager, log = await new_log("/data", disk=disk)
    fill(log)
    await manager.cleaner.run()
    await manager.checkpointer.write(manager.directories)
    return manager, log


def checkpointed(manager: LogManager, name: str) -> int | None:
    found = manager.directories[0].read_offsets(name)
    return None if found is None else found.get(KEY)


def test_the_checkpoints_are_lowered_before_the_cut() -> None:
    """What comes after it is neither synced nor cleaned, though other records were, there."""

    async def work() -> None:
        manager, log = await cleaned(SimulatedDisk())
        before = (9, 9)
        found = checkpointed(manager, RECOVERY_POINTS), checkpointed(manager, CLEANER_OFFSETS)
        assert found == before
        assert needs_preparation(manager, log, 4)
        async with truncation_prepared(manager, log, 4) as cut:
            after = checkpointed(manager, RECOVERY_POINTS), checkpointed(manager, CLEANER_OFFSETS)
            assert after == (4, 4)
            log.truncate_to(4, now_ms=NOW)
            cut.done = True
        assert log.set_aside_bytes == 0
        await manager.close()

    run_simulated(work())


def test_a_cut_that_concerns_no_checkpoint_needs_nothing() -> None:
    """The usual one: a few records at the end that were not synced yet."""

    async def work() -> None:
        manager, log = await cleaned(SimulatedDisk())
        put(log, (b"a", b"new"))
        assert not needs_preparation(manager, log, 9)
        await manager.close()

    run_simulated(work())


def test_a_log_that_is_being_cut_is_not_cleaned() -> None:
    """A compaction under way is called off, and none begins before the cut is made."""

    async def work() -> None:
        manager, log = await new_log("/data", disk=SimulatedDisk())
        fill(log)
        chosen = await manager.cleaner.filthiest()
        assert chosen is not None
        async with truncation_prepared(manager, log, 5):
            assert await manager.cleaner.filthiest() is None
            assert not await manager.cleaner.clean(chosen)
        assert await manager.cleaner.filthiest() is not None
        await manager.close()

    run_simulated(work())


def test_a_cleaning_under_way_ends_before_the_cut() -> None:
    """Its files would have been made from records that are gone."""

    async def work() -> None:
        manager, log = await new_log("/data", disk=SimulatedDisk())
        fill(log)
        begun, over = asyncio.Event(), asyncio.Event()

        async def secure(log: Log) -> None:
            begun.set()
            await over.wait()

        manager.cleaner._secure = secure
        cleaning = asyncio.create_task(manager.cleaner.run())
        await begun.wait()
        assert needs_preparation(manager, log, 9)
        prepared = truncation_prepared(manager, log, 5)
        entering = asyncio.create_task(prepared.__aenter__())
        await asyncio.sleep(0)
        assert not entering.done()
        over.set()
        cut = await entering
        assert await cleaning == 0
        cut.done = True
        await prepared.__aexit__(None, None, None)
        await manager.close()

    run_simulated(work())


def set_aside(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.listdir("/data/first-0") if name.endswith(".corrupt")]


def batches_in(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        found += [(each.offset, each.key, each.value) for each in read_records(data[:size])]
        data = data[size:]
    return found  # type: ignore[return-value]


def test_what_is_set_aside_is_kept_beside_the_log() -> None:
    """All batches behind the cut, of all segments, in one file named after the offset."""

    async def work() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        kept = contents(log)[5:]
        async with truncation_prepared(manager, log, 5, set_aside=True) as cut:
            log.truncate_to(5, now_ms=NOW)
            cut.done = True
        assert set_aside(disk) == ["00000000000000000005.log.corrupt"]
        data = disk.read("/data/first-0/00000000000000000005.log.corrupt")
        assert batches_in(data) == kept
        assert (log.set_aside_bytes, manager.set_aside_bytes) == (len(data), len(data))
        await manager.close()

    run_simulated(work())


@pytest.mark.parametrize("seed", range(8))
def test_what_is_set_aside_lasts_before_anything_is_cut(seed: int) -> None:
    """A power cut during the truncation leaves one of the two."""

    async def work() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        kept = contents(log)[5:]
        async with truncation_prepared(manager, log, 5, set_aside=True) as cut:
            log.truncate_to(5, now_ms=NOW)
            disk.crash(seed)
            (name,) = set_aside(disk)
            assert batches_in(disk.read(f"/data/first-0/{name}")) == kept
            cut.done = True

    run_simulated(work())


def test_what_was_set_aside_for_nothing_is_removed() -> None:
    """The partition has another leader by now, and is not cut."""

    async def work() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        async with truncation_prepared(manager, log, 5, set_aside=True):
            assert set_aside(disk)
        assert (set_aside(disk), log.set_aside_bytes) == ([], 0)
        await manager.close()

    run_simulated(work())


def test_what_cannot_be_set_aside_is_not_cut() -> None:
    """A full disk destroys nothing."""

    async def work() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        fill(log)
        disk.fail("write", ".corrupt", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            async with truncation_prepared(manager, log, 5, set_aside=True):
                pytest.fail("prepared without a copy")
        assert (set_aside(disk), log.end_offset) == ([], 9)
        await manager.close()

    run_simulated(work())
