"""Descriptions for tests: a small agent, and what a changed line of it gives."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.agent.config.check import described
from ottla.agent.config.description import AgentDescription, ConfigError
from ottla.agent.config.substitution import substituted
from ottla.settings.properties import Entry, parse_properties

SMALL = """\
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = seq
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = logger
a1.sinks.k1.channel = c1
"""


def checked(
    entries: list[Entry], environment: Mapping[str, str] | None = None, name: str = "a1"
) -> AgentDescription:
    replaced, problems = substituted(entries, environment or {}, {})
    if problems:
        raise ConfigError(problems)
    return described(replaced, name)


def agent_of(text: str, environment: Mapping[str, str] | None = None) -> AgentDescription:
    return checked(parse_properties(text, "f.conf"), environment)


def problems_of(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    try:
        agent_of(text, environment)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def warnings_of(text: str) -> list[str]:
    return [warning.fact() for warning in agent_of(text).warnings]


def with_source(*lines: str) -> str:
    """The small agent with another source."""
    return small_with("a1.sources.r1.", "a1.sources.r1.channels = c1", lines)


def with_channel(*lines: str) -> str:
    return small_with("a1.channels.c1.", "", lines)


def with_sink(*lines: str) -> str:
    return small_with("a1.sinks.k1.", "a1.sinks.k1.channel = c1", lines)


def small_with(prefix: str, kept: str, lines: tuple[str, ...]) -> str:
    others = [line for line in SMALL.splitlines() if not line.startswith(prefix)]
    return "\n".join([*others, kept, *(prefix + line for line in lines)])
