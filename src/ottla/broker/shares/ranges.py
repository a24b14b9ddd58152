"""Ranges of offsets and their states, of which a share partition's window is made. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# The states, as they are stored.
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
# A group delivers a record on its last attempt alone only if it has more attempts than this.
FEW_ATTEMPTS = 2


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


def is_end(state: int) -> bool:
    """Whether nothing more is to be done with records in this state."""
    return state in (ACKNOWLEDGED, ARCHIVED)


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
