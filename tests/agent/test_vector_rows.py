"""The correctness rows of Vector's public test harness."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from ottla.agent.files.json_lines import JsonDecoder
from ottla.agent.files.lines import LineDecoder
from ottla.agent.files.listing import FileGroup
from ottla.agent.files.watching import PollingWatcher, watcher_for
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from ottla.supervisor.ports import free_port
from ottla.testing.broker import Broker
from tests.agent.files_harness import Collected, Running, append
from tests.agent.kills import Agent, Reader, accepts, send_lines
from tests.agent.test_run_command import running
from tests.waiting import eventually


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


def test_vector_disk_buffer_persistence_correctness(
    ottla_own_broker: Broker, tmp_path: Path
) -> None:
    """What a file channel took while the sink could not deliver outlasts SIGKILL, though its source
    cannot send it again; it arrives once."""
    port = free_port()
    source = "type = netcat", "bind = 127.0.0.1", f"port = {port}"
    agent = Agent(tmp_path, ottla_own_broker, "file", source=source)
    with agent.config.open("a") as config:
        config.write("a1.sinks.k1.delivery = exactly-once\n")

    reader = Reader(ottla_own_broker)
    agent.start()
    eventually(lambda: accepts(agent, port))
    send_lines(port, range(10))
    reader.read_all(Counter(range(10)), agent)
    ottla_own_broker.kill()
    send_lines(port, range(10, 300))
    agent.kill()
    ottla_own_broker.start()
    agent.start()
    reader.read_all(Counter(range(300)), agent)
    agent.kill()
    reader.poll()
    assert reader.lines == Counter(range(300))
    reader.close()


def test_vector_sighup_correctness(tmp_path: Path) -> None:
    """The file now names another log, SIGHUP comes: lines of that log arrive, those of the first
    one no longer do, and what came from it before is there once."""
    first, second, out = tmp_path / "first.log", tmp_path / "second.log", tmp_path / "out"
    file = tmp_path / "flume.conf"

    def text(log: Path) -> str:
        return f"""
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = f1
a1.sources.r1.filegroups.f1 = {log}
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {out}
a1.sinks.k1.channel = c1
"""

    def lines() -> list[str]:
        return sorted(line for each in out.glob("*") for line in each.read_text().splitlines())

    append(first, "before\n")
    file.write_text(text(first))
    with running(file) as process:
        eventually(lambda: process.poll() is not None or lines() == ["before"])
        file.write_text(text(second))
        append(second, "after\n")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: process.poll() is not None or "after" in lines())
        append(first, "unread\n")
        append(second, "last\n")
        eventually(lambda: process.poll() is not None or "last" in lines())
    assert lines() == ["after", "before", "last"]
