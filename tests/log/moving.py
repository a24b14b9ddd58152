"""Logs on their way between two data directories, on a simulated disk."""

from __future__ import annotations

from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import TOPIC_ID, make_manager, put

A, B = "/a", "/b"
KEY = ("first", 0)


def two_directories(disk: SimulatedDisk, **more: object) -> LogManager:
    """A manager of /a and /b."""
    disk.sync_directory("/")
    return make_manager(A, B, disk=disk, **more)  # type: ignore[arg-type]


async def filled(
    manager: LogManager, batches: int = 20, *, segment_bytes: int = 400, value_bytes: int = 10
) -> Log:
    """first-0 in /a, with records in several segments."""
    await manager.start()
    log = manager.create(*KEY, TOPIC_ID)
    log.config = log.config._replace(segment_bytes=segment_bytes)
    for number in range(batches):
        put(log, (b"k%d" % number, b"%d" % number * value_bytes))
    return log


def move(manager: LogManager, path: str = B) -> None:
    """Begins to move first-0."""
    log = manager.get(*KEY)
    assert log is not None
    manager.moves.begin(log, next(each for each in manager.directories if each.path == path))


async def over(manager: LogManager) -> None:
    """Returns when no move is under way."""
    import asyncio

    while manager.moves._tasks:
        await asyncio.wait(list(manager.moves._tasks.values()))


def folders(disk: SimulatedDisk, path: str) -> list[str]:
    """The folders of a data directory, without what makes their names unique."""
    return [
        name.partition(".")[0] + name[name.rindex("-") :] if "." in name else name
        for name, _, is_directory in disk.entries(path)
        if is_directory
    ]
