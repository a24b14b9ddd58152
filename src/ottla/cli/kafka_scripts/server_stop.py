"""kafka-server-stop.sh [stop] [--node-id=ID]: SIGTERM to the servers of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.cli.failure import Failure

from .running import entry

USAGE = "USAGE: kafka-server-stop.sh [stop] [--node-id=ID] [--process-role=broker]"
# An interpreter, or the script, that runs `ottla server` or Kafka's start script.
SERVER = re.compile(
    r"(?:\S*python\S*\s+)?(?:-[uBEI]\s+)*"
    r"(?:-m ottla|(?:\S*/)?ottla|(?:\S*/)?kafka-server-start\.sh)\s+(.*)"
)


class Process(NamedTuple):
    """A running server."""

    pid: int
    arguments: str


def run(arguments: Sequence[str]) -> int:
    node_id = None
    for word in arguments:
        name, _, value = word.partition("=")
        if word in ("--help", "-h"):
            print(USAGE)
            return 0
        if name == "--node-id" and value.isdigit():
            node_id = int(value)
        elif name == "--process-role" and value in ("broker", "controller"):
            pass  # a server is both
        elif word != "stop":
            raise Failure(f"{word!r} is not an option", USAGE.removeprefix("USAGE: "))
    found = [each for each in servers(processes()) if node_id in (None, node_id_of(each))]
    if not found:
        print("No kafka server to stop", file=sys.stderr)
        return 1
    for each in found:
        os.kill(each.pid, signal.SIGTERM)
    return 0


def processes() -> list[Process]:
    """All processes that this user may see."""
    done = subprocess.run(
        ["ps", "axww", "-o", "pid=,args="], capture_output=True, text=True, check=False
    )
    found = []
    for line in done.stdout.splitlines():
        pid, _, words = line.strip().partition(" ")
        if pid.isdigit() and int(pid) != os.getpid():
            found.append(Process(int(pid), words.strip()))
    return found


def servers(found: Iterable[Process]) -> list[Process]:
    """Those that run a server."""
    chosen = []
    for each in found:
        match = SERVER.fullmatch(each.arguments)
        if match is not None and (
            match[1].split()[:1] == ["server"] or "kafka-server-start.sh" in each.arguments
        ):
            chosen.append(each)
    return chosen


def node_id_of(process: Process) -> int:
    """What its command line says, or the file that it names; 1 is the default."""
    match = re.search(r"(?:node|broker)\.id=(\d+)", process.arguments)
    if match is None:
        named = re.search(r"(?:--config|kafka-server-start\.sh)\s+(\S+)", process.arguments)
        text = ""
        if named is not None:
            try:
                with open(named[1], encoding="utf-8") as file:
                    text = file.read()
            except OSError:
                pass
        match = re.search(r"^\s*(?:node|broker)\.id\s*=\s*(\d+)", text, re.MULTILINE)
    return 1 if match is None else int(match[1])


main = entry(run)
