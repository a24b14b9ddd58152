"""The small named tuples that callers give and get, as kafka-python has them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

# The types of keys and values; Any where they are not given.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "IsolationLevel",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
    "TopicPartitionReplica",
]


class IsolationLevel(IntEnum):
    """What a reader sees of transactions; an option takes the number too."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class TopicPartitionReplica(NamedTuple):
    """A copy of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset (the next to read), the text kept with it and the leader's epoch."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and the time of the record there."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Who commits: what a transaction needs to know of a consumer."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record went; `offset` is -1 if it is unknown (acks=0)."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record as it was read; `timestamp_type` is 0 for its maker's time, 1 for the log's."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K
    value: V
    headers: list[tuple[str, bytes | None]]
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
