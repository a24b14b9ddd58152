"""Files that cannot be read for a while: the others go on, and nothing is left out."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.agent.files.listing import FileGroup
from ottla.agent.files.tail import PlainContent
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource

from .files_harness import Collected, Running, Ticks, append


class BadSectors:
    """Files whose bytes the disk does not give: all of them, or those behind an offset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inodes: dict[int, int] = {}
        whole = PlainContent.pread

        def pread(content: PlainContent, length: int, offset: int) -> bytes:
            good = self.inodes.get(content.stat().st_ino, offset + length)
            if offset + length > good:
                raise OSError(errno.EIO, "Input/output error")
            return whole(content, length, offset)

        monkeypatch.setattr(PlainContent, "pread", pread)

    def harm(self, path: Path, good_bytes: int = 0) -> None:
        self.inodes[path.stat().st_ino] = good_bytes


def follow(directory: Path, steps: Callable[[Collected, Ticks], object]) -> Collected:
    ticks, output = Ticks(), Collected()
    group = FileGroup.parse("f1", f"{directory}/.*log", {})
    options = TaildirOptions([group], new_watcher=lambda _: ticks, clock=ticks.clock)

    async def run() -> None:
        async with Running(TaildirSource("r1", options), output):
            await steps(output, ticks)

    asyncio.run(run())
    return output


def test_a_disk_that_does_not_give_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was never read, and one that was: others go on, the log says it, and both are read
    once the disk gives them. Before, the whole agent ended."""
    disk = BadSectors(monkeypatch)
    new, old, good = (tmp_path / f"{name}.log" for name in ("new", "old", "good"))
    append(new, "new\n")
    append(old, "old 1\n")
    disk.harm(new)

    async def steps(output: Collected, ticks: Ticks) -> None:
        await ticks.caught_up()
        assert output.lines == ["old 1"]
        append(old, "old 2\n")
        disk.harm(old, 6)
        append(good, "good\n")
        await ticks.caught_up()
        assert output.lines == ["old 1", "good"]
        for name in (new, old):
            assert f"{name} cannot be read: Input/output error" in caplog.text
        disk.inodes.clear()
        await ticks.caught_up()
        assert sorted(output.lines) == ["good", "new", "old 1", "old 2"]

    follow(tmp_path, steps)


def test_a_known_file_that_may_not_be_opened_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written meanwhile comes with the next listing: before, only once it was written
    again, which a rotated file never is."""
    log = tmp_path / "a.log"
    append(log, "1\n")
    opened = os.open

    def refused(path: str, *arguments: int) -> int:
        if path == str(log):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *arguments)

    async def steps(output: Collected, ticks: Ticks) -> None:
        await ticks.caught_up()
        ticks.now_s += 1000  # it is closed, because it is idle
        await ticks.caught_up()
        append(log, "2\n")
        with monkeypatch.context() as denied:
            denied.setattr(os, "open", refused)
            await ticks.caught_up()
            assert output.lines == ["1"]
        await ticks.caught_up()
        assert output.lines == ["1", "2"]

    follow(tmp_path, steps)
