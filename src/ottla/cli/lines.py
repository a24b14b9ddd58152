"""Lines of text as records: `headers<TAB>key<TAB>value`, each part only when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

Header = tuple[str, bytes | None]


class LineProblem(ValueError):
    """A line that is not what it should be."""


class ParsedLine(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class LineParser:
    """The properties of Kafka's line reader: `parse.key`, `key.separator` and so on."""

    NAMES = (
        "parse.key", "key.separator", "parse.headers", "headers.delimiter", "headers.separator",
        "headers.key.separator", "ignore.error", "null.marker",
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.parse_key = is_true(properties.get("parse.key"))
        self.parse_headers = is_true(properties.get("parse.headers"))
        self.ignore_error = is_true(properties.get("ignore.error"))
        self.key_separator = properties.get("key.separator", "\t")
        self.headers_delimiter = properties.get("headers.delimiter", "\t")
        self.headers_separator = properties.get("headers.separator", ",")
        self.header_key_separator = properties.get("headers.key.separator", ":")
        self.null_marker = properties.get("null.marker")
        self.number = 0
        self._check()

    def _check(self) -> None:
        named = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.header_key_separator,
        }
        pairs = [(a, b) for a in named for b in named if a < b]
        for first, second in pairs:
            if named[first] == named[second]:
                raise LineProblem(f"{first} and {second} may not be equal")
        named["key.separator"] = self.key_separator
        for name, value in named.items():
            if value == self.null_marker:
                raise LineProblem(f"null.marker and {name} may not be equal")

    def parse(self, line: str) -> ParsedLine:
        """One line, without its end."""
        self.number += 1
        start = 0
        headers = self._part(
            self.parse_headers, line, 0, self.headers_delimiter, "headers delimiter"
        )
        if headers is not None:
            start = len(headers) + len(self.headers_delimiter)
        key = self._part(self.parse_key, line, start, self.key_separator, "key separator")
        if key is not None:
            start += len(key) + len(self.key_separator)
        value = line[start:]
        pairs = [] if headers is None or headers == self.null_marker else self._headers(headers)
        return ParsedLine(self._bytes(key), self._bytes(value), pairs)

    def _part(self, wanted: bool, line: str, start: int, mark: str, name: str) -> str | None:
        if not wanted:
            return None
        end = line.find(mark, start)
        if end < 0:
            if self.ignore_error:
                return None
            raise LineProblem(f"No {name} found on line number {self.number}: '{line}'")
        return line[start:end]

    def _headers(self, text: str) -> list[Header]:
        found: list[Header] = []
        for pair in re.split(self.headers_separator, text):
            name, separator, value = pair.partition(self.header_key_separator)
            if not separator:
                if self.ignore_error:
                    found.append((pair, None))
                    continue
                raise LineProblem(
                    f"No header key separator found in pair '{pair}' on line number {self.number}"
                )
            if name == self.null_marker:
                raise LineProblem(
                    f"Header keys should not be equal to the null marker '{self.null_marker}' as "
                    "they can't be null"
                )
            found.append((name, self._bytes(value)))
        return found

    def _bytes(self, text: str | None) -> bytes | None:
        return None if text is None or text == self.null_marker else text.encode()


def is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
