"""What a member may say of its records, and when it may not (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.shares.ranges import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, Range
from ottla.wire.errors import ErrorCode

# What an acknowledgement says of a record.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_AFTER = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class AcknowledgedBatch(NamedTuple):
    """An acknowledgement: one type for all records of a range, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class InvalidAcknowledgement(Exception):
    """Nothing of this acknowledgement takes effect."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def check_owner(each: Range, member: str) -> None:
    if each.state != ACQUIRED:
        message = "The batch cannot be acknowledged. The batch is not in the acquired state."
    elif each.member != member:
        message = "Member is not the owner of batch record"
    elif each.next is not None:
        message = (
            "The record state is invalid. The acknowledgement of delivery could not be completed."
        )
    else:
        return
    raise InvalidAcknowledgement(ErrorCode.INVALID_RECORD_STATE, message)


def runs(batch: AcknowledgedBatch) -> list[tuple[int, int, int]]:
    """An acknowledgement as ranges with one type each."""
    if len(batch.types) == 1:
        return [(batch.first, batch.last, batch.types[0])]
    found: list[tuple[int, int, int]] = []
    for offset, kind in enumerate(batch.types, batch.first):
        if found and found[-1][2] == kind:
            found[-1] = (found[-1][0], offset, kind)
        else:
            found.append((offset, offset, kind))
    return found
