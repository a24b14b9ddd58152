"""Many partitions: cheap to make, quick to find again, small in memory."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.log.manager import LogManager
from ottla.seams.background import RealBackground
from ottla.seams.chance import RealChance
from ottla.seams.clock import RealClock
from ottla.seams.disk import RealDisk
from ottla.settings import Settings
from tests.log.managed import TOPIC_ID, contents, put


async def real_manager(path: str) -> LogManager:
    loop = asyncio.get_running_loop()
    settings = Settings.from_properties({})
    config = settings.log_config({})
    manager = LogManager(
        [path],
        disk=RealDisk(descriptors_max=64),
        clock=RealClock(loop),
        background=RealBackground(loop),
        chance=RealChance(),
        settings=settings,
        node_id=1,
        config_of=lambda _: config,
    )
    await manager.start()
    return manager


async def fill(path: str, count: int) -> LogManager:
    manager = await real_manager(path)
    for partition in range(count):
        log = manager.create("many", partition, TOPIC_ID)
        if partition % 10 == 0:
            put(log, (b"key", b"%d" % partition))
        if partition % 64 == 63:
            await asyncio.sleep(0)
    return manager


def check_all(manager: LogManager, count: int) -> None:
    assert len(manager) == count
    for partition in range(0, count, 10):
        log = manager.get("many", partition)
        assert log is not None
        assert contents(log) == [(0, b"key", b"%d" % partition)]


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_partitions_start_stop_and_crash(tmp_path: Path) -> None:
    """With few descriptors, hundreds of partitions survive a clean stop and a crash."""
    count = 300

    async def make() -> None:
        manager = await fill(str(tmp_path), count)
        await manager.close()
        manager.background.close()

    async def reopen(*, crash: bool) -> None:
        manager = await real_manager(str(tmp_path))
        check_all(manager, count)
        disk = manager.disk
        assert isinstance(disk, RealDisk)
        assert disk.descriptors_open <= disk.descriptors_max
        if crash:
            for home in manager.directories:
                home.release()
        else:
            await manager.close()
        manager.background.close()

    asyncio.run(make())
    asyncio.run(reopen(crash=True))
    asyncio.run(reopen(crash=False))


def test_a_start_after_a_clean_stop_opens_nothing(tmp_path: Path) -> None:
    """Unused partitions are known by name and id only, whatever their number."""

    async def run() -> None:
        manager = await fill(str(tmp_path), 50)
        await manager.close()
        manager.background.close()
        manager = await real_manager(str(tmp_path))
        assert len(manager.found()) == 50
        assert manager.opened() == []
        await manager.close()
        manager.background.close()

    asyncio.run(run())


TEN_THOUSAND = """
import asyncio, sys
from tests.log.test_scale import check_all, fill, real_manager, resident_bytes

async def run(step, path, count):
    bytes_before = resident_bytes()
    manager = await (fill(path, count) if step == "create" else real_manager(path))
    if step != "create":
        for log in manager.every():
            pass
    print("memory", resident_bytes() - bytes_before)
    if step == "crash":
        sys.stdout.flush()
        import os
        os._exit(9)
    check_all(manager, count)
    await manager.close()
    manager.background.close()

asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.long
def test_ten_thousand_partitions(tmp_path: Path) -> None:
    """Created, started with, recovered after SIGKILL: at most 15 KB of memory for each.

    How long each step takes is a figure of the benchmarks.
    """
    count = 10_000

    def step(name: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", TEN_THOUSAND, name, str(tmp_path), str(count)],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        figures = dict(line.split() for line in done.stdout.splitlines())
        return int(figures["memory"])

    step("create")
    assert step("crash") <= 15_000 * count
    assert step("recover") <= 15_000 * count
