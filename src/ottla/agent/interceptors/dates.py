"""Times in text, by a pattern of Java's (`yyyy-MM-dd HH:mm:ss,SSS`), as milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

LETTERS = {
    "y": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "S": "%f",
    "Z": "%z", "a": "%p", "D": "%j",
}  # fmt: skip
WORDS = {"yy": "%y", "MMM": "%b", "MMMM": "%B", "EEE": "%a", "EEEE": "%A", "E": "%a"}
TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)")


def python_format(java: str) -> str:
    """The pattern for strptime. Raises ValueError for letters that have no counterpart."""
    parts = []
    for token in TOKEN.finditer(java):
        quoted, letter, other = token.groups()
        if letter is None:
            text = other if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(text.replace("%", "%%"))
            continue
        directive = WORDS.get(token[0]) or LETTERS.get(letter)
        if directive is None:
            raise ValueError(f"{token[0]} is not understood in {java!r}")
        parts.append(directive)
    return "".join(parts)


def milliseconds_of(java: str) -> Callable[[str], str]:
    """What turns a time into milliseconds; local time where it has no zone. It raises ValueError
    for a text that is no such time."""
    form = python_format(java)
    return lambda text: str(int(datetime.strptime(text, form).timestamp() * 1000))
