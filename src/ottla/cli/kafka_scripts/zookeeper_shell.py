"""zookeeper-shell.sh HOST:PORT[/path] [COMMAND]: ZooKeeper's own shell, from its jars."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .options import Done
from .running import entry
from .zookeeper import SHELL, command

USAGE = "USAGE: zookeeper-shell.sh zookeeper_host:port[/path] [args...]"


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    if words and words[0] in ("--help", "-h"):
        print(USAGE)
        return 0
    if not words or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        raise Done(1)
    started = [*command(SHELL, "zookeeper-shell.sh"), "-server", *words]
    os.execv(started[0], started)
    raise AssertionError("execv does not return")


main = entry(run)
