"""Ranges of offsets and their states, of which a share partition's window is made. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

# The states, as they are stored.
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
# A group delivers a record on its last attempt alone only if it has more attempts than this.
FEW_ATTEMPTS = 2

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
