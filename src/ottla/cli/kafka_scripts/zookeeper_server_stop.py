"""zookeeper-server-stop.sh: SIGTERM to the ZooKeeper servers of this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence

from ottla.cli.failure import Failure

from .running import entry
from .server_stop import Process, processes
from .zookeeper import SERVER

USAGE = "USAGE: zookeeper-server-stop.sh"


def run(arguments: Sequence[str]) -> int:
    if list(arguments) in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    if arguments:
        raise Failure(f"{arguments[0]!r} is not an option", USAGE.removeprefix("USAGE: "))
    found = servers(processes())
    if not found:
        print("No zookeeper server to stop", file=sys.stderr)
        return 1
    for each in found:
        os.kill(each.pid, signal.SIGTERM)
    return 0


def servers(found: Iterable[Process]) -> list[Process]:
    """Those that run a ZooKeeper server: Java, with its class among the arguments."""
    return [
        each
        for each in found
        if os.path.basename((words := each.arguments.split() or [""])[0]) == "java"
        and SERVER in words[1:]
    ]


main = entry(run)
