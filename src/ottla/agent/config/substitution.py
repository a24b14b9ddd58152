"""`${…}` in values, as Flume's StringSubstitutor replaces it.

`${NAME}` is another key of the file, or else a variable of the environment; `${env:NAME}` the
environment alone, `${sys:NAME}` what `-DNAME=VALUE` sets. `${NAME:-TEXT}` has a default, `$${NAME}`
stands for itself. A `${NAME}` that nobody knows stays as it is, as in Flume: a shell may know it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.settings.properties import Entry

from .description import Problem

REFERENCE = re.compile(r"(\$?)\$\{([^${}]*)\}")
DEPTH_MAX = 20  # a value that refers to itself has no end
PUT_IN_MAX = 1024 * 1024  # characters into one value: ten lines can ask for terabytes


class TooLong(ValueError):
    """What is put into a value is over the limit."""


class Values:
    """Where `${…}` is looked up."""

    def __init__(
        self,
        entries: list[Entry],
        environment: Mapping[str, str],
        system: Mapping[str, str],
    ) -> None:
        self._keys = {entry.name: entry.value.strip() for entry in entries}
        self._environment = environment
        self._system = system

    def look_up(self, name: str) -> str | None:
        if name.startswith("env:"):
            return self._environment.get(name[4:])
        if name.startswith("sys:"):
            return self._system.get(name[4:])
        found = self._keys.get(name)
        return self._environment.get(name) if found is None else found


def substituted(
    entries: list[Entry], environment: Mapping[str, str], system: Mapping[str, str]
) -> tuple[list[Entry], list[Problem]]:
    """The entries with their values replaced, and what is wrong with them."""
    values = Values(entries, environment, system)
    problems: list[Problem] = []
    done = []
    for entry in entries:
        try:
            value, missing = replace(entry.value, values)
        except TooLong:
            rule = f"uses values of more than {PUT_IN_MAX:,} characters"
            problems.append(Problem(entry.where, entry.name, rule, "fewer ${…} within ${…}"))
            continue
        done.append(entry._replace(value=value))
        for name in missing:
            rule = f"uses ${{{name}}}, which is not set"
            shown = name.removeprefix("env:")
            hint = f"export {shown}=VALUE" if name.startswith("env:") else f"-D{name[4:]}=VALUE"
            problems.append(Problem(entry.where, entry.name, rule, hint))
    return done, problems


def replace(text: str, values: Values) -> tuple[str, list[str]]:
    """The text with what is known put in, and the `env:` and `sys:` names that are not set.
    Raises TooLong."""
    missing: dict[str, None] = {}
    put_in = 0

    def one(match: re.Match[str]) -> str:
        nonlocal put_in
        escaped, inside = match.groups()
        if escaped:
            return f"$\0{{{inside}}}"
        name, has_default, default = inside.partition(":-")
        found = values.look_up(name)
        if found is not None:
            put_in += len(found)
            if put_in > PUT_IN_MAX:
                raise TooLong
            return found
        if has_default:
            return default
        if name.startswith(("env:", "sys:")):
            missing[name] = None
        return f"$\0{{{inside}}}"

    for _ in range(DEPTH_MAX):
        replaced = REFERENCE.sub(one, text)
        if replaced == text:
            break
        text = replaced
    return text.replace("$\0{", "${"), list(missing)
