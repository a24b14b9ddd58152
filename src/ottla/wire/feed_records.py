"""Records of the controller's feed: what a batch of changes is made of.

A change is one record: type and version, then its fields (as in Kafka's metadata log). A reader
that does not know a type or version fails: it must not skip what the others apply. So a controller
sends only what belongs to the cluster's finalized level, which every broker understands (LEVELS).
Batches travel in `wire/api/follow_feed.py`; a whole image is a batch, in pieces, of the records
that make it.
"""

from typing import TypeVar

from .malformed import Buffer, MalformedMessage
from .out import Out
from .schema import (
    Bool,
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
    writer,
)

FIRST_LEVEL = 1


class FeedRecord(Struct):
    type: Int16 = 0
    version: Int16 = 0
    data: Bytes = b""


class FeedBatch(Struct, versions=(0, 0), flexible=0):
    number: Int64 = 0
    controller_epoch: Int32 = 0
    records: list[FeedRecord] = []


class RecordConfig(Struct):
    name: String = ""
    value: String = ""


class RecordEndpoint(Struct):
    listener: String = ""
    host: String = ""
    port: Int32 = 0
    security_protocol: String = ""


class RecordShape(Struct):
    replicas: list[Int32] = []
    isr: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []
    elr: list[Int32] = []
    last_known_leader: Int32 = -1
    recovering: Bool = False
    wiped: list[Int32] = []


class RecordPartitions(Struct):
    """Partitions in columns, all of one length.

    A record may have thousands of partitions with few shapes among them, and a column of numbers
    costs one call to read and one to write.
    """

    indexes: list[Int32] = []
    leaders: list[Int32] = []
    leader_epochs: list[Int32] = []
    partition_epochs: list[Int32] = []
    shapes_of: list[Int32] = []  # of each partition, its place in `shapes`
    shapes: list[RecordShape] = []


class RecordFeature(Struct):
    name: String = ""
    level: Int16 = 0


class ControllerRecord(Struct, key=0, versions=(0, 0), flexible=0):
    id: Int32 = 0
    epoch: Int32 = 0


class ClusterRecord(Struct, key=1, versions=(0, 0), flexible=0):
    cluster_id: String = ""


class BrokerRecord(Struct, key=2, versions=(0, 1), flexible=0):
    id: Int32 = 0
    endpoints: list[RecordEndpoint] = []
    rack: NullableString = None
    epoch: Int64 = 0
    fenced: Bool = False
    in_controlled_shutdown: Bool = False
    incarnation: Uuid = bytes(16)
    directories: list[Uuid] = []
    # The levels that the broker understands.
    lowest_level: Int16 = since(1, default=FIRST_LEVEL)
    highest_level: Int16 = since(1, default=FIRST_LEVEL)


class BrokerGoneRecord(Struct, key=3, versions=(0, 0), flexible=0):
    id: Int32 = 0


class TopicRecord(Struct, key=4, versions=(0, 0), flexible=0):
    name: String = ""
    id: Uuid = bytes(16)
    partitions: RecordPartitions = RecordPartitions()
    configs: list[RecordConfig] = []


class TopicDeletedRecord(Struct, key=5, versions=(0, 0), flexible=0):
    name: String = ""
    id: Uuid = bytes(16)
    partition_count: Int32 = 0


class DeletionDoneRecord(Struct, key=6, versions=(0, 0), flexible=0):
    name: String = ""
    id: Uuid = bytes(16)


class PartitionsCreatedRecord(Struct, key=7, versions=(0, 0), flexible=0):
    name: String = ""
    id: Uuid = bytes(16)
    partitions: RecordPartitions = RecordPartitions()


class PartitionsChangedRecord(Struct, key=8, versions=(0, 0), flexible=0):
    name: String = ""
    id: Uuid = bytes(16)
    partitions: RecordPartitions = RecordPartitions()


class ConfigsRecord(Struct, key=9, versions=(0, 0), flexible=0):
    resource_type: Int8 = 0  # as in DescribeConfigs
    name: String = ""
    configs: list[RecordConfig] = []


class FeaturesRecord(Struct, key=10, versions=(0, 0), flexible=0):
    levels: list[RecordFeature] = []
    epoch: Int64 = 0


class RecordAcl(Struct):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission: Int8 = 0


