"""What a member may say of its records, and when it may not (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.broker.shares.ranges import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE
from ottla.broker.shares.segments import NOTHING, Kind
from ottla.wire.errors import ErrorCode

# What an acknowledgement says of a record.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_AFTER = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}

# The code of a record is zero if nothing is said of it, else what is said of it plus one.
CODES = [bytes([kind + 1]) for kind in range(RENEW + 1)]
TO_CODES = bytes(range(1, RENEW + 2)).ljust(256, b"\0")
# With these codes nothing is to be written.
UNNOTED_CODES = bytes([0, RENEW + 1])
# Records that are looked at together. Acknowledgements may be far apart.
SPAN_MAX = 16_384


# First and last offset of records, and what is said of them: one type for all, or one for each.
Said = tuple[int, int, Sequence[int]]


class AcknowledgedBatch(NamedTuple):
    """The same with names."""

    first: int
    last: int
    types: Sequence[int]


class InvalidAcknowledgement(Exception):
    """Nothing of this acknowledgement takes effect."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def check_owner(kind: Kind, member: str) -> None:
    if kind.state != ACQUIRED:
        message = "The batch cannot be acknowledged. The batch is not in the acquired state."
    elif kind.member != member:
        message = "Member is not the owner of batch record"
    elif kind.next != NOTHING:
        message = (
            "The record state is invalid. The acknowledgement of delivery could not be completed."
        )
    else:
        return
    raise InvalidAcknowledgement(ErrorCode.INVALID_RECORD_STATE, message)


def codes_of(batches: Iterable[Said], start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """What is said of records, as codes of them and those between; with the first one's offset.

    The window is from `start` to `end`; None if there are no records in it. What is said of those
    before it does not matter any more. Raises `InvalidAcknowledgement` behind what is valid.
    """
    base, codes = start, bytearray()
    behind = start  # the offset behind the codes
    known_end = -1 if end is None else end
    for first, last, types in batches:
        gap = first - behind
        # Thousands of single records may follow each other.
        if (
            first == last <= known_end
            and gap >= 0
            and codes
            and len(types) == 1
            and first - base < SPAN_MAX
            and 0 <= types[0] <= RENEW
        ):
            if gap:
                codes += bytes(gap)
            codes.append(types[0] + 1)
            behind = first + 1
            continue
        if last < start:
            continue
        problem = problem_of(first, last, types, end)
        if problem is not None or gap < 0 or last - base >= SPAN_MAX:
            if codes:
                yield base, bytes(codes)
            if problem is not None:
                raise problem
            base, codes, gap = first, bytearray(), 0
        if not codes:
            base = max(first, start)
        elif gap:
            codes += bytes(gap)
        if len(types) > 1:
            codes += bytes(types[max(start - first, 0) :]).translate(TO_CODES)
            behind = last + 1
            continue
        left, code = last - max(first, start) + 1, CODES[types[0]]
        while left > SPAN_MAX:
            yield base, bytes(codes) + code * SPAN_MAX
            base, codes, left = base + len(codes) + SPAN_MAX, bytearray(), left - SPAN_MAX
        codes += code * left
        behind = last + 1
    if codes:
        yield base, bytes(codes)


def problem_of(
    first: int, last: int, types: Sequence[int], end: int | None
) -> InvalidAcknowledgement | None:
    if end is None:
        return InvalidAcknowledgement(
            ErrorCode.INVALID_RECORD_STATE,
            "Batch record not found. The request batch offsets are not found in the cache.",
        )
    if last > end:
        which = "first" if first > end else "last"
        return InvalidAcknowledgement(
            ErrorCode.INVALID_REQUEST,
            f"Batch record not found. The {which} offset in request is past acquired records.",
        )
    if len(types) > 1:
        if not 0 <= min(types) <= max(types) <= RENEW:
            unknown = next(kind for kind in types if not 0 <= kind <= RENEW)
            return unknown_type(unknown)
    elif not 0 <= types[0] <= RENEW:
        return unknown_type(types[0])
    return None


def unknown_type(kind: int) -> InvalidAcknowledgement:
    return InvalidAcknowledgement(ErrorCode.INVALID_REQUEST, f"Unknown acknowledge type id: {kind}")
