"""What a share consumer gives and takes."""

from __future__ import annotations

from enum import IntEnum
from typing import Generic, NamedTuple

from ..structs import K, TopicPartition, V

GAP = 0  # there is no record at this offset


class AcknowledgeType(IntEnum):
    """What became of a record."""

    ACCEPT = 1  # processed
    RELEASE = 2  # not processed: deliver it again, to whomever
    REJECT = 3  # cannot be processed: never again
    RENEW = 4  # still being processed: hold it for longer


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record as it was delivered: the fields of a `ConsumerRecord`, and for which time."""

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
    delivery_count: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Batch(NamedTuple):
    """Records of one partition, and what is said of all of them, or of each."""

    first: int
    last: int
    types: list[int]
