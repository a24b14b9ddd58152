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


def encode(batch: Batch, codec: int, level: int | None, *, transactional: bool) -> bytearray:
    """The bytes to send, with the batch's producer id, epoch and sequence in them."""
    builder = batch.builder
    body = builder.body()
    data = compress(codec, body, level) if codec else body
    out = bytearray(HEADER_BYTES)
    header_layout.pack_into(
        out,
        0,
        0,
        HEADER_BYTES - LENGTH_END + len(data),
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
    out += data
    pack_crc(out, CRC_POSITION, crc32c(memoryview(out)[ATTRIBUTES_POSITION:]))
    return out


def restamp(batch: Batch) -> None:
    """Put another producer id, epoch and sequence into bytes that are there already."""
    struct.pack_into(">qhi", batch.encoded, 43, batch.producer_id, batch.epoch, batch.sequence)
    view = memoryview(batch.encoded)[ATTRIBUTES_POSITION:]
    pack_crc(batch.encoded, CRC_POSITION, crc32c(view))
