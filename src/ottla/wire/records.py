"""Record batches, format v2: a header of 61 bytes, then the records, compressed as a whole or not
at all.

The produce and fetch paths use the header alone (`read_header`, `batch_bounds`, `crc32c`). The
records inside are for tools, tests, background work and the few cases that must look:
`read_records`, `write_batch`.

The checksum covers everything from the attributes on. Base offset and leader epoch lie before it,
so a broker stamps them without touching the rest. The formats before v2 (magic 0 and 1) are
refused, as Kafka 4 does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from .batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CONTROL,
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    header_layout,
)
from .checksum import crc32c
from .compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from .malformed import Buffer, MalformedMessage
from .varint import put_varint, read_varint, read_varlong

__all__ = [
    "ATTRIBUTES_POSITION",
    "CRC_POSITION",
    "HEADER_BYTES",
    "BatchHeader",
    "CorruptBatch",
    "Record",
    "UnsupportedMagic",
    "batch_bounds",
    "crc32c",
    "read_header",
    "read_records",
    "write_batch",
]

unpack_length = struct.Struct(">i").unpack_from


class CorruptBatch(MalformedMessage):
    """A batch whose size, checksum or inside is wrong: CORRUPT_MESSAGE to a client."""


class UnsupportedMagic(MalformedMessage):
    """A batch of a format that is no longer, or not yet, supported."""


class Record:
    """One record; `offset` -1 means: the one after the record before."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        value: Buffer | None = None,
        *,
        key: Buffer | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp: int = 0,
        offset: int = -1,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.timestamp = timestamp
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and list(self.headers) == list(other.headers)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Record({self.value!r}, key={self.key!r}, headers={list(self.headers)!r}, "
            f"timestamp={self.timestamp}, offset={self.offset})"
        )


def read_header(view: Buffer, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`; its magic is 2, nothing else is checked."""
    if len(view) - pos > MAGIC_POSITION and view[pos + MAGIC_POSITION] != 2:
        raise wrong_magic(view[pos + MAGIC_POSITION])
    if pos < 0 or pos + HEADER_BYTES > len(view):
        raise CorruptBatch(
            f"batch header at byte {pos} needs {HEADER_BYTES} bytes, {len(view) - pos} are left"
        )
    return BatchHeader(view, pos, pos)


def wrong_magic(magic: int) -> UnsupportedMagic:
    if magic in (0, 1):
        return UnsupportedMagic(
            f"record format v{magic} is from before Kafka 0.11 and no longer supported (use v2)"
        )
    return UnsupportedMagic(f"record format v{magic} is not known (expected v2)")


def batch_bounds(view: Buffer, pos: int = 0) -> Iterator[tuple[int, int]]:
    """Start and end of each whole batch from `pos` on; a last one that is cut off is left out."""
    size = len(view)
    while pos + BATCH_OVERHEAD <= size:
        (length,) = unpack_length(view, pos + LENGTH_POSITION)
        end = pos + BATCH_OVERHEAD + length
        if length < HEADER_BYTES - BATCH_OVERHEAD:
            if pos + MAGIC_POSITION < size and view[pos + MAGIC_POSITION] != 2:
                raise wrong_magic(view[pos + MAGIC_POSITION])
            raise CorruptBatch(f"batch at byte {pos} says it has {length} bytes after its length")
        if end > size:
            return
        yield pos, end
        pos = end


def read_records(
    batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, check_crc: bool = True
) -> list[Record]:
    """The records of one whole batch; `limit` bounds their size when decompressed."""
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptBatch(f"batch of {len(batch)} bytes says it has {header.size}")
    if check_crc and crc32c(batch, ATTRIBUTES_POSITION) != header.crc:
        found = crc32c(batch, ATTRIBUTES_POSITION)
        raise CorruptBatch(f"batch has checksum {found:#010x}, its header says {header.crc:#010x}")
    data: Buffer = batch[HEADER_BYTES:]
    data = bytes(data) if not header.compression else decompress(header.compression, data, limit)
    # A record is 7 bytes at least: its length, attributes, two deltas, two sizes, a header count.
    if not 0 <= header.record_count <= len(data) // 7:
        raise CorruptBatch(f"{header.record_count} records cannot fit into {len(data)} bytes")
    try:
        return list(parse_records(data, header))
    except (IndexError, ValueError) as problem:
        raise CorruptBatch(f"record inside a batch: {problem}") from problem


def parse_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in `data`, which is not compressed (any more)."""
    pos = 0
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.log_append_time else None
    for _ in range(header.record_count):
        size, pos = read_varint(data, pos)
        end = pos + size
        if size < 0 or end > len(data):
            raise CorruptBatch(f"record of {size} bytes, {len(data) - pos} are left")
        timestamp_delta, pos = read_varlong(data, pos + 1)
        offset_delta, pos = read_varint(data, pos)
        key, pos = read_sized(data, pos)
        value, pos = read_sized(data, pos)
        count, pos = read_varint(data, pos)
        if not 0 <= count <= end - pos:
            raise CorruptBatch(f"{count} record headers cannot fit into {end - pos} bytes")
        headers = []
        for _ in range(count):
            name, pos = read_sized(data, pos)
            if name is None:
                raise CorruptBatch("a record header without a name")
            content, pos = read_sized(data, pos)
            headers.append((name.decode("utf-8", "replace"), content))
        if pos != end:
            raise CorruptBatch(f"record ends at byte {pos}, its size says {end}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(
            value, key=key, headers=headers, timestamp=timestamp, offset=base_offset + offset_delta
        )
    if pos != len(data):
        raise CorruptBatch(f"{len(data) - pos} bytes after the last record")


def read_sized(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """Bytes after their signed length, of which any below 0 means null."""
    size = data[pos]
    if size < 128:  # nearly always
        pos += 1
        if size & 1:
            return None, pos
        size >>= 1
    else:
        size, pos = read_varint(data, pos)
        if size < 0:
            return None, pos
    end = pos + size
    if end > len(data):
        raise CorruptBatch(f"{size} bytes inside a record, {len(data) - pos} are left")
    return data[pos:end], end


def write_batch(
    records: Iterable[Record],
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One batch of these records; the base offset is the first record's, or 0 if it has none."""
    kept = list(records)
    if not kept:
        raise ValueError("a batch needs at least one record")
    if base_offset is None:
        base_offset = max(kept[0].offset, 0)
    base_timestamp = kept[0].timestamp
    body = bytearray()
    delta = -1
    for record in kept:
        delta = record.offset - base_offset if record.offset >= 0 else delta + 1
        put_record(body, record, record.timestamp - base_timestamp, delta)
    max_timestamp = max(record.timestamp for record in kept)
    attributes = int(compression) | TRANSACTIONAL * transactional | CONTROL * control
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    data = compress(compression, body, level)
    batch = bytearray(HEADER_BYTES)
    header_layout.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - BATCH_OVERHEAD + len(data),
        leader_epoch,
        2,
        0,
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(kept),
    )
    batch += data
    checksum = crc32c(batch, ATTRIBUTES_POSITION)
    struct.pack_into(">I", batch, CRC_POSITION, checksum)
    return bytes(batch)


def put_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Append one record with its length."""
    body = bytearray(1)  # the attributes of a record are not used
    body += put_varint(timestamp_delta)
    body += put_varint(offset_delta)
    put_sized(body, record.key)
    put_sized(body, record.value)
    body += put_varint(len(record.headers))
    for name, content in record.headers:
        put_sized(body, name.encode())
        put_sized(body, content)
    out += put_varint(len(body))
    out += body


def put_sized(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out += b"\x01"
    else:
        out += put_varint(len(data))
        out += data
