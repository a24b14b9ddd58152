"""The exec source: lines of a command, its end, its restart, its children."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from ottla.agent.context import Context
from ottla.agent.events import EventBatch
from ottla.agent.sources.exec import ExecSource, from_options
from tests.waiting import eventually

from .config.descriptions import agent_of, with_source


class Collected:
    """An output that keeps what it gets."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []

    async def put(self, batch: EventBatch) -> None:
        self.batches.append(batch)

    @property
    def lines(self) -> list[bytes]:
        return [body for batch in self.batches for body in batch.bodies]


def source_of(*lines: str) -> ExecSource:
    options = agent_of(with_source("type = exec", *lines)).sources["r1"].options
    return from_options("r1", options, Context("a1", "here", Path("/nowhere")))


def lines_of(*lines: str) -> list[bytes]:
    output = Collected()
    asyncio.run(source_of(*lines).run(output, {}))
    return output.lines


def test_lines_become_events() -> None:
    """Words are split at spaces without a shell; a last line without its end counts, and the end
    of a line may be Windows'."""
    assert lines_of("command = echo one  two") == [b"one two"]
    assert lines_of(
        r"command = printf 'a\\r\\nb\\n\\nc'", "shell = /bin/sh -c"
    ) == [b"a", b"b", b"", b"c"]  # fmt: skip


def test_a_shell_runs_what_needs_one() -> None:
    """Loops, pipes and variables of the shell, which the file does not replace."""
    command = "command = for i in 1 2 3; do echo ${i}; done | tac"
    assert lines_of(command, "shell = /bin/bash -c") == [b"3", b"2", b"1"]


def test_many_lines_stay_in_order() -> None:
    """Blocks of a pipe end anywhere; a given batch size is kept."""
    assert lines_of("command = seq 50000") == [b"%d" % number for number in range(1, 50_001)]
    output = Collected()
    asyncio.run(source_of("command = seq 1000", "batchSize = 7").run(output, {}))
    assert max(map(len, output.batches)) == 7
    assert len(output.lines) == 1000


def test_a_long_line_is_split(caplog: pytest.LogCaptureFixture) -> None:
    """It does not fill the memory, and it is said."""
    found = lines_of("command = head -c 2500000 /dev/zero")
    assert b"".join(found) == bytes(2_500_000)
    assert len(found) == 3
    assert "too long" in caplog.text


def test_a_command_that_cannot_run_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The source ends, the agent does not."""
    assert lines_of("command = /no/such/program") == []
    assert "cannot run /no/such/program" in caplog.text


def test_stderr_is_logged_if_wanted(caplog: pytest.LogCaptureFixture) -> None:
    """logStdErr."""
    command = ("command = echo oh >&2; cat; sleep 0.2", "shell = /bin/sh -c")
    assert lines_of(*command) == []
    assert "oh" not in caplog.text
    caplog.set_level(logging.INFO)
    lines_of(*command, "logStdErr = true")
    assert "stderr: oh" in caplog.text


def test_a_restart_begins_anew() -> None:
    """restart starts the command again after restartThrottle."""

    async def run() -> list[bytes]:
        output = Collected()
        source = source_of("command = echo again", "restart = true", "restartThrottle = 1")
        running = asyncio.create_task(source.run(output, {}))
        while len(output.lines) < 3:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return output.lines

    assert set(asyncio.run(run())) == {b"again"}


def test_a_stop_ends_what_the_command_started() -> None:
    """A shell's child does not outlive the source."""

    async def run() -> int:
        output = Collected()
        source = source_of("command = sleep 1000 & echo $!; wait", "shell = /bin/bash -c")
        running = asyncio.create_task(source.run(output, {}))
        while not output.lines:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return int(output.lines[0])

    child = asyncio.run(run())
    eventually(lambda: not alive(child), f"process {child} lives")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2][:1] != "Z"


def test_a_line_without_an_end_is_split_into_what_a_topic_takes() -> None:
    """A record of a piece is not over Kafka's default of message.max.bytes, 1,048,588; before, it
    was, and nothing behind it was delivered."""
    lines = lines_of("command = head -c 3000000 /dev/zero")
    assert [len(line) for line in lines] == [1_000_000] * 3
