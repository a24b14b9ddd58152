"""The `TAILDIR` source on real files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.agent.files.listing import FileGroup
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from tests.agent.files_harness import Collected, Running, append


def source(folder: Path, pattern: str = r".*\.log") -> TaildirSource:
    group = FileGroup.parse("f1", f"{folder}/{pattern}", {"group": "one"})
    return TaildirSource("r1", TaildirOptions([group], file_header="file"))


def test_lines_arrive_as_they_are_written(tmp_path: Path) -> None:
    """A line is an event once its newline is there; headers name group and file."""

    async def run() -> Collected:
        log = tmp_path / "a.log"
        append(log, "one\ntw")
        output = Collected()
        async with Running(source(tmp_path), output):
            await output.until(lambda: output.lines == ["one"])
            append(log, "o\nthree\n")
            await output.until(lambda: len(output.lines) == 3)
        return output

    output = asyncio.run(run())
    assert output.lines == ["one", "two", "three"]
    assert output.batches[0].headers == {"group": "one", "file": str(tmp_path / "a.log")}


def test_a_restart_continues_behind_what_was_delivered(tmp_path: Path) -> None:
    """The position finds its file again, under another name too."""

    async def run() -> list[str]:
        log = tmp_path / "a.log"
        append(log, "one\ntwo\n")
        first = Collected()
        async with Running(source(tmp_path), first):
            await first.until(lambda: len(first.lines) == 2)
        log.rename(tmp_path / "b.log")
        append(tmp_path / "b.log", "three\n")
        second = Collected(first.positions)
        async with Running(source(tmp_path), second):
            await second.until(lambda: second.lines)
        assert set(second.positions) == set(first.positions)
        return second.lines

    assert asyncio.run(run()) == ["three"]
