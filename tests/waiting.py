"""Waiting for an event in tests: polled until it is there, given up after a minute.

The limit is generous because a busy machine is slow, not wrong: a test never measures how long
something took. What must not be waited for (a linger time, a delayed response) is given a time far
beyond the limit.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

GIVE_UP_S = 60.0


def eventually(check: Callable[[], object], what: str = "", give_up_s: float = GIVE_UP_S) -> None:
    """Poll until the check holds."""
    deadline = time.monotonic() + give_up_s
    while not check():
        assert time.monotonic() < deadline, f"not within {give_up_s:.0f} s: {what}"
        time.sleep(0.02)


def suspend(pid: int) -> None:
    """SIGSTOP, and wait until no thread runs: on a busy machine others go on until one has it."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    if threads.exists():  # on Linux
        eventually(
            lambda: {thread_state(each) for each in threads.iterdir()} == {"T"},
            f"process {pid} does not stand still",
        )


def thread_state(thread: Path) -> str:
    try:
        # The name before it is in parentheses, and may have spaces.
        return (thread / "stat").read_text().rpartition(") ")[2][:1]
    except OSError:  # it has ended meanwhile
        return "T"


def ends(act: Callable[[], object], give_up_s: float = GIVE_UP_S) -> None:
    """Run an action in a thread of its own and fail if it does not end; raise what it raises."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(give_up_s)
    assert not thread.is_alive(), f"not done within {give_up_s:.0f} s"
    if problems:
        raise problems[0]
