"""A disk that is full: the file channel gives up what is consumed, and goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottla.agent import atomic_file
from ottla.agent.channels import file, segments
from ottla.agent.channels.file import FileChannel
from ottla.agent.events import EventBatch, Position
from tests.waiting import GIVE_UP_S

DISK_BYTES = 2_000_000
EVENT = b"x" * 5000


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that holds no more than so many bytes."""

    def check(wanted: int) -> None:
        used = sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file())
        if used + wanted > DISK_BYTES:
            raise OSError(28, "No space left on device")

    def write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
        check(sum(map(len, pieces)))
        real_write(descriptor, pieces)

    def written_beside(path: Path, data: bytes) -> Path:
        check(len(data))
        return real_beside(path, data)

    real_write: Callable[[int, Sequence[bytes]], None] = segments.write_all
    real_beside = atomic_file._written_beside
    monkeypatch.setattr(segments, "write_all", write_all)
    monkeypatch.setattr(atomic_file, "_written_beside", written_beside)
    monkeypatch.setattr(file, "PAUSE_S", 0.01)
    monkeypatch.setattr(file, "CHECKPOINT_S", 0.01)
    return tmp_path


def test_a_channel_that_fills_its_disk_goes_on_once_it_is_drained(disk: Path) -> None:
    """While its sink is away the channel takes all of the disk, to the last byte; when the sink is
    back everything arrives, in order. Before, no checkpoint could be written any more, so nothing
    that was consumed was ever deleted."""
    batches = 3 * DISK_BYTES // len(EVENT) // 10

    async def run() -> None:
        channel = FileChannel("c1", disk / "checkpoint", [disk / "data"], minimum_space_bytes=0)
        await channel.start({})

        async def feed() -> None:
            for number in range(1, batches + 1):
                position = Position("r1/a", number)
                await channel.put(EventBatch([EVENT] * 10, position=position, ends=[number] * 10))

        feeding = asyncio.create_task(feed())
        while not channel._said_s:  # that its sources wait
            await asyncio.sleep(0.001)
        with (disk / "ballast").open("wb") as ballast:  # what others write
            ballast.write(bytes(DISK_BYTES - size_of(disk)))
        seen = 0
        async with asyncio.timeout(GIVE_UP_S):
            while seen < batches:
                for batch in await channel.take(100):
                    seen += 1
                    assert batch.source_position is not None
                    assert batch.source_position.offset == seen
                    channel.commit([batch])
        await feeding
        await channel.close()

    asyncio.run(run())


def size_of(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())
