"""The processes of this machine: from /proc where there is one, else from `ps`.

Containers often have no `ps`, and macOS has no /proc.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """One process; `command` is its whole command line."""

    pid: int
    parent: int
    group: int
    command: str


def processes() -> list[Process]:
    """All that run now, zombies aside."""
    return from_proc() if (PROC / "self" / "stat").exists() else from_ps()


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on, whatever their group."""
    children: dict[int, list[int]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each.pid)
    found, to_look = [], [pid]
    while to_look:
        below = children.get(to_look.pop(), [])
        found += below
        to_look += below
    return found


def from_proc() -> list[Process]:
    found = []
    for directory in PROC.iterdir():
        if not directory.name.isdigit():
            continue
        try:
            # The name in brackets may hold anything, brackets too.
            state, parent, group = (directory / "stat").read_text().rpartition(")")[2].split()[:3]
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue  # it has just ended
        if state != "Z":
            words = command.decode(errors="replace").strip()
            found.append(Process(int(directory.name), int(parent), int(group), words))
    return found


def from_ps() -> list[Process]:
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,pgid=,stat=,args="],
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for line in listed.stdout.splitlines():
        pid, parent, group, state, *words = line.split(None, 4)
        if not state.startswith("Z"):
            found.append(Process(int(pid), int(parent), int(group), "".join(words).strip()))
    return found
