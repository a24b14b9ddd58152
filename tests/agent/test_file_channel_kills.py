"""The file channel killed at each call to the disk: before it, and in the middle of a write.

What the process wrote before a SIGKILL stays, synced or not; of what comes behind it there is
nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.agent.events import Position

from .test_file_channel import STREAM, Sink, channel_in, crash, numbered

CALLS = ("open", "writev", "fdatasync", "fsync", "replace", "rename", "unlink")
NUMBERS = 24
DATA_BYTES_MAX = 300  # of a segment: several are begun and deleted
KILLS = 400  # more than a life has calls


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more."""


class Killer:
    """Ends all that touches the disk, from the n-th call on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.in_the_middle = False
        self.real = {name: getattr(os, name) for name in CALLS}
        for name in CALLS:
            patch.setattr(os, name, self._killing(name))

    def _killing(self, name: str) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.in_the_middle and name == "writev":
                data = b"".join(arguments[1])
                os.write(arguments[0], data[: len(data) // 2])
            if self.left == 0 or self.left < -1_000_000:
                self.left = -2_000_000
                raise KilledError
            return self.real[name](*arguments, **options)

        return called


async def life(directory: Path, sink: Sink) -> None:
    """From a start until all numbers are delivered and the channel is closed."""
    channel = channel_in(directory, segment_bytes=DATA_BYTES_MAX)
    try:
        positions = await channel.start(dict(sink.positions))
        first = positions[STREAM].offset if STREAM in positions else 0
        while sink.positions.get(STREAM, Position(STREAM, 0)).offset < NUMBERS:
            if first < NUMBERS:
                await channel.put(numbered(first, 3))
                first += 3
            taking = asyncio.create_task(channel.take(4))
            await asyncio.wait({taking, *channel._tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in channel._tasks:
                if task.done():
                    taking.cancel()
                    task.result()
            taken = taking.result()
            sink.deliver(taken)
            channel.commit(taken)
            await channel._write_checkpoint()
        await channel.close()
    finally:
        channel.unlock()
        if hasattr(channel, "segments"):
            await crash(channel)


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_kill_at_any_call_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_the_middle: bool
) -> None:
    """Each number arrives once, and none is counted as lost, whichever call was the last one."""
    killer = Killer(monkeypatch)
    killer.in_the_middle = in_the_middle
    for number in range(1, KILLS):
        directory, sink = tmp_path / str(number), Sink()
        killer.left = number
        try:
            asyncio.run(life(directory, sink))
        except KilledError:
            killed = True
        else:
            killed = False
        killer.left = -1
        asyncio.run(life(directory, sink))
        assert sink.bodies == list(range(NUMBERS)), number
        assert not [*directory.rglob("*.damaged*")], number
        if not killed:
            break
    assert 20 < number < KILLS - 1
