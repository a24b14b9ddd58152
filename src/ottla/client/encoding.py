"""A finished batch as bytes: header, checksum, compression."""

from __future__ import annotations

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


def encode(batch: Batch, codec: int, level: int | None, *, transactional: bool) -> memoryview:
    """The bytes to send, with the batch's producer id, epoch and sequence in them.

    Without compression they stay where they are: the builder left room for the header.
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
    return out


def restamp(batch: Batch) -> None:
    """Put another producer id, epoch and sequence into bytes that are there already."""
    struct.pack_into(">qhi", batch.encoded, 43, batch.producer_id, batch.epoch, batch.sequence)
    pack_crc(batch.encoded, CRC_POSITION, crc32c(batch.encoded[ATTRIBUTES_POSITION:]))
