"""Processes by id and start time: an id alone may by now be another process's.

process = identify(pid)         remembered, in a file or not
running(process)                whether that very process still runs
send(process, signal.SIGKILL)   to that process or to none
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
from typing import NamedTuple

# struct flock of fcntl(2): type, whence, start, length, pid in the order of the platform.
FLOCK_LAYOUT = "qqihh" if sys.platform == "darwin" else "hhqqi"


class ProcessId(NamedTuple):
    """One process: no other has both."""

    pid: int
    started: str  # as the operating system notes it; only compared


def identify(pid: int) -> ProcessId | None:
    """The process that has this id now; None if there is none, or one that has ended already."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may have blanks and parentheses of its own.
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
        return _identify_by_ps(pid)
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in b"ZX" else ProcessId(pid, started.decode())


def _identify_by_ps(pid: int) -> ProcessId | None:
    """For systems without /proc."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if not found or found[0].startswith("Z"):
        return None
    return ProcessId(pid, " ".join(found[1:]))


def running(process: ProcessId | None) -> bool:
    """Whether this very process has not ended."""
    return process is not None and identify(process.pid) == process


def stopped(process: ProcessId) -> bool:
    """Whether the process is suspended by a signal; False where /proc does not tell."""
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in b"Tt"
    return False


def send(process: ProcessId | None, number: int) -> bool:
    """Send a signal to this very process; False if it has ended."""
    if process is None or not running(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def lock_holder(path: str | os.PathLike[str]) -> int | None:
    """The id of the process that has a POSIX lock on a file; None if none has."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "pid": 0}
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _pack(fields))
        kind, pid = _unpack(answer)
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid


def _order() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("start", "length", "pid", "type", "whence")
    return ("type", "whence", "start", "length", "pid")


def _pack(fields: dict[str, int]) -> bytes:
    return struct.pack(FLOCK_LAYOUT, *(fields[name] for name in _order()))


def _unpack(data: bytes) -> tuple[int, int]:
    fields = dict(zip(_order(), struct.unpack(FLOCK_LAYOUT, data), strict=True))
    return fields["type"], fields["pid"]
