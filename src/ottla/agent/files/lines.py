"""The LINE decoder: bytes of a stream into lines, a block at a time.

A line is an event when its newline is there, be it hours later. One that is longer than the limit
is cut, dropped or split, as told; it is counted, and its bytes beyond the limit are not held.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import accumulate, islice
from typing import NamedTuple, Protocol

LINE_BYTES_MAX = 1_000_000  # a record of them fits into Kafka's max.request.size


class Cut(NamedTuple):
    """Events cut out of a stream of bytes."""

    bodies: list[bytes]
    ends: Sequence[int]  # the offset behind each
    starts: list[int] | None = None  # None: each event begins where the one before it ends
    headers: list[Mapping[str, str]] | None = None  # of single events


class LongLines(Enum):
    """What becomes of a line over the limit."""

    CUT = "cut"  # its first bytes are the event
    DROP = "drop"
    SPLIT = "split"  # several events, as Flume's LINE deserializer does


class Decoder(Protocol):
    """Makes events of the bytes of one stream, which are fed to it in order."""

    long_lines: int  # how many were over the limit

    @property
    def position(self) -> int:
        """Behind the last event."""

    @property
    def read_to(self) -> int:
        """Behind the last byte that was fed."""

    @property
    def flush_s(self) -> float | None:
        """After so long without more, `flush` gives what is pending. None: never."""

    @property
    def pending(self) -> bool: ...

    def flush(self) -> Cut: ...

    def feed(self, block: bytes) -> Cut:
        """The events that are complete with this block, which begins at `read_to`."""

    def finish(self) -> Cut:
        """The event at the end of a file that will not grow any more."""


def ends_of(lengths: Iterable[int], start: int) -> Sequence[int]:
    """The offsets behind lines of these lengths that follow each other, newlines counted. As an
    array they have a fifth of the bytes: they last as long as the events."""
    return array("q", islice(accumulate(map((1).__add__, lengths), initial=start), 1, None))


def without_returns(bodies: list[bytes]) -> list[bytes]:
    """A line from Windows ends in CR LF."""
    return [body[:-1] if body.endswith(b"\r") else body for body in bodies]


def split_point(line: bytes, limit: int) -> int:
    """Where a piece of at most `limit` bytes ends: not inside a character of UTF-8."""
    point = limit
    while point > limit - 4 and point > 1 and line[point] & 0xC0 == 0x80:
        point -= 1
    return point if line[point] & 0xC0 != 0x80 else limit


class LineDecoder:
    flush_s: float | None = None  # a line is whole with its newline
    pending = False

    def __init__(
        self,
        position: int = 0,
        line_bytes_max: int = LINE_BYTES_MAX,
        policy: LongLines = LongLines.CUT,
    ) -> None:
        self.position = position
        self.read_to = position
        self.long_lines = 0
        self._limit = line_bytes_max
        self._policy = policy
        self._unfinished: list[bytes] = []  # the beginning of the next line
        self._held = 0  # bytes in there; fewer than the line has if it is over the limit

    def feed(self, block: bytes) -> Cut:
        start = self.position
        line_read = self.read_to - start  # of the unfinished line
        self.read_to += len(block)
        last = block.rfind(b"\n")
        if last < 0:
            self._hold(block)
            return self._split_unfinished()
        if line_read:
            first = block.index(b"\n")
            self._hold(block[:first])
            bodies = [b"".join(self._unfinished)]
            lengths = [line_read + first]
            if first < last:
                rest = block[first + 1 : last].split(b"\n")
                bodies += rest
                lengths += map(len, rest)
        else:
            bodies = block[:last].split(b"\n")
            lengths = list(map(len, bodies))
        self._unfinished = []
        self._held = 0
        ends = ends_of(lengths, start)
        self.position = ends[-1]
        starts = None
        if len(block) + line_read > self._limit and max(lengths) > self._limit:
            bodies, ends, starts = self._limited(bodies, lengths, ends)
        if b"\r" in block:
            bodies = without_returns(bodies)
        if last + 1 < len(block):
            self._hold(block[last + 1 :])
        return Cut(bodies, ends, starts)

    def _hold(self, piece: bytes) -> None:
        """Keeps what the event may need: one byte over the limit says that there was more."""
        if self._policy is not LongLines.SPLIT:
            piece = piece[: max(0, self._limit + 1 - self._held)]
        if piece:
            self._unfinished.append(piece)
            self._held += len(piece)

    def _split_unfinished(self) -> Cut:
        """Pieces of a line that goes on, so that no more than the limit is held."""
        if self._policy is not LongLines.SPLIT or self._held <= self._limit:
            return Cut([], [])
        pieces = self._pieces(b"".join(self._unfinished))
        rest = pieces.pop()
        self.long_lines += 1
        self._unfinished = [rest]
        self._held = len(rest)
        ends = list(accumulate(map(len, pieces), initial=self.position))[1:]
        self.position = ends[-1]
        return Cut(pieces, ends)

    def _pieces(self, line: bytes) -> list[bytes]:
        pieces = []
        while len(line) > self._limit:
            point = split_point(line, self._limit)
            pieces.append(line[:point])
            line = line[point:]
        return [*pieces, line]

    def _limited(
        self, bodies: list[bytes], lengths: list[int], ends: Sequence[int]
    ) -> tuple[list[bytes], list[int], list[int]]:
        """Bodies, ends and starts when some line is over the limit."""
        kept: list[bytes] = []
        kept_ends: list[int] = []
        starts: list[int] = []
        for body, length, end in zip(bodies, lengths, ends, strict=True):
            pieces = [body]
            if length > self._limit:
                self.long_lines += 1
                if self._policy is LongLines.DROP:
                    continue
                pieces = self._pieces(body)
                if self._policy is LongLines.CUT:
                    del pieces[1:]
            piece_starts = list(accumulate(map(len, pieces), initial=end - 1 - length))[:-1]
            kept += pieces
            starts += piece_starts
            kept_ends += [*piece_starts[1:], end]
        return kept, kept_ends, starts

    def flush(self) -> Cut:
        return Cut([], [])

    def finish(self) -> Cut:
        length = self.read_to - self.position
        if length == 0:
            return Cut([], [])
        bodies = [b"".join(self._unfinished)]
        ends = [self.read_to]
        starts = None
        self._unfinished = []
        self._held = 0
        if length > self._limit:
            # There is no newline behind it to count.
            bodies, ends, starts = self._limited(bodies, [length], [self.read_to + 1])
            ends = [min(end, self.read_to) for end in ends]
        self.position = self.read_to
        return Cut(without_returns(bodies), ends, starts)
