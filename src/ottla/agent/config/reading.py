"""A description from its file: property files as Flume has them, or TOML by the name's end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ottla.settings.properties import Entry, MalformedProperties, parse_properties

from .check import agents_of, described
from .description import AgentDescription, ConfigError, Problem
from .substitution import substituted


def read_entries(paths: list[Path]) -> list[Entry]:
    """The entries of the files, as they are written. What a later file says counts."""
    entries: list[Entry] = []
    for path in paths:
        try:
            text = path.read_text("utf-8-sig")  # editors of Windows begin with a mark
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise wrong(str(path), f"cannot be read: {reason}", "the path of a file") from None
        except UnicodeDecodeError as error:
            rule = f"must be UTF-8, and byte {error.start} is not"
            raise wrong(str(path), rule, f"iconv -f latin1 -t utf8 {path}") from None
        if path.suffix == ".toml":
            from .toml_files import parse_toml

            entries += parse_toml(text, str(path))
            continue
        try:
            entries += parse_properties(text, str(path))
        except MalformedProperties as error:
            place, _, rule = str(error).partition(": ")
            raise wrong(place, rule, "a backslash of a regular expression doubled") from None
    return entries


def agents_in(paths: list[Path]) -> list[str]:
    """The names of the agents that the files describe. Raises ConfigError if there are none."""
    agents = agents_of(read_entries(paths))
    return agents or [chosen(agents, None, str(paths[-1]))]


def read_agent(
    paths: list[Path],
    agent: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    system: Mapping[str, str] | None = None,
) -> AgentDescription:
    """The checked description of an agent; of the only one, where no name is given.

    Raises ConfigError with all that is wrong.
    """
    written = read_entries(paths)
    entries, unset = substituted(
        written, os.environ if environment is None else environment, system or {}
    )
    name = chosen(agents_of(entries), agent, str(paths[-1]))
    unset = [problem for problem in unset if problem.key.startswith(f"{name}.")]
    if unset:
        raise ConfigError(unset)
    return described(entries, name)


def chosen(agents: list[str], wanted: str | None, file: str) -> str:
    known = ", ".join(agents)
    if not agents:
        raise wrong(file, "describes no agent", "a1.sources = r1, a1.channels = c1, a1.sinks = k1")
    if wanted is None:
        if len(agents) > 1:
            raise wrong(file, f"describes several agents: {known}", f"--name {agents[0]}")
        return agents[0]
    if wanted not in agents:
        raise wrong(file, f"describes {known}, and not {wanted}", f"--name {agents[0]}")
    return wanted


def wrong(file: str, rule: str, hint: str) -> ConfigError:
    return ConfigError([Problem("", file, rule, hint)])
