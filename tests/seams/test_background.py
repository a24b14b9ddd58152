"""Threads and helper processes: results, errors, order, and an end to everything."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.seams import background
from ottla.seams.background import HelperFailed, InlineBackground, RealBackground
from tests.seams import background_jobs

MODULE = "tests.seams.background_jobs"


@asynccontextmanager
async def real() -> AsyncIterator[RealBackground]:
    work = RealBackground(asyncio.get_running_loop(), helper_module=MODULE)
    try:
        yield work
    finally:
        work.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(met: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.01)


def test_a_thread_runs_beside_the_loop() -> None:
    """A blocking call runs on another thread and its result comes back through the future."""

    async def run() -> None:
        async with real() as work:
            assert await work.thread(threading.get_ident) != threading.get_ident()
            with pytest.raises(ZeroDivisionError):
                await work.thread(lambda: 1 // 0)

    asyncio.run(run())


def test_a_job_runs_in_a_process_of_lower_priority() -> None:
    """A job's answer comes from another process, at a higher niceness, prints or no prints."""

    async def run() -> None:
        async with real() as work:
            answer = await work.process("double", {"number": 21})
            assert answer["number"] == 42
            assert answer["pid"] != os.getpid()
            assert answer["niceness"] >= min(19, os.nice(0) + background.HELPER_NICENESS)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("job", "kind", "text"),
    [
        ("fail", "ValueError", "cannot take 3"),
        ("die", "NoAnswer", "status 7"),
        ("unheard of", "KeyError", "unheard of"),
    ],
)
def test_a_job_that_fails_says_what_and_why(job: str, kind: str, text: str) -> None:
    """An exception, a sudden death and an unknown job all arrive as `HelperFailed`."""

    async def run() -> None:
        async with real() as work:
            with pytest.raises(HelperFailed) as caught:
                await work.process(job, {"number": 3})
            assert caught.value.kind == kind
            assert text in caught.value.message
            assert job in str(caught.value)

    asyncio.run(run())


def test_jobs_wait_their_turn() -> None:
    """Only one helper runs at a time; the others follow in order and none is forgotten."""

    async def run() -> None:
        async with real() as work:
            futures = [work.process("double", {"number": n}) for n in range(3)]
            assert len(work._running) == background.PROCESSES_MAX
            assert [(await f)["number"] for f in futures] == [0, 2, 4]
            assert not work._running

    asyncio.run(run())


def test_too_many_waiting_jobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue of jobs has a limit, and a job beyond it is refused at once."""
    monkeypatch.setattr(background, "JOBS_WAITING_MAX", 1)

    async def run() -> None:
        async with real() as work:
            futures = [work.process("double", {"number": n}) for n in range(2)]
            with pytest.raises(RuntimeError, match="refused"):
                work.process("double", {"number": 2})
            await asyncio.gather(*futures)

    asyncio.run(run())


def test_cancelling_a_job_ends_its_process(tmp_path: Path) -> None:
    """A cancelled job's process is gone soon after, and the next job still runs."""

    async def run() -> None:
        async with real() as work:
            path = tmp_path / "pid"
            future = work.process("sleep", {"path": str(path)})
            await until(lambda: path.exists() and path.read_text())
            future.cancel()
            await until(lambda: not alive(int(path.read_text())))
            assert (await work.process("double", {"number": 1}))["number"] == 2

    asyncio.run(run())


def test_closing_ends_running_jobs(tmp_path: Path) -> None:
    """After `close` no helper runs and no job is taken."""

    async def run() -> None:
        async with real() as work:
            path = tmp_path / "pid"
            future = work.process("sleep", {"path": str(path)})
            await until(lambda: path.exists() and path.read_text())
            work.close()
            assert not alive(int(path.read_text()))
            assert future.cancelled()
            with pytest.raises(RuntimeError, match="closed"):
                work.process("double", {"number": 1})

    asyncio.run(run())


def test_a_helper_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """When the broker dies by SIGKILL its helper ends by itself: its input has closed."""
    path = tmp_path / "pid"
    code = (
        "import asyncio\n"
        "from ottla.seams.background import RealBackground\n"
        "async def run():\n"
        f"    work = RealBackground(asyncio.get_running_loop(), helper_module={MODULE!r})\n"
        f"    await work.process('sleep', {{'path': {str(path)!r}}})\n"
        "asyncio.run(run())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        asyncio.run(until(lambda: path.exists() and path.read_text()))
    finally:
        parent.kill()
        parent.wait()
    asyncio.run(until(lambda: not alive(int(path.read_text()))))


def test_inline_work_is_done_at_once() -> None:
    """The inline form has its result when the call returns, with or without a loop."""
    jobs: dict[str, Any] = background_jobs.JOBS
    work = InlineBackground(object(), jobs)  # type: ignore[arg-type]
    assert work.thread(lambda a, b: a + b, 1, 2).result() == 3
    assert work.process("double", {"number": 4}).result()["number"] == 8
    assert isinstance(work.thread(lambda: 1 // 0).exception(), ZeroDivisionError)
    failed = work.process("fail", {"number": 4}).exception()
    assert isinstance(failed, HelperFailed)
    assert failed.kind == "ValueError"
    work.close()

    async def run() -> None:
        assert await InlineBackground().thread(lambda: 5) == 5

    asyncio.run(run())
