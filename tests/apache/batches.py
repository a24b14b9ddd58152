"""Record batches made by hand, right or deliberately wrong, and taken apart again for comparison.

Independent of the broker's own codec. `batch` makes the bytes of one v2 batch; every header field
can be set to what it should not be.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import cramjam
import google_crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# Independent blocks, no checksums: Kafka refuses frames whose blocks depend on each other.
LZ4_BLOCK_BYTES = 65_536
LZ4_HEAD = bytes.fromhex("04224d18604082")
TIMESTAMP_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Record:
    """One record; offsets and times are relative to the batch's."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None
    attributes: int = 0


def batch(
    records: list[Record] | int = 1,
    *,
    codec: str = "none",
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    crc: int | None = None,
    crc_xor: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = TIMESTAMP_MS,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    record_count: int | None = None,
    length_add: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """The bytes of one batch; `records` may be a count of plain ones."""
    if isinstance(records, int):
        records = [Record(value=b"value-%d" % number) for number in range(records)]
    data = b"".join(record_bytes(record, number) for number, record in enumerate(records))
    body = payload if payload is not None else compress(codec, data)
    newest = max((record.timestamp_delta for record in records), default=0)
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | CODECS[codec],
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp + newest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if record_count is None else record_count,
    )
    checksum = google_crc32c.value(after_crc + body) if crc is None else crc
    length = 4 + 1 + 4 + len(after_crc) + len(body) + length_add
    head = struct.pack(">qiibI", base_offset, length, leader_epoch, magic, checksum ^ crc_xor)
    return head + after_crc + body


def record_bytes(record: Record, number: int) -> bytes:
    """One record with its length in front."""
    offset_delta = number if record.offset_delta is None else record.offset_delta
    body = struct.pack(">b", record.attributes)
    body += varint(record.timestamp_delta) + varint(offset_delta)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += _sized(key) + _sized(value)
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """A zig-zag varint."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


def compress(codec: str, data: bytes) -> bytes:
    """As a client would; snappy as one raw block, the way librdkafka writes it."""
    if codec == "gzip":
        return gzip.compress(data, mtime=0)
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == "lz4":
        starts = range(0, len(data), LZ4_BLOCK_BYTES)
        blocks = [_lz4_block(data[start : start + LZ4_BLOCK_BYTES]) for start in starts]
        return LZ4_HEAD + b"".join(blocks) + bytes(4)
    return bytes(cramjam.zstd.compress(data)) if codec == "zstd" else data


def _lz4_block(data: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    if len(block) < len(data):
        return struct.pack("<I", len(block)) + block
    return struct.pack("<I", len(data) | 1 << 31) + data


def old_message(magic: int = 1, value: bytes = b"old") -> bytes:
    """A message of the format before record batches (magic 0 or 1)."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", TIMESTAMP_MS) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def taken_apart(data: bytes | None) -> list[dict[str, Any]] | None:
    """Each batch's header by name and its payload in hex; a cut-off tail as its size."""
    if data is None:
        return None
    found: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_BYTES:
            found.append({"partial_bytes": len(data) - position})
            break
        fields = HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            found.append({"partial_bytes": len(data) - position})
            break
        payload = data[position + HEADER_BYTES : end]
        checksum = google_crc32c.value(data[position + 21 : end])
        found.append(dict(zip(NAMES, fields, strict=True)) | {"payload": payload.hex()})
        found[-1]["crc_right"] = checksum == fields[4]
        position = end
    return found


NAMES = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data
