"""The header of a record batch, format v2: its layout, its positions, its attribute bits.

The one declaration that log, broker, coordinators and clients share. A batch is 61 bytes of header
and then the records, compressed as a whole or not at all. The checksum covers everything from the
attributes on; base offset and leader epoch lie before it, so a broker stamps them without touching
the rest.
"""

from __future__ import annotations

import struct

from .malformed import Buffer

HEADER_BYTES = 61
MAGIC = 2
LENGTH_POSITION = 8
BATCH_OVERHEAD = 12  # base offset and length come before what the length counts
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21  # the checksum covers the batch from here to its end
MAX_TIMESTAMP_POSITION = 35
PRODUCER_POSITION = 43  # producer id, epoch and base sequence, one after the other

# Attributes.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08  # the maximum timestamp is the time of the append, and every record's time
TRANSACTIONAL = 0x10
CONTROL = 0x20  # a marker that a broker wrote, instead of a client's records
DELETE_HORIZON = 0x40  # the base timestamp says when compaction may drop the tombstones (KIP-534)

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
SEQUENCE_MAX = 0x7FFFFFFF

# Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base timestamp,
# maximum timestamp, producer id, producer epoch, base sequence, number of records.
header_layout = struct.Struct(">qiibIhiqqqhii")
_unpack = header_layout.unpack_from
# Base offset, length, magic and last offset delta: enough to walk from batch to batch.
unpack_bounds = struct.Struct(">qi4xb6xi").unpack_from
# Those, and checksum, attributes and number of records: enough to read the records of a batch.
# Base offset, length, magic, checksum, attributes, last offset delta, number of records.
unpack_outline = struct.Struct(">qi4xbIhi30xi").unpack_from


class BatchHeader:
    """The header of the batch at `at` in `view`, as it is in the bytes; nothing is checked.

    `position` says where the batch lies in its file, for those who read one. Raises struct.error
    when fewer than 61 bytes are left.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    crc: int
    last_offset_delta: int
    leader_epoch: int
    magic: int
    max_timestamp: int
    position: int
    producer_epoch: int
    producer_id: int
    record_count: int
    size: int  # bytes of the whole batch

    def __init__(self, view: Buffer, at: int = 0, position: int = 0) -> None:
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = _unpack(view, at)
        self.size = length + BATCH_OVERHEAD
        self.position = position

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, which goes on from 0 after the largest."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether `max_timestamp` is the time of the append, and every record's time."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker of the broker instead of a client's records."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones inside (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in BatchHeader.__slots__)
        return f"{type(self).__name__}({values})"
