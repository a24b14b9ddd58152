"""A finished batch as bytes: header, checksum, compression."""

from __future__ import annotations

import struct

from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CRC_POSITION,
    HEADER_BYTES,
    PRODUCER_POSITION,
    TRANSACTIONAL,
    header_layout,
)
from ottla.wire.checksum import crc32c
from ottla.wire.compression import compress

from ..codec.records import BatchBuilder, carried
from .accumulator import Batch

pack_crc = struct.Struct(">I").pack_into
unpack_crc = struct.Struct(">I").unpack_from
unpack_checked = struct.Struct(">Ih").unpack_from


def encode(batch: Batch, codec: int, level: int | None, *, transactional: bool) -> list[memoryview]:
    """The bytes to send, with the batch's producer id, epoch and sequence in them.

    They are in pieces, of which the first has the header. Without compression they stay where they
    are: the builder left space for the header.
    """
    builder = batch.builder
    if codec:
        out = memoryview(bytearray(HEADER_BYTES) + compress(codec, builder.body(), level))
    else:
        out = builder.whole()
    attributes = codec | (TRANSACTIONAL if transactional else 0)
    put_header(out, builder, attributes, batch.producer_id, batch.epoch, batch.sequence)
    return [out]


def seal(builder: BatchBuilder, codec: int, level: int | None) -> bytearray:
    """The whole batch, of no producer; uncompressed if compression would not make it smaller."""
    out: bytearray | None = None
    if codec:
        body = builder.body()
        out = bytearray(HEADER_BYTES) + compress(codec, body, level)
        if len(out) >= HEADER_BYTES + len(body):
            codec, out = 0, None
        body.release()
    if out is None:
        out = builder.cut()
    assert out is not None
    put_header(memoryview(out), builder, codec)
    return out


def put_header(
    out: memoryview,
    builder: BatchBuilder,
    attributes: int,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> None:
    """Fill in the space before the records of `builder`."""
    header_layout.pack_into(
        out,
        0,
        0,
        len(out) - BATCH_OVERHEAD,
        -1,
        2,
        0,
        attributes,
        builder.record_count - 1,
        builder.first_timestamp,
        builder.last_timestamp,
        producer_id,
        epoch,
        sequence,
        builder.record_count,
    )
    pack_crc(out, CRC_POSITION, crc32c(out, ATTRIBUTES_POSITION))


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
    struct.pack_into(
        ">qhi", head, PRODUCER_POSITION, batch.producer_id, batch.epoch, batch.sequence
    )
    new = bytes(head[ATTRIBUTES_POSITION:HEADER_BYTES])
    behind = sum(map(len, batch.encoded)) - HEADER_BYTES
    pack_crc(head, CRC_POSITION, crc ^ carried(crc32c(old) ^ crc32c(new), behind))


def intact(batch: Batch) -> bool:
    """Whether the bytes are those that the checksum was made of."""
    whole = b"".join(batch.encoded)
    (crc,) = unpack_crc(whole, CRC_POSITION)
    return bool(crc32c(whole, ATTRIBUTES_POSITION) == crc)
