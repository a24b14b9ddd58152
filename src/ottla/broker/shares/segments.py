"""Segments of a share partition's window: records and their kinds, one byte for each. Pure.

Records of the same kind are alike in all that is known of them. A segment has the kinds of its
records, and `cells`, which say by one byte for each record which of them it is. Where all records
are of one kind there are no cells, however many they are; else a segment has at most
`SEGMENT_MAX` records, so their kinds can be told apart by a byte. What becomes of records is
decided once for each kind that there is; the bytes are changed all together, by `translate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from operator import attrgetter
from typing import NamedTuple

from ottla.broker.shares.ranges import is_end

SEGMENT_MAX = 256
# No change of state is being written.
NOTHING = -1

first_of = attrgetter("first")


class Kind(NamedTuple):
    """What is known of a record."""

    state: int
    deliveries: int
    member: str = ""  # who has acquired it, until when
    deadline_ms: int = 0
    next: int = NOTHING  # the state in which it is once that is durable
    note: int = 0  # the number of the acknowledgement which said so
    rejected: bool = False  # by a member


class Run(NamedTuple):
    """Records one after the other that are of the same kind."""

    first: int
    last: int
    kind: Kind


class Noted:
    """What is to be written of an acknowledgement: records somewhere from `first` to `last`."""

    __slots__ = ("first", "last", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.first, self.last = 0, -1

    def __bool__(self) -> bool:
        return self.first <= self.last

    def widen(self, first: int, last: int) -> None:
        self.first, self.last = (
            (min(self.first, first), max(self.last, last)) if self else (first, last)
        )


class Segment:
    """Records from `first` to `last`."""

    __slots__ = ("batch", "cells", "first", "kinds", "last")

    def __init__(
        self,
        first: int,
        last: int,
        kinds: list[Kind],
        batch: tuple[int, int],
        cells: bytes | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.kinds = kinds
        # First and last offset of what was acquired at once when this was first acquired.
        self.batch = batch
        self.cells = cells

    def __repr__(self) -> str:
        return f"<{self.first}..{self.last} {self.kinds}>"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_done(self) -> bool:
        return all(is_end(each.state) for each in self.kinds)

    def has(self, wanted: Callable[[Kind], bool]) -> bool:
        return any(map(wanted, self.kinds))

    def count(self, wanted: Callable[[Kind], bool]) -> int:
        """How many records are of such kinds."""
        if self.cells is None:
            return self.size if wanted(self.kinds[0]) else 0
        return sum(
            self.cells.count(number) for number, each in enumerate(self.kinds) if wanted(each)
        )

    def where(self, wanted: Callable[[Kind], bool]) -> bytes:
        """One for each record of such a kind, zero for the others."""
        table = bytes(map(wanted, self.kinds))
        if self.cells is None:
            return table * self.size
        return self.cells.translate(table.ljust(256, b"\0"))

    def first_not(self, wanted: Callable[[Kind], bool]) -> int | None:
        """The offset of the first record that is of no such kind."""
        if all(map(wanted, self.kinds)):
            return None
        return self.first if self.cells is None else self.first + self.where(wanted).find(0)

    def runs(self) -> Iterator[Run]:
        if self.cells is None:
            yield Run(self.first, self.last, self.kinds[0])
            return
        kinds = self.kinds
        for first, last, number in runs_of(self.cells, self.first):
            yield Run(first, last, kinds[number])

    # ---- changes ---------------------------------------------------------------------------------

    def split(self, offset: int) -> Segment:
        """Let it end before `offset`; another one with the rest."""
        at = offset - self.first
        cells = self.cells
        rest = Segment(offset, self.last, self.kinds, self.batch)
        self.last = offset - 1
        if cells is not None:
            kinds = self.kinds
            self._become(kinds, cells[:at])
            rest._become(kinds, cells[at:])
        return rest

    def change(self, after: Callable[[Kind], Kind]) -> None:
        """Let all records be of another kind, which follows from the one they are of."""
        kinds = list(map(after, self.kinds))
        if kinds == self.kinds:
            return
        if self.cells is None:
            self.kinds = kinds
        else:
            self._become(kinds, self.cells)

    def change_some(self, codes: bytes, after: Callable[[Kind, int], Kind]) -> None:
        """Let the records whose code is not zero be of another kind.

        It follows from the one they are of and the code, and is asked for in the order in which
        the records come; when `after` raises, nothing is changed.
        """
        if codes.count(codes[0]) == len(codes) and self.cells is None:
            if codes[0]:
                self.kinds = [after(self.kinds[0], codes[0])]
            return
        cells = self.cells or bytes(self.size)
        width = len(self.kinds)
        if width * (max(codes) + 1) <= 256:
            # Both in one byte for each record: the sum of two long numbers.
            sums = int.from_bytes(cells, "little") + width * int.from_bytes(codes, "little")
            both = sums.to_bytes(len(cells), "little")
            table = bytearray(256)
            kinds: list[Kind] = []
            for pair in sorted(set(both), key=both.index):
                code, number = divmod(pair, width)
                kind = self.kinds[number]
                table[pair] = len(kinds)
                kinds.append(after(kind, code) if code else kind)
            self._become(kinds, both.translate(table))
            return
        pairs = list(zip(cells, codes, strict=True))
        found = dict.fromkeys(pairs)
        kinds = [
            after(self.kinds[number], code) if code else self.kinds[number]
            for number, code in found
        ]
        numbers = dict(zip(found, range(len(found)), strict=True))
        self._become(kinds, bytes(map(numbers.__getitem__, pairs)))

    def _become(self, kinds: list[Kind], cells: bytes) -> None:
        """Keep the kinds that there are, each once."""
        numbers: dict[Kind, int] = {}
        table = bytearray(256)
        for number in set(cells):
            table[number] = numbers.setdefault(kinds[number], len(numbers))
        self.kinds = list(numbers)
        self.cells = cells.translate(table) if len(numbers) > 1 else None


def runs_of(cells: bytes, first: int) -> Iterator[tuple[int, int, int]]:
    """First and last offset of each run of the same byte, and the byte; `first` is the offset of
    the first one."""
    number = int.from_bytes(cells, "little")
    # A byte is not zero where the next one is different.
    ends = (number ^ (number >> 8)).to_bytes(len(cells), "little")
    if not ends[-1]:
        ends = ends[:-1] + b"\1"
    lasts = list(compress(range(first, first + len(cells)), ends))
    firsts = [first, *map((1).__add__, lasts[:-1])]
    return zip(firsts, lasts, compress(cells, ends), strict=True)
