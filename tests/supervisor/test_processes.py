"""Processes are known by id and start time, and the holder of a lock is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ottla.seams.disk import RealDisk
from ottla.supervisor.processes import (
    ProcessId,
    identify,
    lock_holder,
    running,
    send,
    stopped,
)
from tests.waiting import eventually

HOLDER = """
import sys
from ottla.seams.disk import RealDisk

lock = RealDisk().lock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def sleeper(*arguments: str) -> subprocess.Popen[bytes]:
    code = arguments or ("import sys; print('started', flush=True); sys.stdin.read()",)
    process = subprocess.Popen(
        [sys.executable, "-c", *code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_process_is_known_until_it_ends() -> None:
    """It runs, can be stopped and woken, and is gone once it has ended, reaped or not."""
    with sleeper() as process:
        known = identify(process.pid)
        assert known is not None
        assert running(known)
        assert not stopped(known)
        assert send(known, signal.SIGSTOP)
        eventually(lambda: stopped(known))
        assert send(known, signal.SIGKILL)
        eventually(lambda: not running(known))
        assert not send(known, signal.SIGKILL)
        process.wait()
        assert identify(process.pid) is None


def test_another_process_with_the_same_id_gets_no_signal() -> None:
    """An id that was used again names another process: it is left alone."""
    other = ProcessId(os.getpid(), "another time")
    assert not running(other)
    assert not send(other, signal.SIGKILL)
    assert not send(None, signal.SIGKILL)


def test_the_holder_of_a_lock_is_found(tmp_path: Path) -> None:
    """The lock that a broker takes names its process; without a holder or a file there is none."""
    path = str(tmp_path / "lock")
    assert lock_holder(path) is None
    RealDisk().lock(path).release()
    assert lock_holder(path) is None
    with sleeper(HOLDER, path) as process:
        assert lock_holder(path) == process.pid
        process.kill()
        process.wait()
        assert lock_holder(path) is None
