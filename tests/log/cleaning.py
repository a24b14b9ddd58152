"""Compacted logs to clean: for the cleaner's tests."""

from ottla.log.cleaner import run_at_once
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.seams.simulated.disk import SimulatedDisk
from tests.log.managed import TOPIC_ID, make_manager, put

NOW = 1_700_000_000_000
COMPACT = {"cleanup.policy": "compact"}
Contents = list[tuple[int, bytes | None, bytes | None]]


STALE = "/data/first-0/00000000000000000001.log.cleaned"  # from an earlier compaction


def left_over(disk: SimulatedDisk) -> list[str]:
    """The files in the partition's folder that no compaction may leave."""
    return [name for name in disk.listdir("/data/first-0") if name.endswith((".cleaned", ".swap"))]


def fill(log: Log, segments: int = 3, now_ms: int = NOW) -> None:
    """Closed segments that all write the same two keys, and an empty active one."""
    for number in range(segments):
        put(log, (b"a", b"a%d" % number), (b"b", b"b%d" % number), now_ms=now_ms)
        put(log, (b"only %d" % number, b"x"), now_ms=now_ms)
        log.roll(now_ms=now_ms)


def last_values(found: Contents) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in found}


def clean(manager: LogManager) -> int:
    return run_at_once(manager.cleaner.run())


async def new_log(path: str, **more: object) -> tuple[LogManager, Log]:
    manager = make_manager(path, **{"topic": COMPACT} | more)  # type: ignore[arg-type]
    await manager.start()
    return manager, manager.create("first", 0, TOPIC_ID)
