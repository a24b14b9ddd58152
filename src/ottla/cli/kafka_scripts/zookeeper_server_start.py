"""zookeeper-server-start.sh [-daemon] zookeeper.properties: a real ZooKeeper, from its jars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from ottla.cli.failure import Failure

from .options import Done
from .running import entry
from .zookeeper import SERVER, command

USAGE = "USAGE: zookeeper-server-start.sh [-daemon] zookeeper.properties"
OUTPUT = "zookeeper.out"  # as Kafka's script names it, in LOG_DIR or ./logs


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
    directory = os.environ.get("LOG_DIR") or "logs"
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, OUTPUT), "ab") as output:
        subprocess.Popen(
            started,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return 0


main = entry(run)
