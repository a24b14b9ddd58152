"""Removing and syncing beside the loop: in time, in order, and honest about failures."""

import asyncio
import errno
from pathlib import Path

import pytest

from ottla.log.upkeep import SLICE_S, Flusher, Remover, TimeSlice
from ottla.seams.background import InlineBackground
from ottla.seams.clock import ManualClock
from ottla.seams.disk import RealDisk
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import TOPIC_ID, make_manager, put
from tests.simulated import loop_clock, pass_time, run_simulated


def test_files_go_after_their_own_delay(tmp_path: Path) -> None:
    """Each name is removed when its delay is over, whatever order they came in."""

    async def run() -> None:
        clock = loop_clock()
        remover = Remover(RealDisk(), clock, InlineBackground())
        for name in ("slow", "quick", "missing"):
            (tmp_path / name).write_text("x")
        (tmp_path / "missing").unlink()
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder/file").write_text("x")
        remover.files([str(tmp_path / "slow")], 10_000)
        remover.files([str(tmp_path / "quick"), str(tmp_path / "missing")], 1_000)
        remover.folder(str(tmp_path / "folder"), 5_000)
        left = []
        for _ in range(3):
            await pass_time(4_000)
            left.append({path.name for path in tmp_path.iterdir()})
        assert left == [{"slow", "folder"}, {"slow"}, set()]
        assert len(remover) == 0

    run_simulated(run())


def test_many_files_go_in_pieces(tmp_path: Path) -> None:
    """More names than one call takes are removed all the same."""

    async def run() -> None:
        clock = loop_clock()
        remover = Remover(RealDisk(), clock, InlineBackground())
        paths = [str(tmp_path / f"file-{number}") for number in range(300)]
        for path in paths:
            Path(path).write_text("x")
        remover.files(paths, 0)
        await pass_time(10_000)
        assert not list(tmp_path.iterdir())
        await remover.close()

    run_simulated(run())


def test_what_cannot_be_removed_stays(caplog: pytest.LogCaptureFixture) -> None:
    """A file that the disk will not give up is named in the log, and the others go."""

    async def run() -> None:
        disk, clock = SimulatedDisk(), loop_clock()
        disk.mkdir("/data")
        for name in ("a", "b", "c"):
            disk.open(f"/data/{name}", create=True)
        disk.fail("unlink", "/data/b", errno.EIO)
        remover = Remover(disk, clock, InlineBackground())
        remover.files(["/data/a", "/data/b", "/data/c"], 0)
        await pass_time(1_000)
        assert disk.listdir("/data") == ["b"]

    run_simulated(run())
    assert "/data/b cannot be removed" in caplog.text


def test_a_failed_fsync_takes_its_log_offline_and_no_other() -> None:
    """The partition is offline, its recovery point has not moved, and it is not tried again."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = make_manager("/data", disk=disk)
        await manager.start()
        good = manager.create("first", 0, TOPIC_ID)
        bad = manager.create("first", 1, TOPIC_ID)
        for log in (good, bad):
            put(log, (b"k", b"v"))
        disk.fail("sync", "first-1", errno.EIO, times=1)
        await manager.flusher.flush([good, bad], indexes=False)
        assert (good.offline, good.recovery_point) == (None, 1)
        assert bad.offline is not None
        assert bad.recovery_point == 0
        await manager.flusher.flush([good, bad], indexes=False)
        assert bad.recovery_point == 0

    run_simulated(run())


def test_a_full_segment_is_synced_soon() -> None:
    """A roll asks for a sync, and the recovery point follows without anybody waiting."""

    async def run() -> None:
        clock = loop_clock()
        manager = make_manager("/data", disk=SimulatedDisk(), clock=clock)
        await manager.start()
        log = manager.create("first", 0, TOPIC_ID)
        put(log, (b"k", b"v"))
        log.roll(now_ms=clock.now_ms())
        await pass_time(1)
        assert log.recovery_point == 1

    run_simulated(run())


def test_a_log_asked_for_twice_is_synced_once() -> None:
    """While one sync runs, further wishes gather for the next."""
    synced = []

    class Slow(InlineBackground):
        def thread(self, fn, *args):  # type: ignore[no-untyped-def]
            synced.append(len(args[0]))
            return super().thread(fn, *args)

    async def run() -> None:
        clock = loop_clock()
        manager = make_manager("/data", disk=SimulatedDisk(), clock=clock)
        await manager.start()
        logs = [manager.create("first", number, TOPIC_ID) for number in range(3)]
        for log in logs:
            put(log, (b"k", b"v"))
        flusher = Flusher(clock, Slow())
        for log in [*logs, *logs]:
            flusher.soon(log)
        await flusher.settle()
        assert synced == [1, 3]
        assert [log.recovery_point for log in logs] == [1, 1, 1]

    run_simulated(run())


def test_long_walks_let_others_run() -> None:
    """After a slice of time the walk gives the loop away; before that it does not."""

    async def run() -> None:
        clock = ManualClock()
        time_slice = TimeSlice(clock)
        turns = []
        asyncio.get_running_loop().call_soon(turns.append, "other")
        await time_slice.yield_if_over()
        assert turns == []
        clock.advance(SLICE_S * 1_000)
        await time_slice.yield_if_over()
        assert turns == ["other"]

    asyncio.run(run())
