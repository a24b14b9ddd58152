"""kafka-server-start.sh [-daemon] server.properties [--override name=value]: `ottla server`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ottla.cli.failure import Failure

from .options import Done
from .running import entry, start_in_background

USAGE = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"
OUTPUT = "kafkaServer.out"  # as Kafka's script names it


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    if words and words[0] in ("--help", "-h"):
        print(USAGE)
        return 0
    daemon = words[:1] == ["-daemon"]
    command = server_arguments(words[1:] if daemon else words)
    if daemon:
        return start_in_background([sys.executable, "-m", "ottla", *command], OUTPUT)
    from ottla.cli.main import run as run_ottla

    return run_ottla(command)


def server_arguments(words: Sequence[str]) -> list[str]:
    """What `ottla` is called with."""
    if not words or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        raise Done(1)
    if not os.path.isfile(words[0]):
        raise Failure(f"there is no file {words[0]}", "kafka-server-start.sh server.properties")
    command = ["server", "--config", words[0]]
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word == "--override" and rest:
            command += ["--set", rest.pop(0)]
        elif word.startswith("--override="):
            command += ["--set", word.removeprefix("--override=")]
        else:
            raise Failure(f"{word!r} is not an option", USAGE.removeprefix("USAGE: "))
    return command


main = entry(run)
