"""Segments of a file channel that somebody deletes or moves while the agent runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.agent.events import EventBatch
from tests.agent.test_file_channel import channel_in, crash, numbered


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_segment_that_is_taken_away_gets_no_more_events(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it holds is delivered; what is put from then on is there after a crash. Before, `put`
    said that events were safe which nobody could have found."""

    async def scenario() -> None:
        channel = channel_in(tmp_path, segment_bytes=1 << 20)
        await channel.start({})
        await channel.put(EventBatch([b"0", b"1"]))
        [path] = tmp_path.glob("data*/*.channel")
        if how == "deleted":
            path.unlink()
        elif how == "moved":
            path.rename(tmp_path / path.name)
        else:
            (tmp_path / "copy").write_bytes(path.read_bytes())
            (tmp_path / "copy").rename(path)
        await channel.put(EventBatch([b"2", b"3"]))
        assert f"{path} was deleted or moved away" in caplog.text
        taken = await channel.take(100)
        assert [body for batch in taken for body in batch.bodies] == [b"0", b"1", b"2", b"3"]
        await crash(channel)
        again = channel_in(tmp_path)
        await again.start({})
        taken = await again.take(100)
        assert [body for batch in taken for body in batch.bodies][-2:] == [b"2", b"3"]
        again.commit(taken)
        await again.close()

    asyncio.run(scenario())


def test_a_damaged_segment_that_somebody_has_deleted_holds_up_nothing(tmp_path: Path) -> None:
    """Before, each checkpoint failed at it, and no segment behind it was ever deleted."""

    async def scenario() -> None:
        channel = channel_in(tmp_path, segment_bytes=1)
        await channel.start({})
        for first in range(0, 40, 10):
            await channel.put(numbered(first, 10))
            await channel.drain()
        channel.segments.segments[0].damaged = True
        channel.segments.segments[0].path.unlink()
        while channel.events:
            channel.commit(await channel.take(100))
        await channel._write_checkpoint()
        assert len(list(tmp_path.glob("data*/*.channel"))) == 1
        await channel.close()

    asyncio.run(scenario())
