"""A crash at every change of the disk while a log moves between two directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.log.directories import FUTURE_SUFFIX
from ottla.log.log import Log
from ottla.seams.simulated.background import Durations
from tests.log.crashing import CountingDisk, PowerCut
from tests.log.managed import TOPIC_ID, contents, put
from tests.log.moving import KEY, A, B, filled, folders, move, over, two_directories
from tests.simulated import node_background, pass_time, run_simulated

VALUE = b"v" * 3_000
SYNC_S = 0.001  # at most, in simulated time


class Stopped(NamedTuple):
    """What was known when the machine stopped."""

    disk: CountingDisk
    appended: int
    acknowledged: int  # synced before they were acknowledged
    at_the_end: bool  # the move was over, and nothing stopped it


def stop_at(changes: int, seed: int) -> Stopped:
    """A move with appends and syncs beside it, cut short at the n-th change."""

    async def run() -> Stopped:
        disk = CountingDisk()
        manager = two_directories(disk, background=node_background())
        log = await filled(manager, 150, segment_bytes=120_000, value_bytes=1_000)
        await manager.flusher.flush([log], indexes=True)
        await manager.checkpointer.write(manager.directories)
        for path in (A, B, "/"):
            disk.sync_directory(path)
        appended = acknowledged = log.end_offset
        move(manager)
        disk.stop_at = disk.changes + changes
        syncing: asyncio.Task[int] | None = None

        async def sync(current: Log) -> int:
            await manager.flusher.flush([current], indexes=False)
            return current.recovery_point

        try:
            while disk.changes < disk.stop_at and (manager.moves._tasks or syncing is not None):
                current = manager.get(*KEY)
                assert current is not None
                put(current, (b"later", VALUE))
                appended += 1
                if syncing is None and manager.moves._tasks:
                    syncing = asyncio.create_task(sync(current))
                await pass_time(SYNC_S * 1000)
                if syncing is not None and syncing.done():
                    acknowledged = max(acknowledged, syncing.result())
                    syncing = None
            await pass_time(61_000)
        except PowerCut:
            pass
        return Stopped(disk, appended, acknowledged, disk.changes < disk.stop_at)

    durations = Durations(thread_s=SYNC_S)
    stopped = run_simulated(run(), seed=seed, durations=durations, fails=True)
    stopped.disk.stop_at = None
    return stopped


def check_after_crash(stopped: Stopped, at_least: int, where: str) -> None:
    """All is there that must be, once and in order; the move goes on or is over."""

    async def run() -> None:
        manager = two_directories(stopped.disk)
        await manager.start()
        log = manager.get(*KEY)
        assert log is not None, where
        assert log.offline is None, f"{where}: {log.offline}"
        found = [offset for offset, _, _ in contents(log)]
        assert found == list(range(len(found))), where
        assert at_least <= len(found) <= stopped.appended, f"{where}: {at_least}, {len(found)}"
        put(log, (b"after", b"the crash"))
        manager.begin_upkeep()
        await over(manager)
        await pass_time(61_000)
        assert not manager.moves.failed, where
        moved = manager.get(*KEY)
        assert moved is not None, where
        assert len(contents(moved)) == len(found) + 1, where
        left = folders(stopped.disk, A) + folders(stopped.disk, B)
        assert left == ["first-0"], f"{where}: {left}"
        await manager.close()

    run_simulated(run())


def every_step(seed: int) -> Iterator[Stopped]:
    changes = 1
    while not (stopped := stop_at(changes, seed)).at_the_end:
        yield stopped
        changes += 1
    assert changes > 60


def test_a_kill_at_every_step_loses_nothing() -> None:
    """SIGKILL at any change of the disk: every record that was appended is there at the start."""
    seed = interrupted = 0
    for number, stopped in enumerate(every_step(seed)):
        stopped.disk.kill()
        names = stopped.disk.listdir(B)
        interrupted += any(name.endswith(FUTURE_SUFFIX) for name in names)
        # The record whose write was the change is not there.
        check_after_crash(stopped, stopped.appended - 1, f"stopped at change {number + 1}")
    assert interrupted > 20


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_at_every_step_loses_nothing_synced(seed: int) -> None:
    """What was not synced is lost or torn: every record that was synced is there."""
    for number, stopped in enumerate(every_step(seed)):
        stopped.disk.crash(seed * 1_000 + number)
        where = f"seed {seed}, stopped at change {number + 1}"
        check_after_crash(stopped, stopped.acknowledged, where)


def test_the_first_sync_after_a_move_lasts() -> None:
    """The folder has its new name in memory only when the first record is appended to it: who syncs
    that record syncs the name too. Without it a start would take the folder before the move.
    """

    async def run(seed: int) -> None:
        disk = CountingDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        await manager.flusher.flush([log], indexes=True)
        await manager.checkpointer.write(manager.directories)
        acknowledged = 0

        def replaced(old: Log, new: Log) -> None:
            nonlocal acknowledged
            put(new, (b"later", b"than the copy"))
            new.flush()
            acknowledged = new.recovery_point
            disk.stop_at = disk.changes

        manager.moves.on_replaced = replaced
        move(manager)
        await over(manager)
        assert acknowledged == log.end_offset + 1
        disk.stop_at = None
        disk.crash(seed)
        again = two_directories(disk)
        await again.start()
        found = again.get(*KEY)
        assert found is not None
        assert len(contents(found)) == acknowledged
        await again.close()

    for seed in range(10):
        run_simulated(run(seed), fails=True)


def test_moves_that_share_checkpoints_lose_nothing() -> None:
    """Power is cut at any change of the disk while several logs move at once: each has its records
    at the start, in one folder, and the moves go on.
    """
    keys = [("first", partition) for partition in range(3)]

    async def cut_at(changes: int) -> tuple[CountingDisk, bool]:
        disk = CountingDisk()
        manager = two_directories(disk, background=node_background())
        await manager.start()
        for key in keys:
            manager.preferred[key] = manager.directories[0]
            put(manager.create(*key, TOPIC_ID), (b"k", b"%d" % key[1]))
        await manager.flusher.flush(manager.opened(), indexes=True)
        await manager.checkpointer.write(manager.directories)
        for path in (A, B, "/"):
            disk.sync_directory(path)
        disk.stop_at = disk.changes + changes
        try:
            for log in manager.opened():
                manager.moves.begin(log, manager.directories[1])
            while disk.changes < disk.stop_at and manager.moves._tasks:
                await pass_time(SYNC_S * 1000)
        except PowerCut:
            pass
        at_the_end = disk.changes < disk.stop_at
        disk.stop_at = None
        return disk, at_the_end

    async def check(disk: CountingDisk, where: str) -> None:
        manager = two_directories(disk)
        await manager.start()
        manager.begin_upkeep()
        await over(manager)
        await pass_time(61_000)
        for key in keys:
            log = manager.get(*key)
            assert log is not None, where
            assert contents(log) == [(0, b"k", b"%d" % key[1])], where
        left = folders(disk, A) + folders(disk, B)
        assert sorted(left) == [f"first-{each}" for each in range(3)], f"{where}: {left}"
        await manager.close()

    durations, changes, at_the_end = Durations(thread_s=SYNC_S), 0, False
    while not at_the_end:
        changes += 1
        disk, at_the_end = run_simulated(
            cut_at(changes), seed=changes, durations=durations, fails=True
        )
        disk.crash(changes)
        run_simulated(check(disk, f"stopped at change {changes}"))
    assert changes > 60
