"""Ranges of offsets and their states, of which a share partition's window is made. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

# The states, as they are stored.
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
# A group delivers a record on its last attempt alone only if it has more attempts than this.
FEW_ATTEMPTS = 2
# So many ranges are cut or joined one by one; more in one pass over all, or each would move the
# rest of the list.
FEW_RANGES = 4

first_of = attrgetter("first")


class Limits(NamedTuple):
    """The group's configs."""

    deliveries_max: int
    records_max: int
    lock_ms: int
    # What becomes of a record that nobody can process: it is gone, or a dead letter first.
    given_up: int = ARCHIVED


class Acquired(NamedTuple):
    """Records that a member has now, for the so-manieth time."""

    first: int
    last: int
    deliveries: int


class GivenUp(NamedTuple):
    """Records that nobody could process: dead letters to be (KIP-1191)."""

    first: int
    last: int
    deliveries: int
    rejected: bool  # by a member; else they have used up their deliveries


class BatchBounds(NamedTuple):
    """A record batch of the log."""

    base: int
    last: int


class Range:
    """Records from `first` to `last` that have the same state."""

    __slots__ = (
        "batch",
        "deadline_ms",
        "deliveries",
        "first",
        "gone",
        "last",
        "member",
        "next",
        "rejected",
        "state",
    )

    def __init__(
        self, first: int, last: int, state: int, deliveries: int, batch: tuple[int, int]
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        # First and last offset of what was acquired at once when this was first acquired.
        self.batch = batch
        self.member = ""
        self.deadline_ms = 0
        self.next: int | None = None
        self.gone = False  # the log begins after it now
        self.rejected = False  # by a member

    def __repr__(self) -> str:
        return f"<{self.first}..{self.last} {self.state} {self.deliveries} {self.next}>"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_done(self) -> bool:
        return is_end(self.state)


def is_end(state: int) -> bool:
    """Whether nothing more is to be done with records in this state."""
    return state in (ACKNOWLEDGED, ARCHIVED)


def same_end(one: Range, other: Range) -> bool:
    """Whether both are done with in the same way. Delivery counts do not matter any more."""
    return one.is_done and one.state == other.state and one.next is None and other.next is None


def split(each: Range, offset: int) -> Range:
    """Let a range end before `offset`; what is left of it begins there."""
    rest = Range(offset, each.last, each.state, each.deliveries, each.batch)
    rest.member, rest.deadline_ms = each.member, each.deadline_ms
    rest.rejected = each.rejected
    each.last = offset - 1
    return rest


def cut_at(ranges: list[Range], index: int, starts: Sequence[int]) -> None:
    """Let ranges from `index` on begin at these offsets, which rise, in one pass.

    One whose change is being written stays whole.
    """
    pieces: list[Range] = []
    end, number = index, 0
    while end < len(ranges) and number < len(starts):
        each = ranges[end]
        pieces.append(each)
        end += 1
        while number < len(starts) and starts[number] <= each.last:
            if each.first < starts[number] and each.next is None:
                each = split(each, starts[number])
                pieces.append(each)
            number += 1
    ranges[index:end] = pieces


def joined(ranges: Sequence[Range]) -> list[Range]:
    """The same with neighbours as one that are done with in the same way."""
    kept: list[Range] = []
    for each in ranges:
        if kept and same_end(kept[-1], each):
            kept[-1].last = each.last
        else:
            kept.append(each)
    return kept


def is_last_attempt(each: Range, limits: Limits) -> bool:
    """Whether the next delivery of these records is their last, and they are delivered alone."""
    return limits.deliveries_max > FEW_ATTEMPTS and each.deliveries >= limits.deliveries_max - 1


def size_together(each: Range, last: int, limits: Limits) -> tuple[int, bool]:
    """How many records of a released range, up to `last`, go together; whether no more follow.

    From half of the attempts on ever fewer records are delivered together, so that one that nobody
    can process does not use up the attempts of the others; the last attempt is alone.
    """
    size = min(each.last, last) - each.first + 1
    throttled_from = max(2, -(-limits.deliveries_max // 2))
    if is_last_attempt(each, limits):
        return 1, True
    if limits.deliveries_max > FEW_ATTEMPTS and each.deliveries >= throttled_from:
        together = each.batch[1] - each.batch[0] + 1
        return min(size, max(together >> (each.deliveries - throttled_from + 1), 1)), True
    return size, False


def last_of_batch_with(batches: Sequence[BatchBounds], offset: int) -> int:
    """The last offset of the last batch that begins at or before `offset`."""
    last = batches[0].last
    for each in batches:
        if each.base > offset:
            break
        last = each.last
    return last


def cut(
    first: int, last: int, batches: Sequence[BatchBounds], batch_size: int
) -> list[tuple[int, int]]:
    """A range in pieces of at least `batch_size` records that end with a batch."""
    pieces = []
    if last - first + 1 > batch_size:
        for each in batches:
            if each.base > last:
                break
            if each.base - first >= batch_size:
                pieces.append((first, each.base - 1))
                first = each.base
    pieces.append((first, last))
    return pieces
