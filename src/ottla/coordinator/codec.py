"""Keys and values of coordinator records: two bytes that say what follows, then the message.

In a key these two bytes name the kind of record (its number in Kafka's schemas); in a value they
are the version of the value's own schema.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from ottla.wire.coordinator_records import GroupMetadataKey, OffsetCommitKey
from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import Out
from ottla.wire.schema import Struct, reader, writer

OFFSET_COMMIT = 1
GROUP_METADATA = 2
# Before Kafka 0.9 offsets had a kind of their own, of the same shape.
LEGACY_OFFSET_COMMIT = 0

GROUP_KEYS: dict[int, type[GroupMetadataKey] | type[OffsetCommitKey]] = {
    LEGACY_OFFSET_COMMIT: OffsetCommitKey,
    OFFSET_COMMIT: OffsetCommitKey,
    GROUP_METADATA: GroupMetadataKey,
}

S = TypeVar("S", bound=Struct)
_prefix = struct.Struct(">h")


def encode_key(kind: int, key: Struct) -> bytes:
    out = Out(_prefix.pack(kind))
    writer(type(key), 0)(key, out)
    return bytes(out)


def encode_value(version: int, value: Struct) -> bytes:
    out = Out(_prefix.pack(version))
    writer(type(value), version)(value, out)
    return bytes(out)


def kind_of(key: bytes) -> int:
    if len(key) < _prefix.size:
        raise MalformedMessage(f"a coordinator record's key has {len(key)} bytes")
    kind: int = _prefix.unpack_from(key)[0]
    return kind


def decode_key(cls: type[S], key: bytes) -> S:
    return reader(cls, 0)(key, _prefix.size)[0]


def decode_value(cls: type[S], value: bytes) -> S:
    return reader(cls, kind_of(value))(value, _prefix.size)[0]
