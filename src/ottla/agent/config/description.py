"""An agent as its file describes it, checked: what `build.py` makes parts of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .options import Options
from .types import PartType


class Problem(NamedTuple):
    """One thing that is wrong: where, which key, the rule, what is there, what to try."""

    where: str  # "flume.conf line 7"
    key: str
    rule: str
    hint: str
    value: str | None = None

    def fact(self) -> str:
        got = "" if self.value is None else f" (got {self.value!r})"
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.key} {self.rule}{got}"

    def __str__(self) -> str:
        return f"{self.fact()}\nTry: {self.hint}" if self.hint else self.fact()


class ConfigError(ValueError):
    """All that is wrong with a description, at once."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Part:
    """A part with its type and its checked options."""

    name: str
    type: PartType
    options: Options
    where: str = field(compare=False)


@dataclass(frozen=True)
class SourcePart(Part):
    channels: tuple[str, ...]
    selector: Part
    interceptors: tuple[Part, ...]


@dataclass(frozen=True)
class SinkPart(Part):
    channel: str


@dataclass(frozen=True)
class GroupPart:
    """Sinks that are one to their channel."""

    name: str
    sinks: tuple[str, ...]
    processor: Part
    where: str = field(compare=False)


@dataclass
class AgentDescription:
    """One agent, in the order of its file. Two are equal if they say the same, wherever."""

    name: str
    sources: dict[str, SourcePart] = field(default_factory=dict)
    channels: dict[str, Part] = field(default_factory=dict)
    sinks: dict[str, SinkPart] = field(default_factory=dict)
    groups: dict[str, GroupPart] = field(default_factory=dict)
    warnings: list[Problem] = field(default_factory=list, compare=False)
