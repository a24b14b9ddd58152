"""The correctness rows of Vector's public test harness that are about files.

`disk_buffer_persistence` is a test of the file channel, `sighup` one of reloading.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from ottla.agent.files.json_lines import JsonDecoder
from ottla.agent.files.lines import LineDecoder
from ottla.agent.files.listing import FileGroup
from ottla.agent.files.watching import PollingWatcher, watcher_for
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from tests.agent.files_harness import Collected, Running, append


@pytest.fixture(params=["inotify", "polling"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> TaildirSource:
    group = FileGroup.parse("f1", rf"{tmp_path}/test\.log.*", {})
    new_watcher = watcher_for
    if request.param == "polling":
        new_watcher = lambda _: PollingWatcher(0.01)  # noqa: E731
    return TaildirSource("r1", TaildirOptions([group], new_watcher=new_watcher))


def test_vector_file_rotate_create_correctness(tmp_path: Path, source: TaildirSource) -> None:
    """Renamed, a new file in its place, a line into each: both arrive, nothing twice."""

    async def run() -> list[str]:
        log, rotated = tmp_path / "test.log", tmp_path / "test.log.1"
        append(log, "before\n")
        output = Collected()
        async with Running(source, output):
            await output.until(lambda: output.lines)
            log.rename(rotated)
            log.touch()
            append(rotated, "old\n")
            append(log, "new\n")
            await output.until(lambda: len(output.lines) >= 3)
        return output.lines

    assert sorted(asyncio.run(run())) == ["before", "new", "old"]


def test_vector_file_rotate_truncate_correctness(tmp_path: Path, source: TaildirSource) -> None:
    """Copied and truncated, a line into each: both arrive, nothing twice."""

    async def run() -> list[str]:
        log, rotated = tmp_path / "test.log", tmp_path / "test.log.1"
        append(log, "before\n")
        output = Collected()
        async with Running(source, output):
            await output.until(lambda: output.lines)
            shutil.copy(log, rotated)
            log.write_text("")
            append(rotated, "old\n")
            append(log, "new\n")
            await output.until(lambda: len(output.lines) >= 3)
        return output.lines

    assert sorted(asyncio.run(run())) == ["before", "new", "old"]


def test_vector_file_truncate_correctness(tmp_path: Path, source: TaildirSource) -> None:
    """What is written to a truncated file arrives."""

    async def run() -> list[str]:
        log = tmp_path / "test.log"
        append(log, "before\n")
        output = Collected()
        async with Running(source, output):
            await output.until(lambda: output.lines)
            log.write_text("")
            append(log, "after\n")
            await output.until(lambda: len(output.lines) >= 2)
        return output.lines

    assert asyncio.run(run()) == ["before", "after"]


def test_vector_wrapped_json_correctness(tmp_path: Path, source: TaildirSource) -> None:
    """A document wrapped in another one, as Docker does it, comes out as it went in."""
    inner = r'{"message":"Hello \"world\""}'
    source.options.new_decoder = lambda position: JsonDecoder(LineDecoder(position), "log")

    async def run() -> list[str]:
        append(tmp_path / "test.log", json.dumps({"log": inner}) + "\n")
        output = Collected()
        async with Running(source, output):
            await output.until(lambda: output.lines)
        return output.lines

    [body] = asyncio.run(run())
    assert body == inner
    assert json.loads(body) == {"message": 'Hello "world"'}
