"""What a table of a TOML file may hold, in errors that name the option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .options import ConfigError


def known(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in names:
            raise ConfigError(f"{where}: there is no option {name!r}\nTry: {', '.join(names)}")


def checked(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a string", int: "a whole number", bool: "true or false", list: "a list"}
        raise ConfigError(
            f"{where} must be {words.get(kind, 'a table')} (got {value!r:.80})\n"
            "Try: the example in docs/console.md"
        )
    return value


def strings(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f'{where} must be a list of strings\nTry: ["…", "…"]')
    return value
