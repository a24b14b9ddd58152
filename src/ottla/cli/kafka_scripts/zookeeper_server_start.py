"""zookeeper-server-start.sh [-daemon] zookeeper.properties: a real ZooKeeper, from its jars."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ottla.cli.failure import Failure

from .options import Done
from .running import entry, start_in_background
from .zookeeper import SERVER, command

USAGE = "USAGE: zookeeper-server-start.sh [-daemon] zookeeper.properties"
OUTPUT = "zookeeper.out"  # as Kafka's script names it


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    if words and words[0] in ("--help", "-h"):
        print(USAGE)
        return 0
    daemon = words[:1] == ["-daemon"]
    words = words[1:] if daemon else words
    if not words or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        raise Done(1)
    if not os.path.isfile(words[0]):
        raise Failure(
            f"there is no file {words[0]}", "zookeeper-server-start.sh zookeeper.properties"
        )
    started = [*command(SERVER, "zookeeper-server-start.sh"), *words]
    if not daemon:
        os.execv(started[0], started)
    return start_in_background(started, OUTPUT)


main = entry(run)
