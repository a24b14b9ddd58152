"""What consumers of a classic group put into the opaque bytes of JoinGroup and SyncGroup.

The broker carries these bytes without looking; clients, and tools that describe a group, read
them. The version stands in front as an int16. A reader meets versions it does not know: it takes
the newest that it does and leaves the rest of the bytes alone, so `read_subscription` and
`read_assignment` do. v1 what the member owns already (KIP-429) · v2 generation · v3 rack.
"""

import struct
from typing import TypeVar

from .malformed import Buffer, MalformedMessage
from .out import Out
from .schema import Int32, NullableBytes, NullableString, String, Struct, reader, since, writer

VERSION_MAX = 3


class TopicPartition(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class ConsumerProtocolSubscription(Struct, versions=(0, 3)):
    """What a member wants."""

    topics: list[String] = []
    user_data: NullableBytes = None
    owned_partitions: list[TopicPartition] = since(1)
    generation_id: Int32 = since(2, default=-1)
    rack_id: NullableString = since(3, default=None)


class ConsumerProtocolAssignment(Struct, versions=(0, 3)):
    """What a member gets."""

    assigned_partitions: list[TopicPartition] = []
    user_data: NullableBytes = None


S = TypeVar("S", bound=Struct)


def read_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    return read_newest(ConsumerProtocolSubscription, data)


def read_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    return read_newest(ConsumerProtocolAssignment, data)


def read_newest(cls: type[S], data: Buffer) -> S:
    if len(data) < 2:
        raise MalformedMessage(f"{cls.__name__} of {len(data)} bytes has no version")
    (version,) = struct.unpack_from(">h", data)
    if version < 0:
        raise MalformedMessage(f"{cls.__name__} has version {version}")
    message, _ = reader(cls, min(version, VERSION_MAX))(data, 2)
    return message


def write_versioned(message: Struct, version: int = VERSION_MAX) -> bytes:
    """A subscription or assignment with its version in front."""
    return bytes(writer(type(message), version)(message, Out(struct.pack(">h", version))))
