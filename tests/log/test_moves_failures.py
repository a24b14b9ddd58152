"""Moves between data directories where a step fails on the way."""

from __future__ import annotations

import errno

import pytest

from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import contents
from tests.log.moving import KEY, A, B, filled, folders, move, over, two_directories
from tests.simulated import run_simulated


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
