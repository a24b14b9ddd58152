"""What coordinators write to `__consumer_offsets` and `__transaction_state`.

A record's key begins with its type as an int16, its value with the version it is written in; a
null value is a tombstone. `write_key` and `write_value` put these in front, `read_key` and
`read_value` look at them. A type that is not known gives None: a newer coordinator may have
written it, and the reader skips it.

Versions of values: OffsetCommit v1 had an expiry time, v3 leader epoch, v4 flexible, topic id ·
GroupMetadata v1 rebalance timeout, v2 time of the last change, v3 static members, v4 flexible ·
TransactionLog v1 flexible, the producer ids and epochs around the present ones (KIP-890).
"""

import struct
from typing import TypeVar

from .malformed import Buffer, MalformedMessage
from .out import Out
from .schema import (
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    Struct,
    Uuid,
    reader,
    since,
    supported,
    tagged,
    writer,
)


class LegacyOffsetCommitKey(Struct, key=0, versions=(0, 0)):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class LegacyOffsetCommitValue(Struct, key=0, versions=(0, 0)):
    offset: Int64 = 0
    metadata: String = ""
    commit_timestamp: Int64 = 0


class OffsetCommitKey(Struct, key=1, versions=(0, 0)):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Struct, key=1, versions=(0, 4), flexible=4):
    offset: Int64 = 0
    leader_epoch: Int32 = since(3, default=-1)
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = since(1, 1, default=-1)
    topic_id: Uuid = tagged(0, since=4)


class GroupMetadataKey(Struct, key=2, versions=(0, 0)):
    group: String = ""


class MemberMetadata(Struct):
    member_id: String = ""
    group_instance_id: NullableString = since(3, default=None)
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Int32 = since(1, default=-1)
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Struct, key=2, versions=(0, 4), flexible=4):
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: NullableString = ""
    leader: NullableString = ""
    current_state_timestamp: Int64 = since(2, default=-1)
    members: list[MemberMetadata] = []


class TransactionLogKey(Struct, key=0, versions=(0, 0)):
    transactional_id: String = ""


class PartitionsSchema(Struct):
    topic: String = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Struct, key=0, versions=(0, 1), flexible=1):
    producer_id: Int64 = 0
    previous_producer_id: Int64 = tagged(0, since=1, default=-1)
    next_producer_id: Int64 = tagged(1, since=1, default=-1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = tagged(3, since=1, default=-1)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = tagged(2, since=1)


S = TypeVar("S", bound=Struct)

# The types in `__consumer_offsets`; those of KIP-848's groups are in consumer_group_records.py.
GROUP_RECORDS: dict[int, tuple[type[Struct], type[Struct]]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
TRANSACTION_RECORDS: dict[int, tuple[type[Struct], type[Struct]]] = {
    0: (TransactionLogKey, TransactionLogValue),
}


def write_key(key: Struct) -> bytes:
    """A record's key: its type, then its fields."""
    cls = type(key)
    return bytes(writer(cls, 0)(key, Out(struct.pack(">h", cls.__schema__.key))))


def write_value(value: Struct, version: int) -> bytes:
    """A record's value: its version, then its fields."""
    cls = type(value)
    return bytes(writer(cls, supported(cls, version))(value, Out(struct.pack(">h", version))))


def read_key(
    records: dict[int, tuple[type[Struct], type[Struct]]], data: Buffer
) -> tuple[Struct, type[Struct]] | None:
    """The key and the class of the value that belongs to it, or None if the type is not known."""
    kind = leading(data, "a coordinator record's key")
    if kind not in records:
        return None
    key_class, value_class = records[kind]
    return whole(key_class, 0, data), value_class


def read_value(cls: type[S], data: Buffer) -> S:
    """The value; `MalformedMessage` if its version is not one of `cls`."""
    version = leading(data, cls.__name__)
    versions = cls.__schema__.versions
    if versions is None or not versions[0] <= version <= versions[1]:
        raise MalformedMessage(f"{cls.__name__} has version {version}, known are {versions}")
    return whole(cls, version, data)


def leading(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"{what} has {len(data)} bytes, too few for its first number")
    (number,) = struct.unpack_from(">h", data)
    return int(number)


def whole(cls: type[S], version: int, data: Buffer) -> S:
    message, end = reader(cls, version)(data, 2)
    if end != len(data):
        raise MalformedMessage(
            f"{cls.__name__} version {version}: {len(data) - end} bytes left over"
        )
    return message
