"""What users reported of Flume's TAILDIR, and never got: each report is a test by its number.

FLUME-2777, 3094, 3216, 3219, 3233 and 3339 are about files that are read again after a rename,
each in another situation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.agent.files.listing import FileGroup, Found, Wanted
from ottla.agent.sources import taildir
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from tests.agent.files_harness import Collected, Running, Ticks, append


class Agent:
    """A source that follows `app.log` and its rotated files, over several runs."""

    def __init__(self, folder: Path, idle_timeout_ms: int = 120_000) -> None:
        self.folder = folder
        self.log = folder / "app.log"
        self.idle_timeout_ms = idle_timeout_ms
        self.output = Collected()

    @property
    def lines(self) -> list[str]:
        return self.output.lines

    def run(self, act: Callable[[Ticks], Coroutine[Any, Any, None]]) -> TaildirSource:
        """One run of the source; the test acts on the files meanwhile."""
        ticks = Ticks()
        group = FileGroup.parse("f1", rf"{self.folder}/app\.log.*", {})
        source = TaildirSource(
            "r1",
            TaildirOptions(
                [group],
                idle_timeout_ms=self.idle_timeout_ms,
                new_watcher=lambda _: ticks,
                clock=ticks.clock,
            ),
        )

        async def play() -> None:
            async with Running(source, self.output):
                await act(ticks)

        asyncio.run(play())
        return source

    def catch_up(self) -> None:
        self.run(lambda ticks: ticks.caught_up())

    def rotate(self) -> None:
        for number in (2, 1):
            if (self.folder / f"app.log.{number}").exists():
                (self.folder / f"app.log.{number}").rename(self.folder / f"app.log.{number + 1}")
        self.log.rename(self.folder / "app.log.1")


def open_below(folder: Path) -> list[str]:
    """The files that this process has open there."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    paths = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sorted(path for path in paths if path.startswith(f"{folder}/"))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_flume_2777_rolled_by_log4j(agent: Agent) -> None:
    """A file that its writer renames again and again while it is followed is read once."""

    async def act(ticks: Ticks) -> None:
        for number in range(4):
            append(agent.log, f"{number}\n")
            await ticks.caught_up()
            agent.rotate()
            await ticks.caught_up()

    agent.run(act)
    assert agent.lines == ["0", "1", "2", "3"]


def test_flume_3094_restart_after_a_rename(agent: Agent) -> None:
    """The position of a renamed file is known after a restart."""

    async def act(ticks: Ticks) -> None:
        await ticks.caught_up()
        agent.rotate()
        await ticks.caught_up()

    append(agent.log, "one\n")
    agent.run(act)
    agent.catch_up()
    assert agent.lines == ["one"]


def test_flume_3216_moved_away_and_back(agent: Agent, tmp_path: Path) -> None:
    """A file that is moved to another directory, and back, is not read again."""
    away = tmp_path / "away"
    away.mkdir()

    async def act(ticks: Ticks) -> None:
        await ticks.caught_up()
        agent.log.rename(away / "app.log")
        await ticks.caught_up()
        append(away / "app.log", "two\n")
        (away / "app.log").rename(agent.log)
        await ticks.caught_up()

    append(agent.log, "one\n")
    agent.run(act)
    assert agent.lines == ["one", "two"]


def test_flume_3219_written_after_the_rename(agent: Agent) -> None:
    """A writer that buffers writes to the renamed file: that is read, what was there is not."""

    async def act(ticks: Ticks) -> None:
        with agent.log.open("a") as writer:
            writer.write("one\n")
            writer.flush()
            await ticks.caught_up()
            agent.rotate()
            await ticks.caught_up()
            writer.write("two\n")
        append(agent.log, "three\n")
        await ticks.caught_up()

    agent.run(act)
    assert sorted(agent.lines) == ["one", "three", "two"]


def test_flume_3233_written_and_rotated_while_down(agent: Agent) -> None:
    """What was written and rotated while the agent was down is read, in the renamed file too."""
    append(agent.log, "one\n")
    agent.catch_up()
    append(agent.log, "two\n")
    agent.rotate()
    append(agent.log, "three\n")
    agent.rotate()
    append(agent.log, "four\n")
    agent.catch_up()
    assert agent.lines == ["one", "two", "three", "four"]


def test_flume_3320_rotated_between_listing_and_reading(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is shorter than the position of the old one; the position is not reset, because
    size and inode are of one stat, and a file that is another by now is not opened."""
    list_files = taildir.list_files

    def rotated_since(groups: list[FileGroup], wanted: Wanted) -> list[Found]:
        found = list_files(groups, wanted)
        if rotate_now:
            rotate_now.clear()
            agent.rotate()
            append(agent.log, "3\n")
        return found

    rotate_now: list[bool] = []
    monkeypatch.setattr(taildir, "list_files", rotated_since)

    async def act(ticks: Ticks) -> None:
        await ticks.caught_up()
        append(agent.log, "two\n")
        rotate_now.append(True)
        await ticks.caught_up()
        await ticks.caught_up()

    append(agent.log, "a line that is longer\n")
    agent.run(act)
    assert agent.lines == ["a line that is longer", "two", "3"]


def test_flume_3325_idle_files_take_no_memory(tmp_path: Path) -> None:
    """While one file is written, those that stay idle are closed once, and nothing grows."""
    agent = Agent(tmp_path, idle_timeout_ms=1000)
    for number in range(5):
        append(tmp_path / f"app.log.idle{number}", f"{number}\n")

    async def act(ticks: Ticks) -> None:
        for number in range(30):
            append(agent.log, f"{number}\n")
            await ticks.caught_up()
            ticks.now_s += 2
        assert open_below(tmp_path) == [str(agent.log)]

    source = agent.run(act)
    assert len(agent.lines) == 35
    assert len(source.files()) == 6
    assert len(source._registry.streams) == 6
    assert not source._pending.read


def test_flume_3339_rename_reads_nothing_twice(agent: Agent) -> None:
    """`app.log` becomes `app.log.1` with the inode that it had, and a new `app.log` comes."""

    async def act(ticks: Ticks) -> None:
        await ticks.caught_up()
        agent.rotate()
        append(agent.log, "two\n")
        await ticks.caught_up()

    append(agent.log, "one\n")
    agent.run(act)
    assert agent.lines == ["one", "two"]


def test_flume_3341_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """A file that was renamed and then deleted is closed: its space is free."""
    agent = Agent(tmp_path, idle_timeout_ms=1000)

    def deleted_but_open() -> list[str]:
        return [path for path in open_below(tmp_path) if "deleted" in path]

    async def act(ticks: Ticks) -> None:
        await ticks.caught_up()
        agent.rotate()
        await ticks.caught_up()
        (tmp_path / "app.log.1").unlink()
        await ticks.caught_up()
        assert len(deleted_but_open()) == 1
        ticks.now_s += 6
        await ticks.caught_up()
        assert not deleted_but_open()

    append(agent.log, "one\n")
    agent.run(act)
