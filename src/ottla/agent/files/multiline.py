"""The multi-line decoder: a stack trace is one event.

An event begins with a line that looks as told, or goes on while lines look as told. The last one of
a file is whole when nothing was written for a while (`flush`): more lines are then another event.
"""

from __future__ import annotations

from ..matching.bounded import Bounded
from .lines import Cut, LineDecoder

LINES_MAX = 500  # Filebeat's limit of a multi-line event
EVENT_BYTES_MAX = 1_000_000


class MultiLineDecoder:
    def __init__(
        self,
        lines: LineDecoder,
        first_line: Bounded[bytes] | None,
        continuation: Bounded[bytes] | None = None,
        lines_max: int = LINES_MAX,
        flush_s: float | None = 1.0,
        event_bytes_max: int = EVENT_BYTES_MAX,
    ) -> None:
        """One of the patterns is given; each must match at the beginning of a line."""
        assert (first_line is None) != (continuation is None)
        self.position = lines.position
        self.flush_s = flush_s
        self._lines = lines
        self._first_line = first_line
        self._continuation = continuation
        self._lines_max = lines_max
        self._bytes_max = event_bytes_max
        self._event: list[bytes] = []
        self._event_bytes = 0
        self._event_end = lines.position

    @property
    def read_to(self) -> int:
        return self._lines.read_to

    @property
    def pending(self) -> bool:
        return bool(self._event)

    @property
    def long_lines(self) -> int:
        return self._lines.long_lines

    @long_lines.setter
    def long_lines(self, count: int) -> None:
        self._lines.long_lines = count

    def _begins_event(self, line: bytes) -> bool:
        if self._first_line is not None:
            return self._first_line.match(line) is not None
        assert self._continuation is not None
        return self._continuation.match(line) is None

    def feed(self, block: bytes) -> Cut:
        return self._group(self._lines.feed(block))

    def _group(self, lines: Cut) -> Cut:
        bodies: list[bytes] = []
        ends: list[int] = []
        for line, end in zip(lines.bodies, lines.ends, strict=True):
            if self._event and (
                len(self._event) >= self._lines_max
                or self._event_bytes + len(line) >= self._bytes_max
                or self._begins_event(line)
            ):
                bodies.append(self._take())
                ends.append(self.position)
            self._event.append(line)
            self._event_bytes += len(line) + 1
            self._event_end = end
        if not self._event and self._lines.position > self.position:
            self.position = self._lines.position  # lines that were dropped
        return Cut(bodies, ends)

    def _take(self) -> bytes:
        event = b"\n".join(self._event)
        self._event = []
        self._event_bytes = 0
        self.position = self._event_end
        return event

    def flush(self) -> Cut:
        """The lines that wait for more."""
        if not self._event:
            return Cut([], [])
        event = self._take()
        return Cut([event], [self.position])

    def finish(self) -> Cut:
        cut = self._group(self._lines.finish())
        last = self.flush()
        self.position = self._lines.position
        return Cut(cut.bodies + last.bodies, [*cut.ends, *last.ends])
