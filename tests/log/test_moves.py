"""Moves between the data directories of one broker (KIP-113)."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.log import checkpoints
from ottla.log.checkpoints import Offsets
from ottla.log.directories import DataDirectory
from ottla.seams.simulated.background import Durations
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import TOPIC_ID, contents, put, started
from tests.log.moving import KEY, A, B, filled, folders, move, over, two_directories
from tests.simulated import node_background, pass_time, run_simulated


def test_a_log_moves_to_another_directory() -> None:
    """Records, producers' snapshots and leader epochs are there; the old folder is removed."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        before = contents(log)
        move(manager)
        assert folders(disk, B) == ["first-0-future"]
        await over(manager)
        moved = manager.get(*KEY)
        assert moved is not None
        assert moved is not log
        assert (moved.directory, contents(moved)) == ("/b/first-0", before)
        assert moved.epochs.entries == log.epochs.entries
        noted = checkpoints.read_partition_metadata(disk, moved.directory)
        assert (noted[0], noted[2]) == (log.topic_id, 0)
        assert put(moved, (b"k", b"more")) == len(before)
        assert (folders(disk, A), folders(disk, B)) == (["first-0-delete"], ["first-0"])
        await pass_time(61_000)
        assert folders(disk, A) == []
        await manager.close()
        again = two_directories(disk)
        await again.start()
        found = again.get(*KEY)
        assert found is not None
        assert contents(found)[: len(before)] == before
        await again.close()

    run_simulated(run())


def test_appends_go_on_while_a_log_is_copied() -> None:
    """What is appended between the slices is in the copy, and nothing twice."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager, 200, segment_bytes=100_000, value_bytes=2_000)
        move(manager)
        number = 0
        while manager.moves.futures():
            put(log, (b"later", b"%d" % number))
            number += 1
            await asyncio.sleep(0)
        await over(manager)
        moved = manager.get(*KEY)
        assert moved is not None
        assert moved.directory == "/b/first-0"
        assert [offset for offset, _, _ in contents(moved)] == list(range(200 + number))
        assert number > 3
        await manager.close()

    run_simulated(run())


def test_a_full_target_gives_the_copy_up() -> None:
    """The log stays, with all its records; the copy is removed, and the move counted as failed."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        disk.fail("write", "-future", errno.ENOSPC, after=3)
        move(manager)
        await over(manager)
        disk.heal()
        assert manager.get(*KEY) is log
        assert log.offline is None
        assert manager.moves.failed == {KEY}
        put(log, (b"k", b"more"))
        await pass_time(10)
        assert (folders(disk, A), folders(disk, B)) == (["first-0"], [])
        move(manager)
        await over(manager)
        assert not manager.moves.failed
        assert folders(disk, B) == ["first-0"]
        await manager.close()

    run_simulated(run())


def test_a_failed_move_counts_until_the_next_request_or_the_deletion() -> None:
    """A request for the directory that the log is in is one too."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        await filled(manager)
        disk.fail("write", "-future", errno.ENOSPC, after=3)
        move(manager)
        await over(manager)
        assert manager.moves.failed == {KEY}
        manager.moves.move(KEY, manager.directories[0])
        assert not manager.moves.failed
        disk.heal()
        disk.fail("write", "-future", errno.ENOSPC, after=3)
        move(manager)
        await over(manager)
        assert manager.moves.failed == {KEY}
        await manager.delete([KEY])
        assert not manager.moves.failed
        await manager.close()

    run_simulated(run())


def test_a_second_request_replaces_the_first_and_the_original_directory_cancels() -> None:
    """Another destination drops the copy; so does the directory that the log is in."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager)
        move(manager)
        assert manager.moves.call_off(KEY)
        await over(manager)
        await pass_time(10)
        assert manager.get(*KEY) is log
        assert folders(disk, B) == []
        assert not manager.moves.failed
        move(manager)
        manager.moves.call_off(KEY)
        move(manager)
        await over(manager)
        await pass_time(10)
        assert folders(disk, B) == ["first-0"]
        move(manager, A)
        await over(manager)
        assert folders(disk, A) == ["first-0", "first-0-delete"]
        await manager.close()

    run_simulated(run())


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_goes_on_with_the_copy(clean: bool) -> None:
    """The `-future` folder of an interrupted move is loaded, and the move ends."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager, 300, segment_bytes=100_000, value_bytes=2_000)
        before = contents(log)
        move(manager)
        while manager.moves.futures()[0].log.end_offset < 100:
            await asyncio.sleep(0)
        await manager.moves.stop()
        copied = manager.moves.futures()[0].log.end_offset
        assert copied < 300
        if clean:
            await manager.close()
        else:
            disk.kill()
        again = two_directories(disk)
        await again.start()
        again.begin_upkeep()
        [future] = again.moves.futures()
        assert future.log.end_offset == copied
        await over(again)
        moved = again.get(*KEY)
        assert moved is not None
        assert moved.directory == "/b/first-0"
        assert contents(moved) == before
        await again.close()

    run_simulated(run())


def test_a_deleted_partition_takes_its_copy_along() -> None:
    """Both folders are renamed and removed, and no checkpoint has the partition."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        await filled(manager)
        move(manager)
        await manager.delete([KEY])
        assert (folders(disk, A), folders(disk, B)) == (["first-0-delete"], [])
        assert not manager.moves.futures()
        for path in (A, B):
            assert checkpoints.read_offsets(disk, path, checkpoints.RECOVERY_POINTS) == {}
        await manager.close()

    run_simulated(run())


def test_a_truncated_log_has_its_copy_truncated() -> None:
    """What is cut from a follower's log while it moves is not in the copy; what follows is."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager, 300, segment_bytes=100_000, value_bytes=2_000)
        move(manager)
        while manager.moves.futures()[0].log.end_offset < 200:
            await asyncio.sleep(0)
        log.truncate_to(90, now_ms=0)
        for number in range(90, 250):
            put(log, (b"other", b"%d" % number))
        before = contents(log)
        await over(manager)
        moved = manager.get(*KEY)
        assert moved is not None
        assert contents(moved) == before
        await manager.close()

    run_simulated(run())


def test_deleted_records_are_not_in_the_copy() -> None:
    """DeleteRecords before and while a log moves: the copy begins where the log does."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager = two_directories(disk)
        log = await filled(manager, 300, segment_bytes=100_000, value_bytes=2_000)
        log.delete_records_before(60)
        move(manager)
        while manager.moves.futures()[0].log.end_offset < 150:
            await asyncio.sleep(0)
        assert manager.moves.futures()[0].log.log_start_offset == 60
        log.delete_records_before(200)
        await over(manager)
        moved = manager.get(*KEY)
        assert moved is not None
        assert (moved.log_start_offset, moved.end_offset) == (200, 300)
        assert contents(moved) == contents(log)
        await manager.close()

    run_simulated(run())


def test_two_folders_of_a_partition_stop_a_start() -> None:
    """Without the mark of a move nobody knows which of the two is the one in use."""

    async def run() -> None:
        disk = SimulatedDisk()
        async with started(two_directories(disk)) as manager:
            manager.create(*KEY, bytes(range(1, 17)))
        disk.mkdir(f"{B}/first-0")
        with pytest.raises(Exception, match="in another data directory as well"):
            await two_directories(disk).start()

    run_simulated(run())


def test_many_moves_share_their_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint has a line for each partition: one for each step of each move would cost the
    square of their number.
    """
    count, writes = 100, 0
    write = DataDirectory.write_offsets

    def counted(self: DataDirectory, name: str, offsets: Offsets) -> None:
        nonlocal writes
        writes += 1
        write(self, name, offsets)

    monkeypatch.setattr(DataDirectory, "write_offsets", counted)

    async def run() -> None:
        nonlocal writes
        disk = SimulatedDisk()
        manager = two_directories(disk, background=node_background())
        await manager.start()
        logs = []
        for partition in range(count):
            manager.preferred["first", partition] = manager.directories[0]
            logs.append(manager.create("first", partition, TOPIC_ID))
            put(logs[-1], (b"k", b"%d" % partition))
        writes = 0
        for log in logs:
            manager.moves.begin(log, manager.directories[1])
        await over(manager)
        assert not manager.moves.failed
        moved = [manager.get("first", partition) for partition in range(count)]
        assert {each.directory.rpartition("/")[0] for each in moved if each} == {B}
        assert writes < count // 2, writes
        await manager.close()

    run_simulated(run(), durations=Durations())
