"""A batch's header as it lies in a log file: 61 bytes, of which some walks need only a few."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.seams.disk import Bytes

BATCH_OVERHEAD = 12  # base offset and length come before what the length counts
HEADER_BYTES = 61
MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
# Base offset, length, magic and last offset delta: enough to find one's way.
unpack_bounds = struct.Struct(">qi4xb6xi").unpack_from


class BatchAt:
    """What a scan tells of one batch: where it lies and what its header says."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "size",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    count: int
    crc: int
    last_offset: int
    leader_epoch: int
    magic: int
    max_timestamp: int
    position: int
    producer_epoch: int
    producer_id: int
    size: int

    def __init__(self, view: Bytes, at: int, position: int) -> None:
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(view, at)
        self.last_offset = self.base_offset + last_offset_delta
        self.size = length + BATCH_OVERHEAD
        self.position = position
