"""Who sent a request: a kind and a name, written `User:alice`."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


def user(name: str) -> Principal:
    return Principal("User", name)


def parse_principal(text: str) -> Principal:
    """Raises ValueError, in Kafka's words."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise ValueError(
            f"expected a string in format principalType:principalName but got {text!r}"
        )
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """`super.users`: principals between semicolons, because a name may have commas."""
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())
