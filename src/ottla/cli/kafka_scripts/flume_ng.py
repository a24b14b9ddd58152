"""flume-ng agent -n NAME -c CONF -f FILE [-Dname=value]: `ottla agent run`, for those who come from
Flume.

`flume-env.sh` of the conf directory is sourced, as Flume's script does it: what it exports is what
`${env:NAME}` finds. Options of the JVM have no meaning here.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla import __version__
from ottla.cli.failure import Failure
from ottla.cli.hangup import hang_ups

from .options import Done
from .running import entry

FLUME_VERSION = "1.11.0"  # whose options these are
HELP = """\
Usage: flume-ng <command> [options]...

commands:
  help                      display this help text
  agent                     run an agent
  version                   show the version

agent options:
  --name,-n <name>          the name of this agent (required)
  --conf-file,-f <file>     specify a config file (required); what a later one says counts
  --conf,-c <conf>          the directory of flume-env.sh
  --no-reload-conf          do not reload config file if changed
  --dryrun,-d               do not start, just print the command
  -Dproperty=value          what ${sys:property} stands for
  --data-dir <dir>          where the agent keeps its id and positions
  --instance <id>           the id of this instance
  --help,-h                 display help text
"""
EXAMPLE = "flume-ng agent -n a1 -c conf -f jobs/flume-kafka.conf"
NOT_THERE = {
    "avro-client": "Avro's remote calls are not served here",
    "tool": "the files of Flume's file channel are not read here",
}
# name -> (its short forms, whether a value follows)
OPTIONS = {
    "name": (("n",), True),
    "conf-file": (("f",), True),
    "conf": (("c",), True),
    "no-reload-conf": ((), False),
    "dryrun": (("d",), False),
    "help": (("h",), False),
    "data-dir": ((), True),
    "instance": ((), True),
    "classpath": (("C",), True),
    "plugins-path": ((), True),
    "poll-interval": (("i",), True),
    "zkConnString": (("z",), True),
    "zkBasePath": (("p",), True),
    "conf-uri": (("u",), True),
    "conf-provider": (("prov",), True),
    "conf-user": (("user",), True),
    "conf-password": (("pwd",), True),
    "auth-provider": (("a",), True),
    "backup-directory": (("b",), True),
}
BY_WORD = {word: name for name, (shorts, _) in OPTIONS.items() for word in (name, *shorts)}
REFUSED = {
    "zkConnString": "descriptions are not read from ZooKeeper here",
    "zkBasePath": "descriptions are not read from ZooKeeper here",
    "conf-uri": "descriptions are read from files here",
    "conf-provider": "Java's classes do not run here",
    "auth-provider": "Java's classes do not run here",
}
JVM = ("-X", "-agentlib", "-agentpath", "-javaagent")
LEVELS = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error"}


class Given(NamedTuple):
    values: dict[str, list[str]]
    properties: list[str]  # name=value


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    command = words.pop(0) if words else ""
    if command in ("help", "--help", "-h"):
        print(HELP, end="")
        return 0
    if command == "version":
        print(f"Flume {FLUME_VERSION} (ottla {__version__})")
        return 0
    if command in NOT_THERE:
        raise Failure(f"flume-ng {command}: {NOT_THERE[command]}", EXAMPLE)
    if command not in ("agent", "node"):
        print(f"Error: Unknown or unspecified command '{command}'\n", file=sys.stderr)
        print(HELP, end="", file=sys.stderr)
        raise Done(1)
    hang_ups.keep()  # sourcing flume-env.sh may take a while
    given = parsed(words)
    if "help" in given.values:
        print(HELP, end="")
        return 0
    for directory in given.values.get("conf", [])[-1:]:
        os.environ.update(exported(os.path.join(directory, "flume-env.sh")))
    given.properties[:0] = java_properties(os.environ)
    ottla = agent_arguments(given)
    if "dryrun" in given.values:
        print(shlex.join(["ottla", *ottla]))
        return 0
    from ottla.cli.main import run as run_ottla

    return run_ottla(ottla)


def java_properties(environment: Mapping[str, str]) -> list[str]:
    """What is said to Java, as `-Dname=value`; the command line counts more."""
    said = f"{environment.get('JAVA_OPTS', '')} {environment.get('FLUME_JAVA_OPTS', '')}"
    return [word[2:] for word in said.split() if word.startswith("-D")]


def parsed(words: list[str]) -> Given:
    """As Flume's script and its parser do: `-n a1`, `--name a1`, `--name=a1`, `-name a1`."""
    given = Given({}, [])
    while words:
        word = words.pop(0)
        if word.startswith("-D"):
            given.properties.append(word[2:])
            continue
        if word.startswith(JVM):
            continue
        name, equals, attached = word.lstrip("-").partition("=")
        option = BY_WORD.get(name) if word.startswith("-") else None
        if option is None:
            raise Failure(f"flume-ng agent: {word!r} is not an option", EXAMPLE)
        found = given.values.setdefault(option, [])
        if OPTIONS[option][1]:
            if not equals and not words:
                raise Failure(f"flume-ng agent: {word} requires an argument", EXAMPLE)
            found.append(attached if equals else words.pop(0))
    return given


def agent_arguments(given: Given) -> list[str]:
    """What `ottla` is called with."""
    for name, why in REFUSED.items():
        if name in given.values:
            raise Failure(f"flume-ng agent --{name}: {why}", EXAMPLE)
    for name in ("name", "conf-file"):
        if not given.values.get(name):
            raise Failure(f"flume-ng agent: --{name} is missing", EXAMPLE)
    for name in ("classpath", "plugins-path"):
        if name in given.values:
            print(f"Warning: --{name} has no effect: there is no Java here", file=sys.stderr)
    ottla = ["agent", "run", *given.values["conf-file"], "--name", given.values["name"][-1]]
    for name in ("data-dir", "instance"):
        if name in given.values:
            ottla += [f"--{name}", given.values[name][-1]]
    if "no-reload-conf" in given.values:
        ottla.append("--no-reload-conf")
    for pair in given.properties:
        name, _, value = pair.partition("=")
        level = LEVELS.get(value.split(",")[0].strip().upper())
        if name == "flume.root.logger" and level is not None:
            ottla += ["--log-level", level]
        else:
            ottla += ["-D", pair]
    return ottla


def exported(script: str) -> dict[str, str]:
    """The environment after a script was sourced; empty if there is none."""
    if not os.path.isfile(script):
        return {}
    command = [
        "bash",
        "-c",
        'source "$1" >&2 && export JAVA_OPTS FLUME_JAVA_OPTS && env -0',
        "flume-env.sh",
        script,
    ]
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"cannot source {script}: {error}", "flume-ng agent without --conf") from None
    pairs = (item.partition(b"=") for item in output.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


main = entry(run)
