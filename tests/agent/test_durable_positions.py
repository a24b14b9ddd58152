"""When a file is done with: a durable channel has its events, not when it was given them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.agent.channels.file import FileChannel
from ottla.agent.events import EventBatch, Position
from ottla.agent.output import SourceOutput


def numbered(first: int, last: int) -> EventBatch:
    return EventBatch(
        [b"%d" % number for number in range(first, last)],
        position=Position("r1/numbers", last),
        ends=range(first + 1, last + 1),
    )


def file_channel(directory: Path) -> FileChannel:
    return FileChannel("c1", directory / "c", [directory / "d"], minimum_space_bytes=0)


def test_what_a_file_channel_has_not_synced_is_not_delivered(tmp_path: Path) -> None:
    """A source that can read again does not wait for the sync; a file that it marks as done must.
    What a channel holds at its start counts as well."""

    async def scenario() -> None:
        channel = file_channel(tmp_path)
        await channel.start({})
        output = SourceOutput([channel], [])
        await output.put(numbered(0, 5))
        assert not output.is_delivered("r1/numbers", 5)  # the writer has had no turn yet
        await channel.drain()
        assert output.is_delivered("r1/numbers", 5)
        assert not output.is_delivered("r1/numbers", 6)
        await channel.close()

        again = file_channel(tmp_path)
        await again.start({})
        assert SourceOutput([again], []).is_delivered("r1/numbers", 5)
        await again.close()

    asyncio.run(scenario())
