"""The `TAILDIR` source on real files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from ottla.agent.events import Position
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


def test_the_rest_of_a_renamed_file_is_read_after_a_restart(tmp_path: Path) -> None:
    """Also if no filegroup has its new name, and more is written to it while nobody looks."""

    async def run() -> list[str]:
        log, moved = tmp_path / "a.log", tmp_path / "a.log.1"
        append(log, "one\n")
        first = Collected()
        async with Running(source(tmp_path), first):
            await first.until(lambda: first.lines)
            log.rename(moved)
            append(moved, "two\n")
            await first.until(lambda: len(first.lines) == 2)
        append(moved, "three\n")
        second = Collected(first.positions)
        async with Running(source(tmp_path), second):
            await second.until(lambda: second.lines)
        return second.lines

    assert asyncio.run(run()) == ["three"]


def test_a_file_that_no_filegroup_names_any_more_is_left(tmp_path: Path) -> None:
    """Another description, the same positions: the file that it leaves out is not read on; named
    again, it is read from where it was left."""

    async def lines(pattern: str, positions: Mapping[str, Position]) -> Collected:
        output = Collected(positions)
        async with Running(source(tmp_path, pattern), output):
            await output.until(lambda: output.lines)
        return output

    first, second = tmp_path / "a.log", tmp_path / "b.log"
    append(first, "one\n")
    kept = asyncio.run(lines("a.log", {})).positions
    append(first, "two\n")
    append(second, "other\n")
    between = asyncio.run(lines("b.log", kept))
    assert between.lines == ["other"]
    after = asyncio.run(lines("a.log", between.positions))
    assert after.lines == ["two"]
