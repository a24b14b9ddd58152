"""The same description as TOML: tables are the dots of a property file.

    [a1.sources.r1]
    type = "taildir"
    channels = ["c1"]
    filegroups.f1 = "/var/log/app/.*log"

Lists that only repeat the names of tables are left out: `sources`, `channels`, `sinks`,
`sinkgroups`, `interceptors`, `filegroups`, `serializers`. What is both a value and a table in a
property file (`deserializer`) has its value under `type`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from ottla.settings.properties import Entry

from .description import ConfigError, Problem
from .options import Kind
from .schema import TYPES

AGENT_LISTS = ("sources", "channels", "sinks", "sinkgroups")
# Names of options whose value is the list of the tables below them.
LISTS_OF_TABLES = ("interceptors", "filegroups", "serializers")
# Options that have options below them.
WITH_TYPE = ("deserializer", "handler", "sink.serializer", "sink.pathManager", "processor.selector")
# Last words of options whose items have commas between them.
COMMA_LISTS = {"servers"} | {
    option.name.rpartition(".")[2]
    for type_ in TYPES
    for option in type_.options
    if option.kind is Kind.ITEMS
}
KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
DOTTED = rf"{KEY}(?:\s*\.\s*{KEY})*"
HEADER = re.compile(rf"\s*\[\s*({DOTTED})\s*\]")
ASSIGNMENT = re.compile(rf"\s*({DOTTED})\s*=\s*(.*)")
WORD = re.compile(KEY)


def parse_toml(text: str, file_name: str) -> list[Entry]:
    """The entries that a property file would have. Raises ConfigError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = Problem("", file_name, f"is not TOML: {error}", "https://toml.io/en/v1.0.0")
        raise ConfigError([problem]) from None
    lines = line_numbers(text)
    found = []
    for path, value in flattened(tables):
        name = ".".join(path)
        if isinstance(value, ArrayOfTables):
            rule = "must be a table, not an array of tables"
            raise ConfigError([Problem(array_place(text, file_name), name, rule, f"[{name}]")])
        number = next(
            (lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines),
            1,
        )
        found.append(Entry(name, value, f"{file_name} line {number}"))
    return found


class ArrayOfTables:
    """In place of a value: `[[NAME]]`, which no part of an agent is."""


def array_place(text: str, file_name: str) -> str:
    """The line of the first one."""
    lines = enumerate(text.split("\n"), start=1)
    number = next((number for number, line in lines if line.lstrip().startswith("[[")), None)
    return file_name if number is None else f"{file_name} line {number}"


def flattened(
    table: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[Any, str | ArrayOfTables]]:
    """Paths and values; lists of names for tables that need one, before what is below them."""
    own_lists = AGENT_LISTS if len(path) == 1 else LISTS_OF_TABLES
    for key, value in table.items():
        inner = (*path, key)
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield inner, ArrayOfTables()
            continue
        if not isinstance(value, dict):
            yield named(inner), value_text(value, key)
            continue
        if key in own_lists:
            yield named(inner), " ".join(value)
        yield from flattened(value, inner)


def named(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path without `type` behind an option that has options below it."""
    if path[-1] == "type":
        before = ".".join(path[:-1])
        if any(before == word or before.endswith(f".{word}") for word in WITH_TYPE):
            return path[:-1]
    return path


def value_text(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ("," if key in COMMA_LISTS else " ").join(value_text(item, key) for item in value)
    return str(value)


def line_numbers(text: str) -> dict[tuple[str, ...], int]:
    """Where each key and each table begins. The text is known to be TOML."""
    found: dict[tuple[str, ...], int] = {}
    prefix: tuple[str, ...] = ()
    closing = ""  # of a string of several lines
    depth = 0  # of an array of several lines
    for number, line in enumerate(text.split("\n"), start=1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if depth:
            depth += brackets(line)
            continue
        if header := HEADER.match(line):
            prefix = words_of(header[1])
            found.setdefault(prefix, number)
        elif assignment := ASSIGNMENT.match(line):
            found.setdefault(named((*prefix, *words_of(assignment[1]))), number)
            rest = assignment[2]
            for quote in ('"""', "'''"):
                if rest.startswith(quote) and quote not in rest[3:]:
                    closing = quote
            if rest.startswith("["):
                depth = brackets(rest)
    return found


def words_of(dotted: str) -> tuple[str, ...]:
    return tuple(word[1:-1] if word[0] in "\"'" else word for word in WORD.findall(dotted))


def brackets(line: str) -> int:
    """How many arrays stay open behind a line."""
    bare = re.sub(r""""(?:[^"\\]|\\.)*"|'[^']*'|#.*""", "", line)
    return bare.count("[") - bare.count("]")
