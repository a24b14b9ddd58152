"""A finished batch as bytes: header, checksum, compression."""

from __future__ import annotations

import functools
import struct

from ottla.wire.compression import compress
from ottla.wire.records import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_END,
    TRANSACTIONAL,
    crc32c,
    header_layout,
)

from .accumulator import Batch

pack_crc = struct.Struct(">I").pack_into
CASTAGNOLI = 0x82F63B78
unpack_checked = struct.Struct(">Ih").unpack_from


def encode(batch: Batch, codec: int, level: int | None, *, transactional: bool) -> list[memoryview]:
    """The bytes to send, with the batch's producer id, epoch and sequence in them.

    They are in pieces, of which the first has the header. Without compression they stay where they
    are: the builder left room for the header.
    """
    builder = batch.builder
    if codec:
        out = memoryview(bytearray(HEADER_BYTES) + compress(codec, builder.body(), level))
    else:
        out = builder.whole()
    header_layout.pack_into(
        out,
        0,
        0,
        len(out) - LENGTH_END,
        -1,
        2,
        0,
        codec | (TRANSACTIONAL if transactional else 0),
        builder.record_count - 1,
        builder.first_timestamp,
        builder.last_timestamp,
        batch.producer_id,
        batch.epoch,
        batch.sequence,
        builder.record_count,
    )
    pack_crc(out, CRC_POSITION, crc32c(out[ATTRIBUTES_POSITION:]))
    return [out]


def restamp(batch: Batch, *, transactional: bool) -> None:
    """Put another producer id, epoch and sequence into bytes that are there already.

    The checksum follows the change of the header; the records are not read. So a batch that was
    damaged since it was encoded does not get a checksum that hides it.
    """
    head = batch.encoded[0]
    old = bytes(head[ATTRIBUTES_POSITION:HEADER_BYTES])
    crc, attributes = unpack_checked(head, CRC_POSITION)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    struct.pack_into(">h", head, ATTRIBUTES_POSITION, attributes)
    struct.pack_into(">qhi", head, 43, batch.producer_id, batch.epoch, batch.sequence)
    new = bytes(head[ATTRIBUTES_POSITION:HEADER_BYTES])
    behind = sum(map(len, batch.encoded)) - HEADER_BYTES
    pack_crc(head, CRC_POSITION, crc ^ carried(crc32c(old) ^ crc32c(new), behind))


def carried(difference: int, size: int) -> int:
    """What a difference of two checksums is after `size` more bytes, the same for both.

    A CRC is the rest of a division of polynomials over one bit, so this is a multiplication by
    x^(8 * size), put together from its binary powers.
    """
    for power in powers():
        if not size:
            break
        if size & 1:
            difference = product(power, difference)
        size >>= 1
    return difference


@functools.cache
def powers() -> list[int]:
    """x^8, x^16, x^32 and so on; the highest bit of a number stands for 1."""
    found = [1 << 23]
    while len(found) < 32:
        found.append(product(found[-1], found[-1]))
    return found


def product(first: int, second: int) -> int:
    """Of two polynomials, modulo that of CRC-32C."""
    found = 0
    for bit in range(31, -1, -1):
        if first >> bit & 1:
            found ^= second
        second = second >> 1 ^ (CASTAGNOLI if second & 1 else 0)
    return found
