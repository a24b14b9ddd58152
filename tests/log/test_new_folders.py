"""The folder of a new log: made on a thread, by the first append, or by the next start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.log.checkpoints import read_partition_metadata
from ottla.log.manager import LogManager
from ottla.seams.background import InlineBackground
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import TOPIC_ID, contents, make_manager, put, started
from tests.simulated import run_simulated

FOLDERS = [f"/data/first-{number}" for number in range(200)]
RECORD = [(0, b"k", b"v")]


class HeldThreads(InlineBackground):
    """Threads that begin nothing while they are held."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.held: list[Callable[[], None]] | None = None

    def thread(self, fn: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if self.held is None:
            return super().thread(fn, *args)
        future = asyncio.get_running_loop().create_future()
        self.held.append(lambda: future.set_result(fn(*args)))
        return future

    def let_go(self) -> None:
        held, self.held = self.held or [], None
        for work in held:
            work()


def of(disk: SimulatedDisk) -> tuple[LogManager, HeldThreads]:
    disk.mkdir("/data")
    disk.sync_directory("/")
    threads = HeldThreads(disk)
    return make_manager("/data", disk=disk, background=threads), threads


def made(disk: SimulatedDisk) -> list[str]:
    return [folder for folder in FOLDERS if disk.exists(folder)]


def test_a_log_is_there_before_its_folder() -> None:
    """Thousands of logs take no disk; their folders come later, all of them, with their ids."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, threads = of(disk)
        async with started(manager):
            threads.held = []
            logs = [manager.create("first", number, TOPIC_ID) for number in range(len(FOLDERS))]
            assert [contents(log) for log in logs] == [[]] * len(FOLDERS)
            assert made(disk) == []
            threads.let_go()
            await manager.metadata_files.settle()
            assert made(disk) == FOLDERS
            assert all(read_partition_metadata(disk, each)[0] == TOPIC_ID for each in FOLDERS)

    run_simulated(run())


def test_an_append_makes_the_folder() -> None:
    """What is synced lasts through a power cut, whether or not the thread has come to the folder;
    the id that comes after the records is synced by itself.
    """

    async def run() -> None:
        disk = SimulatedDisk()
        manager, threads = of(disk)
        await manager.start()
        threads.held = []
        logs = [manager.create("first", number, TOPIC_ID) for number in range(2)]
        for log in logs:
            put(log, (b"k", b"v"))
            threads_held, threads.held = threads.held, None
            await manager.flusher.flush([log], indexes=True)
            threads.held = threads_held
        assert made(disk) == FOLDERS[:2]
        threads.let_go()
        await manager.metadata_files.settle()
        disk.crash(seed=1)
        async with started(make_manager("/data", disk=disk, seed=2)) as later:
            assert [each.topic_id for each in later.found()] == [TOPIC_ID] * 2
            for number in range(2):
                found = later.get("first", number)
                assert found is not None
                assert contents(found) == RECORD

    run_simulated(run())


def test_a_deleted_log_gets_no_folder() -> None:
    """Neither one that waits for the thread nor one that the thread has begun with."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, threads = of(disk)
        async with started(manager):
            threads.held = []
            for number in range(3):
                manager.create("first", number, TOPIC_ID)
            deletion = asyncio.ensure_future(
                manager.delete([("first", number) for number in range(3)])
            )
            await asyncio.sleep(0)
            threads.let_go()
            await deletion
            await manager.metadata_files.settle()
            assert made(disk) == []
            # The next topic of the name begins like any other.
            put(manager.create("first", 0, bytes(reversed(TOPIC_ID))), (b"k", b"v"))
            assert made(disk) == FOLDERS[:1]

    run_simulated(run())


def test_a_clean_stop_makes_what_is_left() -> None:
    """The next start finds every partition; after a crash those that had their folders."""

    async def run() -> None:
        disk = SimulatedDisk()
        manager, threads = of(disk)
        async with started(manager):
            threads.held = []
            for number in range(3):
                manager.create("first", number, TOPIC_ID)
            asyncio.get_running_loop().call_soon(threads.let_go)
        assert made(disk) == FOLDERS[:3]
        again, threads = of(disk)
        await again.start()
        threads.held = []
        again.create("first", 3, TOPIC_ID)
        for home in again.directories:
            home.release()  # as a kill does
        async with started(make_manager("/data", disk=disk, seed=2)) as later:
            assert [each.partition for each in later.found()] == [0, 1, 2]
            assert contents(later.create("first", 3, TOPIC_ID)) == []

    run_simulated(run())
