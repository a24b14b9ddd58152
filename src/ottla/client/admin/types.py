"""What goes into the admin and comes out of it, as kafka-python names it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, NotRequired, TypeAlias, TypedDict

from ottla.wire.schema import Fixed, Struct

from ..errors import BrokerResponseError
from ..structs import TopicPartition


class NewTopic:
    """A topic to create; -1 means the broker's default."""

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = dict(replica_assignments or {})
        self.topic_configs = dict(topic_configs or {})


class TopicOptions(TypedDict, total=False):
    """A topic to create, by name in a dict."""

    num_partitions: int
    replication_factor: int
    assignments: Mapping[int, list[int]] | None
    configs: Mapping[str, str] | None


class NewPartitions:
    """How many partitions a topic shall have, and where the new ones go."""

    def __init__(self, total_count: int, new_assignments: list[list[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class PartitionOptions(TypedDict):
    """`NewPartitions` as a dict."""

    count: int
    assignments: NotRequired[list[list[int]] | None]


class TopicCursor(TypedDict):
    """Where a page of partitions begins."""

    topic_name: str
    partition_index: int


class ElectionType(IntEnum):
    """Which leader an election looks for."""

    PREFERRED = 0  # the first replica, if it is in sync
    UNCLEAN = 1  # for a partition without a leader: any replica, whatever it lacks


class ConfigResourceType(IntEnum):
    """Whose configs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# Names to describe; or what to set, each a value or (AlterConfigOp, value).
ConfigNames: TypeAlias = Iterable[str] | Mapping[str, object] | None


class ConfigResource:
    """A thing that has configs, and the ones that matter (a dict to change, None for all)."""

    def __init__(
        self,
        resource_type: ConfigResourceType | str | int,
        name: str | int,
        configs: ConfigNames = None,
    ) -> None:
        if isinstance(resource_type, str):
            resource_type = ConfigResourceType[resource_type.upper()]
        self.resource_type = ConfigResourceType(resource_type)
        self.name = str(name)
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, {self.configs!r})"


class AlterConfigOp(IntEnum):
    """What to do with one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSourceType(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """What kind of value a config has."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateFeatureType(IntEnum):
    """How far an update of a feature may go."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureLevels(TypedDict):
    """A feature's lowest and highest level that the broker supports, and the one in force."""

    supported: tuple[int, int] | None
    finalized: int


class Features(TypedDict):
    """The features of a cluster by name, and the epoch of the levels in force."""

    features: dict[str, FeatureLevels]
    epoch: int


class ConfigFilterType(IntEnum):
    """Which configs to describe; the name in small letters will do."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class OffsetSpec(IntEnum):
    """Offsets that have a name."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetTimestamp(int):
    """The first offset at or after a time (ms), where a plain number would be an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class OffsetReset(TypedDict):
    """Where a group's partition stands now, or why it does not."""

    error: type[BrokerResponseError] | None
    offset: int


class GroupState(StrEnum):
    """The states of a group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(StrEnum):
    """The kinds of groups."""

    UNKNOWN = "unknown"
    CONSUMER = "consumer"
    CLASSIC = "classic"
    SHARE = "share"
    STREAMS = "streams"


class GroupMember(NamedTuple):
    """A member of a group of any kind; None is what its kind of group does not have."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target_assignment: list[TopicPartition] | None = None
    epoch: int | None = None
    uses_new_protocol: bool | None = None  # of a group that may have members of both kinds


class GroupDescription(NamedTuple):
    """A group of any kind with its members (`type` says which); None as above."""

    group_id: str
    type: GroupType
    state: str
    assignor: str
    members: list[GroupMember]
    epoch: int | None = None
    assignment_epoch: int | None = None


class ShareOffset(NamedTuple):
    """Where a share group begins in a partition; None is not known.

    `lag` counts what lies from there to the end and is not done yet.
    """

    start_offset: int
    leader_epoch: int | None
    lag: int | None


class MemberToRemove(NamedTuple):
    """A member by its id or, if it is static, by its instance's."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class TransactionState(StrEnum):
    """The states of a transaction."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        return cls.UNKNOWN


class TransactionListing(NamedTuple):
    """A transactional id and the state of its transaction."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """All that its coordinator knows of a transaction."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class HangingTransaction(TypedDict):
    """A transaction that has been open for too long."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    age_ms: int
    coordinator_id: int
    topic_partitions: list[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition's leader knows of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers of one partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """A transaction to end on one partition; epoch -1 stands above any coordinator's."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


def to_dict(message: object) -> Any:
    """A message as plain dictionaries and lists; ids as `uuid.UUID`."""
    if isinstance(message, list):
        return [to_dict(each) for each in message]
    if not isinstance(message, Struct):
        return message
    plain: dict[str, object] = {}
    for field in type(message).__schema__.fields:
        value = getattr(message, field.name)
        if isinstance(field.kind, Fixed) and field.kind.code == "16s" and not field.many:
            value = uuid.UUID(bytes=bytes(value))
        plain[field.name] = to_dict(value)
    return plain
