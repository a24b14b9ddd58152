"""All types of parts, and how a name finds its type."""

from __future__ import annotations

from .refused import REFUSED
from .schema_between import INTERCEPTORS, PROCESSORS, SELECTORS
from .schema_channels import CHANNELS
from .schema_sinks import SINKS
from .schema_sources import SOURCES
from .types import PartKind, PartType, RefusedType, plain

TYPES: tuple[PartType, ...] = (
    *SOURCES,
    *CHANNELS,
    *SINKS,
    *INTERCEPTORS,
    *SELECTORS,
    *PROCESSORS,
)
KNOWN: tuple[PartType | RefusedType, ...] = (*TYPES, *REFUSED)
BY_NAME = {(type_.kind, plain(name)): type_ for type_ in KNOWN for name in type_.names()}


def find_type(kind: PartKind, name: str) -> PartType | RefusedType | None:
    return BY_NAME.get((kind, plain(name)))


def type_named(kind: PartKind, name: str) -> PartType:
    """A type that is known to be there."""
    found = BY_NAME[kind, name]
    assert isinstance(found, PartType)
    return found


def names_of(kind: PartKind) -> list[str]:
    """The names of a kind's types, without class names."""
    return [type_.name for type_ in TYPES if type_.kind is kind]
