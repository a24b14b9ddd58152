"""Control batches: the markers that a broker writes between the records of clients.

Such a batch holds one record. Its key is a version and a type, its value depends on the type; for
the end of a transaction it carries the coordinator's epoch, so that a marker of an old
coordinator is refused.
"""

import struct

from .malformed import Buffer, MalformedMessage
from .records import Record, write_batch
from .schema import Int16, Int32, Struct

ABORT = 0
COMMIT = 1


class ControlRecordTypeSchema(Struct, versions=(0, 0)):
    """The key of a control record, after its version."""

    type: Int16 = 0


class EndTxnMarker(Struct, versions=(0, 0)):
    """The value of an ABORT or COMMIT record, after its version."""

    coordinator_epoch: Int32 = 0


key_layout = struct.Struct(">hh")
marker_layout = struct.Struct(">hi")


def control_type(key: Buffer | None) -> int:
    """The type in a control record's key: ABORT, COMMIT, or one that is not for us."""
    if key is None or len(key) < key_layout.size:
        raise MalformedMessage("a control record's key is too short for version and type")
    version, kind = key_layout.unpack_from(key)
    if version < 0:
        raise MalformedMessage(f"a control record's key has version {version}")
    return int(kind)


def coordinator_epoch(value: Buffer | None) -> int:
    """The coordinator's epoch in the value of an ABORT or COMMIT record."""
    if value is None or len(value) < marker_layout.size:
        raise MalformedMessage("the marker of a transaction's end is too short")
    version, epoch = marker_layout.unpack_from(value)
    if version < 0:
        raise MalformedMessage(f"the marker of a transaction's end has version {version}")
    return int(epoch)


def write_marker(
    kind: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction with `kind`, ABORT or COMMIT."""
    key = key_layout.pack(0, kind)
    record = Record(marker_layout.pack(0, coordinator_epoch), key=key, timestamp=timestamp)
    return write_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