class AclsRecord(Struct, key=11, versions=(0, 0), flexible=0):
    """All ACLs that a resource pattern now has; none: it has no more."""

    resource_type: Int8 = 0
    name: String = ""
    pattern_type: Int8 = 0
    acls: list[RecordAcl] = []


class RecordEntityPart(Struct):
    type: String = ""
    name: NullableString = None  # null: all that have none of their own


class EntityConfigsRecord(Struct, key=12, versions=(0, 0), flexible=0):
    """All configs of a user, a client id, both or an address: quotas, and a user's credentials."""

    entity: list[RecordEntityPart] = []
    configs: list[RecordConfig] = []


class SecretRecord(Struct, key=13, versions=(0, 0), flexible=0):
    """What salts are derived from for users that have no credential."""

    secret: Bytes = b""


class RecordPrincipal(Struct):
    type: String = ""
    name: String = ""


class TokenRecord(Struct, key=14, versions=(0, 0), flexible=0):
    """A delegation token (KIP-48), without what proves it."""

    id: String = ""
    owner: RecordPrincipal = RecordPrincipal()
    requester: RecordPrincipal = RecordPrincipal()
    renewers: list[RecordPrincipal] = []
    issued_ms: Int64 = 0
    expires_ms: Int64 = 0
    max_ms: Int64 = 0


class TokenGoneRecord(Struct, key=15, versions=(0, 0), flexible=0):
    id: String = ""


RECORDS: dict[int, type[Struct]] = {
    kind: each
    for each in (
        ControllerRecord,
        ClusterRecord,
        BrokerRecord,
        BrokerGoneRecord,
        TopicRecord,
        TopicDeletedRecord,
        DeletionDoneRecord,
        PartitionsCreatedRecord,
        PartitionsChangedRecord,
        ConfigsRecord,
        FeaturesRecord,
        AclsRecord,
        EntityConfigsRecord,
        SecretRecord,
        TokenRecord,
        TokenGoneRecord,
    )
    if (kind := each.__schema__.key) is not None
}
TYPES = {cls: kind for kind, cls in RECORDS.items()}
# The levels from which on a record is sent in version 0, 1 and so on; in version 0 from the first
# level on unless it is here.
SECURITY_LEVEL = 3
TOKENS_LEVEL = 4
LEVELS: dict[type[Struct], tuple[int, ...]] = {
    BrokerRecord: (FIRST_LEVEL, 2),
    AclsRecord: (SECURITY_LEVEL,),
    EntityConfigsRecord: (SECURITY_LEVEL,),
    SecretRecord: (SECURITY_LEVEL,),
    TokenRecord: (TOKENS_LEVEL,),
    TokenGoneRecord: (TOKENS_LEVEL,),
}
HIGHEST_LEVEL = TOKENS_LEVEL  # that this version understands


S = TypeVar("S", bound=Struct)


def version_at(cls: type[Struct], level: int) -> int:
    """The version in which a record is sent at a level; -1 when it belongs to a later one."""
    return sum(first <= level for first in LEVELS.get(cls, (FIRST_LEVEL,))) - 1


def pack(message: Struct, level: int) -> FeedRecord:
    """The record that carries a change at a level; fields of later ones are left out.

    Raises ValueError for a record of a later level: a change that needs it must not be made.
    """
    cls = type(message)
    version = version_at(cls, level)
    if version < 0:
        raise ValueError(f"{cls.__name__} cannot be sent at level {level}")
    return FeedRecord(type=TYPES[cls], version=version, data=write(message, version))


def unpack(record: FeedRecord, level: int = HIGHEST_LEVEL) -> Struct:
    """The change that a record carries, for a reader that understands the levels up to `level`.

    Raises MalformedMessage when the record is none of these.
    """
    cls = RECORDS.get(record.type)
    if cls is None or not 0 <= record.version <= version_at(cls, level):
        raise MalformedMessage(f"feed record of type {record.type}, version {record.version}")
    return whole(cls, record.data, record.version)


def whole(cls: type[S], data: Buffer, version: int = 0) -> S:
    """The inverse of `write`. Raises MalformedMessage, also when bytes are left over."""
    message, end = reader(cls, version)(data, 0)
    if end != len(data):
        raise MalformedMessage(f"{cls.__name__}: {len(data) - end} bytes left over")
    return message


def write(message: Struct, version: int = 0) -> bytes:
    """A record or a batch as bytes."""
    return bytes(writer(type(message), version)(message, Out()))
