"""Committed offsets of the groups of one shard, also those that wait for a transaction to end.

State changes by `replay` and `replay_marker` alone. An offset committed inside a transaction
is pending until the producer's marker comes: then it counts, or it never was.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.coordinator.effects import Producer, Record
from ottla.wire.coordinator_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    write_value,
)
from ottla.wire.schema import NO_UUID
from ottla.wire.varint import put_uvarint

# What Kafka 4.3 writes: 4 with the topic's id, or 1 when the offset carries its time of expiry.
VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1
NO_EXPIRY = -1
KEY_TYPE = 1
NO_TAGS = b"\0"
# One tagged field: number 0, of 16 bytes.
ONE_TAG_TOPIC_ID = b"\1\0\x10"
pack_start = struct.Struct(">hqi").pack
pack_timestamp = struct.Struct(">q").pack
pack_key_start = struct.Struct(">hh").pack
pack_length = struct.Struct(">h").pack
pack_partition = struct.Struct(">i").pack

SHARED_MAX = 100_000

TopicPartition = tuple[str, int]
T = TypeVar("T")


class Committed(NamedTuple):
    """One committed offset: the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1
    topic_id: bytes = NO_UUID

    def is_of(self, topic_id: bytes) -> bool:
        """False when it was committed for another topic that once had the same name."""
        return self.topic_id == topic_id or NO_UUID in (self.topic_id, topic_id)


def offset_record(group_id: str, topic: str, partition: int, committed: Committed) -> Record:
    key = offset_key(group_id, topic, partition)
    if committed.expire_timestamp_ms != NO_EXPIRY:
        value = write_value(declared_value(committed), VALUE_VERSION_WITH_EXPIRY)
        return Record(key, value)
    # By hand, for every commit of every group comes through here: a quarter of the time.
    note = committed.metadata.encode()
    has_id = committed.topic_id != NO_UUID
    return Record(
        key,
        b"".join(
            (
                pack_start(VALUE_VERSION, committed.offset, committed.leader_epoch),
                put_uvarint(len(note) + 1),
                note,
                pack_timestamp(committed.commit_timestamp_ms),
                ONE_TAG_TOPIC_ID if has_id else NO_TAGS,
                committed.topic_id if has_id else b"",
            )
        ),
    )


def declared_value(committed: Committed) -> OffsetCommitValue:
    """The same by the declaration of the format."""
    return OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(offset_key(group_id, topic, partition), None)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join(
        (
            pack_key_start(KEY_TYPE, len(group)),
            group,
            pack_length(len(name)),
            name,
            pack_partition(partition),
        )
    )


def metadata_too_long(metadata: str | None, length_max: int) -> bool:
    """Whether a note is longer than the broker keeps, counted as Java counts: in UTF-16 units."""
    if metadata is None or len(metadata) * 2 <= length_max:
        return False
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > length_max


class Shared:
    """One object for equal values: many groups read the same partitions."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def same(self, value: T) -> T:
        if len(self._values) >= SHARED_MAX:
            self._values.clear()  # what is in use stays; only later ones are not shared with it
        shared: T = self._values.setdefault(value, value)
        return shared


class Offsets:
    """All offsets of one shard: committed ones by group, pending ones by producer."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], Committed]] = {}
        # Which producers' open transactions hold an offset of a group's partition.
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        self._shared = Shared()

    def of(self, group_id: str) -> dict[TopicPartition, Committed]:
        return self.by_group.get(group_id, {})

    def unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a transaction under way may still change this offset."""
        return group_id in self._open and partition in self._open[group_id]

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def pending_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        yield from self._open.get(group_id, ())

    def of_topics(self, topics: Collection[str]) -> Iterator[tuple[str, TopicPartition]]:
        """Every offset there is of these topics, committed or pending; some twice."""
        held: tuple[Mapping[str, Mapping[TopicPartition, object]], ...]
        held = (self.by_group, self._open)
        for groups in held:
            for group_id, offsets in groups.items():
                for partition in offsets:
                    if partition[0] in topics:
                        yield group_id, partition

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer: Producer | None,
        offset: int,
    ) -> None:
        """One record: an offset, or a tombstone."""
        same = self._shared.same
        partition = same((key.topic, key.partition))
        if value is None:
            self._forget(key.group, partition)
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            offset,
            same(value.topic_id),
        )
        if producer is None:
            self.by_group.setdefault(key.group, {})[partition] = committed
        else:
            self._pending.setdefault(producer.producer_id, {})[key.group, partition] = committed
            holders = self._open.setdefault(key.group, {}).setdefault(partition, set())
            holders.add(producer.producer_id)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A producer's transaction has ended: its pending offsets count now, or never did."""
        ended = self._pending.pop(producer.producer_id, {})
        for (group_id, partition), pending in ended.items():
            self._release(group_id, partition, producer.producer_id)
            if not committed:
                continue
            kept = self.by_group.setdefault(group_id, {})
            current = kept.get(partition)
            # A later plain commit wins over an earlier one that was only decided now.
            if current is None or current.record_offset < pending.record_offset:
                kept[partition] = pending

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self.by_group[group_id]
        # A tombstone also undoes what a transaction under way has written before it.
        for producer_id in tuple(self._open.get(group_id, {}).get(partition, ())):
            del self._pending[producer_id][group_id, partition]
            self._release(group_id, partition, producer_id)

    def _release(self, group_id: str, partition: TopicPartition, producer_id: int) -> None:
        partitions = self._open[group_id]
        holders = partitions[partition]
        holders.discard(producer_id)
        if not holders:
            del partitions[partition]
            if not partitions:
                del self._open[group_id]
