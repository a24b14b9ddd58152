"""The batches of a read, found by their headers: where each begins and ends, and whose it is."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.shares.ranges import BatchBounds
from ottla.wire.batch_header import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader
from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from ottla.log.transaction_index import AbortedTransaction

# Headers of batches this near to each other are read together.
READ_AHEAD_BYTES = 4096


class FoundBatches(NamedTuple):
    """Whole batches, and the bytes they are in."""

    batches: list[BatchBounds]
    records: FileRange
    aborted: list[tuple[int, int]]  # first and last offsets of batches that are for nobody


def batches_up_to(
    found: FileRange, wanted: int, aborted: Iterable[AbortedTransaction] = ()
) -> FoundBatches | None:
    """The batches of a read up to the one with offset `wanted`; None if not one is whole.

    Raises OSError when the disk fails.
    """
    batches: list[BatchBounds] = []
    void: list[tuple[int, int]] = []
    position, end = found.position, found.position + found.size
    data, data_at = b"", position
    while position + HEADER_BYTES <= end:
        at = position - data_at
        if at + HEADER_BYTES > len(data):
            data, data_at = found.file.pread(READ_AHEAD_BYTES, position), position
            at = 0
        try:
            header = BatchHeader(data, at)
        except struct.error:
            break  # the file was cut since
        if position + header.size > end:
            break
        bounds = BatchBounds(header.base_offset, header.last_offset)
        batches.append(bounds)
        if aborted and is_aborted(header, aborted):
            void.append(bounds)
        position += header.size
        if header.last_offset >= wanted:
            break
    if not batches:
        return None
    records = FileRange(found.file, found.position, position - found.position, found.lent)
    return FoundBatches(batches, records, void)


def is_aborted(header: BatchHeader, aborted: Iterable[AbortedTransaction]) -> bool:
    if not header.attributes & TRANSACTIONAL or header.attributes & CONTROL:
        return False
    return any(
        each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )
