"""Moves between data directories where a step fails on the way."""

from __future__ import annotations

import errno

import pytest

from ottla.log.directories import DirectoryProblem
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import contents, make_manager, put
from tests.log.moving import KEY, A, B, filled, folders, move, over, two_directories
from tests.simulated import pass_time, run_simulated


@pytest.mark.parametrize(("operation", "after"), [("sync", 0), ("open", 2), ("open", 25)])
def test_a_move_waits_for_a_free_descriptor(operation: str, after: int) -> None:
    """All that was synced is synced in the copy that replaces it; the copy is not given up."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        before = contents(log)
        await manager.flusher.flush([log], indexes=True)
        disk.fail(operation, "-future", errno.EMFILE, after=after, times=1)
        move(manager)
        await over(manager)
        moved = manager.get(*KEY)
        assert moved is not None
        assert (moved.directory, moved.recovery_point) == ("/b/first-0", len(before))
        assert not manager.moves.failed
        assert (folders(disk, A), folders(disk, B)) == (["first-0-delete"], ["first-0"])
        disk.crash(1)
        again = two_directories(disk)
        await again.start()
        found = again.get(*KEY)
        assert found is not None
        assert contents(found) == before
        await again.close()

    run_simulated(run())


@pytest.mark.parametrize("target", ["/a", "/c"])
def test_a_folder_that_could_not_be_renamed_does_not_come_back(target: str) -> None:
    """The replaced folder stays, for its disk fails: the next move puts it aside, and the start
    after a crash takes the records that were appended since.
    """

    async def run() -> None:
        disk = SimulatedDisk()
        disk.sync_directory("/")
        manager = make_manager(A, B, "/c", disk=disk)
        log = await filled(manager)
        disk.fail("rename", "/a/first-0", errno.EIO, times=1)
        move(manager)
        await over(manager)
        assert (folders(disk, A), folders(disk, B)) == (["first-0"], ["first-0"])
        moved = manager.get(*KEY)
        assert moved is not None
        put(moved, (b"k", b"later"))
        before = contents(moved)
        move(manager, target)
        await over(manager)
        assert not manager.moves.failed
        disk.kill()
        again = make_manager(A, B, "/c", disk=disk)
        await again.start()
        found = again.get(*KEY)
        assert found is not None
        assert (found.directory, contents(found)) == (f"{target}/first-0", before)
        assert len(before) == len(contents(log)) + 1
        await again.close()

    run_simulated(run())


def test_a_move_that_waits_for_a_descriptor_can_be_called_off() -> None:
    """As long as none is free; a partition is deleted and a broker stops meanwhile."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        await filled(manager)
        disk.fail("open", "/b", errno.EMFILE)
        move(manager)
        await pass_time(500)
        assert manager.moves.futures()
        await manager.moves.settled(KEY)
        move(manager)
        await pass_time(500)
        await manager.moves.stop()
        disk.heal()
        await manager.close()

    run_simulated(run())


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("name", ["-future", "first-0/"])
def test_a_start_waits_for_a_free_descriptor(name: str, operation: str, clean: bool) -> None:
    """Whichever file of a log or of its copy cannot be opened for a while: the broker starts, with
    all its records, and the move goes on.
    """

    async def run(after: int) -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        before = contents(log)
        with manager.moves.held(log):
            move(manager)
            await pass_time(500)
            assert manager.moves.futures()
            if clean:
                await manager.close()
            else:
                await manager.moves.stop()
        disk.kill()
        again = two_directories(disk)
        disk.fail(operation, name, errno.EMFILE, after=after, times=2)
        await again.start()
        disk.heal()
        again.begin_upkeep()
        await over(again)
        found = again.get(*KEY)
        assert found is not None
        assert (found.directory, found.topic_id) == ("/b/first-0", log.topic_id)
        assert contents(found) == before
        await again.close()

    for after in range(10):
        run_simulated(run(after))


def test_a_start_does_not_wait_for_a_descriptor_for_ever() -> None:
    """It fails in the end, with the reason."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        await filled(manager)
        disk.kill()
        again = two_directories(disk)
        disk.fail("read", "first-0/", errno.EMFILE)
        with pytest.raises(DirectoryProblem, match="Too many open files"):
            await again.start()

    run_simulated(run())
