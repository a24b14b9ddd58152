"""Types of parts: their names in Flume, their options, and what they are here.

A type is found by its name in any case, by its class name, and by that of its builder
(`org.apache.flume.interceptor.HostInterceptor$Builder`), as Flume finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from .options import Option, Options


class PartKind(Enum):
    SOURCE = "source"
    CHANNEL = "channel"
    SINK = "sink"
    INTERCEPTOR = "interceptor"
    SELECTOR = "selector"
    PROCESSOR = "sink processor"


class Complaint(NamedTuple):
    """What is wrong between the options of one part."""

    option: str
    rule: str
    hint: str


def nothing_between(options: Options) -> Iterable[Complaint]:
    return ()


@dataclass(frozen=True, eq=False)
class PartType:
    """A type of source, channel, sink …, with its options."""

    kind: PartKind
    name: str
    classes: tuple[str, ...]  # Java's, the first is Flume's own for the name
    doc: str
    options: tuple[Option, ...] = ()
    aliases: tuple[str, ...] = ()
    # Former names of options, and those that people write in error: the right one wins.
    renamed: dict[str, str] = field(default_factory=dict)
    between: Callable[[Options], Iterable[Complaint]] = nothing_between
    replays: bool = False  # of a source: it can read again from a position
    keeps_positions: bool = False  # of a sink: in one transaction with what it delivers
    batch_option: str = ""  # of a sink: how many events it takes at a time
    differs: str = ""  # from Flume, for the documentation

    def option(self, name: str) -> Option | None:
        """The option of that name, or the family that it belongs to."""
        for option in self.options:
            if option.name == name:
                return option
        for option in self.options:
            if option.name.endswith(".") and name.startswith(option.name) and name != option.name:
                return option
        return None

    def names(self) -> Iterator[str]:
        yield self.name
        yield from self.aliases
        yield from self.classes


class RefusedType(NamedTuple):
    """A type of Flume's that is not here: why, and what to use instead."""

    kind: PartKind
    name: str
    classes: tuple[str, ...]
    why: str
    instead: str

    def names(self) -> Iterator[str]:
        yield self.name
        yield from self.classes


def plain(name: str) -> str:
    """What of a type's name counts."""
    return name.strip().removesuffix("$Builder").lower()
