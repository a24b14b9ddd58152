"""The JSON decoder: a line is a document, of which fields can become the body and headers.

Docker and Kubernetes wrap each line of a log into such a document. A line that is none stays as it
is, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..events import bytes_of
from .lines import Cut, LineDecoder

NO_HEADERS: Mapping[str, str] = {}


class JsonDecoder:
    flush_s: float | None = None
    pending = False

    def __init__(
        self, lines: LineDecoder, body: str | None = None, headers: Sequence[str] = ()
    ) -> None:
        """Without a field for the body, the body is the line."""
        self.malformed = 0
        self._lines = lines
        self._body = body
        self._headers = headers

    @property
    def position(self) -> int:
        return self._lines.position

    @property
    def read_to(self) -> int:
        return self._lines.read_to

    @property
    def long_lines(self) -> int:
        return self._lines.long_lines

    @long_lines.setter
    def long_lines(self, count: int) -> None:
        self._lines.long_lines = count

    def feed(self, block: bytes) -> Cut:
        return self._parsed(self._lines.feed(block))

    def finish(self) -> Cut:
        return self._parsed(self._lines.finish())

    def flush(self) -> Cut:
        return Cut([], [])

    def _parsed(self, cut: Cut) -> Cut:
        events = [self._event(line) for line in cut.bodies]
        bodies = [body for body, _ in events]
        headers = [own for _, own in events] if self._headers else None
        return Cut(bodies, cut.ends, cut.starts, headers)

    def _event(self, line: bytes) -> tuple[bytes, Mapping[str, str]]:
        try:
            document = json.loads(line)
            if isinstance(document, dict):
                return self._parts_of(document, line)
        except (ValueError, RecursionError):  # no JSON, or nested too deep
            pass
        self.malformed += 1
        return line, NO_HEADERS

    def _parts_of(
        self, document: Mapping[str, object], line: bytes
    ) -> tuple[bytes, Mapping[str, str]]:
        headers = {name: text_of(document[name]) for name in self._headers if name in document}
        if self._body is None:
            return line, headers
        if self._body not in document:
            self.malformed += 1
            return line, headers
        return bytes_of(text_of(document[self._body])), headers


def text_of(value: object) -> str:
    """A string without its newline at the end; anything else as JSON."""
    return value.removesuffix("\n") if isinstance(value, str) else json.dumps(value)
