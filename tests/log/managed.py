"""A log manager on a real directory, in simulated time: for the manager's tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ottla.log.helper import JOBS
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.seams.background import Background, InlineBackground
from ottla.seams.chance import SeededChance
from ottla.seams.clock import Clock
from ottla.seams.disk import Disk, RealDisk
from ottla.settings import Settings
from ottla.wire.records import Record, read_records, write_batch
from tests.simulated import loop_clock

TOPIC_ID = bytes(range(1, 17))


def make_manager(
    *directories: str,
    disk: Disk | None = None,
    clock: Clock | None = None,
    background: Background | None = None,
    node_id: int = 1,
    settings: Mapping[str, object] | None = None,
    topic: Mapping[str, str] | None = None,
    seed: int = 1,
) -> LogManager:
    disk = disk or RealDisk()
    known = Settings.from_properties(dict(settings or {}))
    config = known.log_config(dict(topic or {}))
    return LogManager(
        directories,
        disk=disk,
        clock=clock or loop_clock(),
        background=background or InlineBackground(disk, JOBS),
        chance=SeededChance(seed),
        settings=known,
        node_id=node_id,
        config_of=lambda _: config,
    )


@asynccontextmanager
async def started(manager: LogManager) -> AsyncIterator[LogManager]:
    """Started and, unless the test dies, closed cleanly."""
    await manager.start()
    yield manager
    await manager.close()


def put(
    log: Log, *pairs: tuple[bytes | None, bytes | None], now_ms: int = 1_700_000_000_000
) -> int:
    """Appends one batch as a client would; answers its base offset."""
    batch = write_batch([Record(value, key=key, timestamp=now_ms) for key, value in pairs])
    result = log.append(memoryview(bytearray(batch)), leader_epoch=0, now_ms=now_ms)
    assert result.error_code == 0, result.error_code
    return result.base_offset


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record that can be read: offset, key, value."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        chunk = log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset)
        if chunk is None:
            break
        data = chunk.file.pread(chunk.size, chunk.position)
        while data:
            size = int.from_bytes(data[8:12], "big") + 12
            if len(data) < size:
                break
            batch, data = data[:size], data[size:]
            offset = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
            if int.from_bytes(batch[57:61], "big"):
                found += [(r.offset, r.key, r.value) for r in read_records(batch)]  # type: ignore[misc]
    return [record for record in found if record[0] >= log.log_start_offset]
