"""A crash at every step of a cleaning and of its swap, with and without left-overs."""

import asyncio

import pytest

from ottla.log import checkpoints
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.swap import SUFFIXES
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.cleaning import (
    NOW,
    STALE,
    Contents,
    clean,
    fill,
    last_values,
    left_over,
    new_log,
)
from tests.log.crashing import CountingDisk, PowerCut
from tests.log.managed import contents, make_manager, put, started
from tests.simulated import pass_time, run_simulated


async def synced_log(disk: CountingDisk, *, segment_bytes: int) -> tuple[LogManager, Log]:
    manager, log = await new_log("/data", disk=disk)
    fill(log, 3)
    log.config = log.config._replace(segment_bytes=segment_bytes)
    put(log, (b"a", b"active"))
    await manager.flusher.flush([log], indexes=True)
    for path in ("/data/first-0", "/data", "/"):
        disk.sync_directory(path)
    return manager, log


def check_after_crash(disk: CountingDisk, before: Contents, after: Contents) -> None:
    """The log is the old one or the new one or a mixture, and whole; and it can go on."""

    async def run() -> None:
        # The topic's config is not known yet when logs are recovered.
        manager = make_manager("/data", disk=disk)
        await manager.start()
        log = manager.get("first", 0)
        assert log is not None
        assert log.offline is None
        found = contents(log)
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets)), "every offset once, in order"
        assert set(after) <= set(found) <= set(before)
        assert last_values(found) == last_values(before)
        assert log.end_offset == before[-1][0] + 1
        names = disk.listdir("/data/first-0")
        assert not [name for name in names if name.endswith(SUFFIXES)]
        put(log, (b"a", b"later"))
        log.roll(now_ms=NOW)
        manager.cleaner.offsets.clear()
        log.config = log.config._replace(cleanup_policy=frozenset({"compact"}))
        manager._config_of = lambda _: log.config
        assert clean(manager) == 1
        assert last_values(contents(log)) == last_values(before) | {b"a": b"later"}
        await manager.close()

    run_simulated(run())


def stop_at(
    changes: int, *, segment_bytes: int = 1 << 20, stale: bool = False
) -> tuple[CountingDisk, Contents, bool]:
    """A cleaning that is cut short at the n-th change; says also whether it came so far."""

    async def run() -> tuple[CountingDisk, Contents, bool]:
        disk = CountingDisk()
        manager, log = await synced_log(disk, segment_bytes=segment_bytes)
        before = contents(log)
        if stale:
            disk.open(STALE, create=True).sync()
            disk.sync_directory("/data/first-0")
        disk.stop_at = disk.changes + changes
        try:
            clean(manager)
            await pass_time(61_000)
            await manager.checkpointer.write(manager.directories)
        except PowerCut:
            disk.stop_at = None
            return disk, before, True
        disk.stop_at = None
        return disk, before, False

    return run_simulated(run(), fails=True)


AFTER = [(2, b"only 0", b"x"), (5, b"only 1", b"x"), (6, b"a", b"a2"), (7, b"b", b"b2"),
         (8, b"only 2", b"x"), (9, b"a", b"active")]  # fmt: skip


def test_a_kill_at_every_step_loses_nothing() -> None:
    """SIGKILL after any change of a cleaning: the next start has every last value, once."""
    changes = 1
    while True:
        disk, before, stopped = stop_at(changes)
        disk.kill()
        check_after_crash(disk, before, AFTER)  # type: ignore[arg-type]
        if not stopped:
            break
        changes += 1
    assert changes > 20


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_every_step_loses_nothing(seed: int) -> None:
    """The same when what was not synced is lost or torn."""
    changes = 1
    while True:
        disk, before, stopped = stop_at(changes)
        disk.crash(seed * 1_000 + changes)
        check_after_crash(disk, before, AFTER)  # type: ignore[arg-type]
        if not stopped:
            break
        changes += 1
    assert changes > 20


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("when", ["before the cleaning", "at the crash"])
def test_a_left_over_of_another_compaction_loses_nothing(when: str, seed: int) -> None:
    """A stale `.cleaned` file does not make the swap of a later compaction look unfinished.

    Before the cleaning: the cleaning removes it. At the crash: it was there all along, as an
    earlier version left it, and the load finds both.
    """
    changes = 1
    while True:
        disk, before, stopped = stop_at(
            changes, segment_bytes=200, stale=when == "before the cleaning"
        )
        disk.crash(seed * 1_000 + changes)
        if when == "at the crash":
            disk.open(STALE, create=True)
        check_after_crash(disk, before, AFTER)  # type: ignore[arg-type]
        if not stopped:
            break
        changes += 1
    assert changes > 20


def test_a_split_that_kafka_did_not_finish_is_undone() -> None:
    """Of three segments in the place of one, Kafka had renamed the last: the one is left."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, log = await new_log("/data", disk=disk)
        for number in range(3):
            put(log, (b"a", b"a%d" % number), (b"b", b"b%d" % number))
        before = contents(log)
        folder = "/data/first-0"
        one = disk.read(f"{folder}/00000000000000000000.log")
        size = len(one) // 3
        await manager.close()
        for at, suffix in ((0, ".cleaned"), (2, ".cleaned"), (4, ".swap")):
            piece = one[at // 2 * size : (at // 2 + 1) * size]
            disk.write_atomically(f"{folder}/{at:020d}.log{suffix}", piece, sync=True)
        disk.unlink(f"/data/{checkpoints.CLEAN_SHUTDOWN}")
        async with started(make_manager("/data", disk=disk)) as again:
            found = again.get("first", 0)
            assert found is not None
            assert contents(found) == before
            assert len(found.segments) == 1
            assert left_over(disk) == []

    run_simulated(run())


def test_a_second_crash_while_finishing_a_swap_loses_nothing() -> None:
    """The load that finishes a swap may be cut short at any step, too."""
    for first in range(1, 60):
        second = 1
        while True:
            disk, before, stopped = stop_at(first)
            if not stopped:
                return
            disk.crash(first)
            if not any(name.endswith(SUFFIXES) for name in disk.listdir("/data/first-0")):
                break  # nothing to finish or undo
            disk.stop_at = disk.changes + second
            again = True
            try:
                asyncio.run(make_manager("/data", disk=disk).start())
                again = False
            except PowerCut:
                pass
            disk.stop_at = None
            disk.crash(second)
            check_after_crash(disk, before, AFTER)  # type: ignore[arg-type]
            if not again:
                break
            second += 1
