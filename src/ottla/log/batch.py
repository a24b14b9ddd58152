"""A batch opened for compaction: its header, its records found in the bytes, and new bytes made.

Only what compaction needs is parsed: where each record begins and ends, its offset, its key, and
whether it has a value. Records that stay are copied as they are; only a new base timestamp (a
delete horizon, KIP-534) makes new bytes of them. Base and last offset, sequences, producer and
compression of a batch never change.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    header_layout,
)
from ottla.wire.checksum import crc32c
from ottla.wire.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from ottla.wire.records import CorruptBatch

Buffer = bytes | bytearray | memoryview


__all__ = [
    "Batch",
    "Buffer",
    "CorruptBatch",
    "ScannedRecord",
    "control_type",
    "empty_batch",
    "rebuild",
    "scan_records",
]


class Batch(BatchHeader):
    """A whole batch: its header, and the bytes it was read from."""

    __slots__ = ("data",)

    def __init__(self, data: memoryview) -> None:
        super().__init__(data)
        if self.magic != MAGIC or self.size != len(data) or self.last_offset_delta < 0:
            raise CorruptBatch(
                f"batch at offset {self.base_offset}: magic {self.magic}, {self.size} bytes, "
                f"last offset delta {self.last_offset_delta}; expected magic {MAGIC} and "
                f"{len(data)} bytes"
            )
        self.data = data

    def check(self) -> None:
        """Raises `CorruptBatch` unless the checksum is right."""
        found = crc32c(self.data, ATTRIBUTES_POSITION)
        if found != self.crc:
            raise CorruptBatch(
                f"batch at offsets {self.base_offset}-{self.last_offset}: "
                f"checksum {found:#010x}, expected {self.crc:#010x}"
            )

    def records(self) -> bytes:
        """The records' bytes, decompressed."""
        codec = self.attributes & COMPRESSION_MASK
        data = self.data[HEADER_BYTES:]
        return bytes(decompress(codec, data, DECOMPRESSED_BYTES_MAX)) if codec else bytes(data)


class ScannedRecord(NamedTuple):
    """The position of a record in its batch's bytes, and the fields that compaction needs."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def scan_records(data: bytes, count: int) -> Iterator[ScannedRecord]:
    """The records of a batch in turn; raises `CorruptBatch` when they do not fill it exactly.

    Numbers of one byte, nearly all of them, are read in place: this loop is where compaction
    spends its time.
    """
    position, size = 0, len(data)
    new = ScannedRecord._make
    try:
        for _ in range(count):
            start = position
            length, position = read_varint(data, position)
            end = position + length
            position += 1  # the attributes of a record are not used
            if (byte := data[position]) < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                timestamp_delta, position = read_varint(data, position)
            if (byte := data[position]) < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                offset_delta, position = read_varint(data, position)
            if (byte := data[position]) < 0x80:
                key_length = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            # A length is negative (null) exactly when the first bit of its zigzag form is set.
            has_value = not data[position] & 1
            if end <= position or end > size:
                raise CorruptBatch(f"record at byte {start} ends at {end} of {size}")
            position = end
            yield new((start, end, timestamp_delta, offset_delta, key, has_value))
    except IndexError:
        raise CorruptBatch(f"records end at byte {size} inside a record") from None
    if position != size:
        raise CorruptBatch(f"{size - position} bytes after the last of {count} records")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch(f"varint before byte {position} is too long")


def write_varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def control_type(batch: Batch) -> int | None:
    """The kind of marker in a control batch; None when the batch is empty."""
    for record in scan_records(batch.records(), batch.record_count):
        if record.key is None or len(record.key) < 4:
            raise CorruptBatch(f"control batch at offset {batch.base_offset} has no type")
        kind: int = struct.unpack_from(">h", record.key, 2)[0]
        return kind
    return None


def rebuild(
    batch: Batch, records: bytes, count: int, max_timestamp_delta: int, horizon_ms: int | None
) -> bytes:
    """The batch with only these records, and with a new delete horizon if one is given.

    `max_timestamp_delta` is the largest among them, from the batch's present base timestamp.
    """
    base_timestamp = batch.base_timestamp
    attributes = batch.attributes
    max_timestamp = batch.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = base_timestamp + max_timestamp_delta
    if horizon_ms is not None:
        shift = base_timestamp - horizon_ms
        records = b"".join(
            _with_timestamp(records, record, record.timestamp_delta + shift)
            for record in scan_records(records, count)
        )
        attributes |= DELETE_HORIZON
        base_timestamp = horizon_ms
    codec = attributes & COMPRESSION_MASK
    if codec:
        records = compress(codec, records)
    return _assemble(batch, attributes, base_timestamp, max_timestamp, count, records)


def empty_batch(batch: Batch) -> bytes:
    """The batch without records: offsets, sequences, producer and last timestamp remain."""
    attributes = batch.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _assemble(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _with_timestamp(data: bytes, record: ScannedRecord, timestamp_delta: int) -> bytes:
    """A record's bytes with another timestamp delta."""
    _, body = read_varint(data, record.start)
    _, behind = read_varint(data, body + 1)
    rest = data[body : body + 1] + write_varint(timestamp_delta) + data[behind : record.end]
    return write_varint(len(rest)) + rest


def _assemble(
    batch: Batch,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    records: Buffer,
) -> bytes:
    out = bytearray(HEADER_BYTES + len(records))
    header_layout.pack_into(
        out,
        0,
        batch.base_offset,
        len(out) - BATCH_OVERHEAD,
        batch.leader_epoch,
        2,
        0,
        attributes,
        batch.last_offset - batch.base_offset,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    out[HEADER_BYTES:] = records
    struct.pack_into(">I", out, CRC_POSITION, crc32c(memoryview(out), ATTRIBUTES_POSITION))
    return bytes(out)
