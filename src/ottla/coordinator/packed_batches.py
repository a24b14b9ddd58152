"""State batches as the share coordinator keeps them: packed, as they are on the wire and stored.

A `StateBatch` is a range of offsets with the state and delivery count of its records. Of two that
overlap the one with the higher delivery count holds, and of equal counts the higher state: updates
may be merged in any order. What lies below the start offset is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import starmap
from operator import le, sub
from typing import NamedTuple

# One batch where it is packed: first and last offset, state, delivery count, no tagged fields.
ROW = struct.Struct(">qqbhx")
LASTS = struct.Struct(">8xq4x")
# What was written is merged when it has come in so many pieces, or is so many batches more than
# twice what was left after the last merge. So each batch is merged a few times at most.
PIECES_MAX = 64
ROWS_MAX = 4096

Row = tuple[int, int, int, int]


class StateBatch(NamedTuple):
    """Records from `first` to `last` that have the same state and delivery count."""

    first: int
    last: int
    state: int
    deliveries: int


def pack(batches: Iterable[Row]) -> bytes:
    return b"".join(starmap(ROW.pack, batches))


def unpack(data: bytes) -> list[StateBatch]:
    return list(map(StateBatch._make, ROW.iter_unpack(data)))


def merged(batches: Iterable[Row], start_offset: int) -> tuple[StateBatch, ...]:
    """Batches that do not overlap, in order, with the same state for every offset."""
    events: list[tuple[int, int, int, int]] = []  # offset, +1 or -1, count, state
    for first, last, state, count in batches:
        first = max(first, start_offset)
        if first <= last:
            events.append((first, 1, count, state))
            events.append((last + 1, -1, count, state))
    events.sort(key=lambda event: event[0])
    open_states: dict[tuple[int, int], int] = {}
    result: list[StateBatch] = []
    began = 0
    number = 0
    while number < len(events):
        offset = events[number][0]
        if open_states:
            count, state = max(open_states)
            last_batch = result[-1] if result else None
            if (
                last_batch is not None
                and last_batch.last + 1 == began
                and last_batch.deliveries == count
                and last_batch.state == state
            ):
                result[-1] = StateBatch(last_batch.first, offset - 1, state, count)
            else:
                result.append(StateBatch(began, offset - 1, state, count))
        while number < len(events) and events[number][0] == offset:
            _, change, count, state = events[number]
            number += 1
            left = open_states.get((count, state), 0) + change
            if left:
                open_states[count, state] = left
            else:
                del open_states[count, state]
        began = offset
    return tuple(result)


def merged_rows(data: bytes, start_offset: int) -> bytes:
    """The same for packed batches. Those of a leader are merged already, as a rule."""
    return data if is_merged(data, start_offset) else pack(merged(unpack(data), start_offset))


def is_merged(data: bytes, start_offset: int) -> bool:
    """Whether packed batches are in order, from the start offset on, and as few as can be."""
    if not data:
        return True
    firsts, lasts, states, counts = zip(*ROW.iter_unpack(data), strict=True)
    if firsts[0] < start_offset or not all(map(le, firsts, lasts)):
        return False
    gaps = list(map(sub, firsts[1:], lasts))
    if min(gaps, default=2) > 1:
        return True
    kinds = list(zip(states, counts, strict=True))
    return all(
        gap > 1 or (gap == 1 and one != other)
        for gap, one, other in zip(gaps, kinds[:-1], kinds[1:], strict=True)
    )


class Piece(NamedTuple):
    """Packed batches that were written together, and the last offset they speak of."""

    last: int
    data: bytes


class PackedBatches(NamedTuple):
    """All that was written of one share partition, in pieces; merged only now and then.

    A write costs what it says, not what is known. Pieces below the start offset are dropped.
    """

    pieces: tuple[Piece, ...] = ()
    merged_count: int = 0

    @staticmethod
    def of(data: bytes) -> PackedBatches:
        return PackedBatches((piece_of(data),) if data else ())

    @property
    def data(self) -> bytes:
        """All batches, not merged."""
        return b"".join(each.data for each in self.pieces)

    def merged(self, start_offset: int) -> tuple[StateBatch, ...]:
        return merged(unpack(self.data), start_offset)

    def with_more(self, data: bytes, start_offset: int) -> PackedBatches:
        pieces = tuple([each for each in self.pieces if each.last >= start_offset])
        if data:
            pieces += (piece_of(data),)
        count = sum(len(each.data) for each in pieces) // ROW.size
        merged_count = min(self.merged_count, count)
        if len(pieces) <= PIECES_MAX and count <= 2 * merged_count + ROWS_MAX:
            return PackedBatches(pieces, merged_count)
        data = merged_rows(b"".join(each.data for each in pieces), start_offset)
        return PackedBatches.of(data)._replace(merged_count=len(data) // ROW.size)


def piece_of(data: bytes) -> Piece:
    (last,) = max(LASTS.iter_unpack(data))
    return Piece(last, data)
