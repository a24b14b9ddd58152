"""Committed offsets of the groups of one shard, also those that wait for a transaction to end.

State changes by `replay_offset` and `replay_marker` alone. An offset committed inside a transaction
is pending until the producer's marker comes: then it counts, or it never was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.coordinator.effects import Producer, Record
from ottla.wire.coordinator_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    write_key,
    write_value,
)

# What Kafka 4.3 writes: 3, or 1 when the offset carries its own time of expiry.
VALUE_VERSION = 3
VALUE_VERSION_WITH_EXPIRY = 1
NO_EXPIRY = -1

TopicPartition = tuple[str, int]


class Committed(NamedTuple):
    """One committed offset: the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1


def offset_record(group_id: str, topic: str, partition: int, committed: Committed) -> Record:
    expires = committed.expire_timestamp_ms != NO_EXPIRY
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    version = VALUE_VERSION_WITH_EXPIRY if expires else VALUE_VERSION
    return Record(offset_key(group_id, topic, partition), write_value(value, version))


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(offset_key(group_id, topic, partition), None)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return write_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


class Offsets:
    """All offsets of one shard: committed ones by group, pending ones by producer."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, Committed]]] = {}
        # How many open transactions hold an offset of a group's partition.
        self._unstable: dict[tuple[str, TopicPartition], int] = {}

    def of(self, group_id: str) -> dict[TopicPartition, Committed]:
        return self.by_group.get(group_id, {})

    def unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a transaction under way may still change this offset."""
        return (group_id, partition) in self._unstable

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self._pending.values())

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None,
               producer: Producer | None, offset: int) -> None:  # fmt: skip
        partition = (key.topic, key.partition)
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
        )
        if producer is None:
            self.by_group.setdefault(key.group, {})[partition] = committed
            return
        mine = self._pending.setdefault(producer.producer_id, {}).setdefault(key.group, {})
        if partition not in mine:
            place = (key.group, partition)
            self._unstable[place] = self._unstable.get(place, 0) + 1
        mine[partition] = committed

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A producer's transaction has ended: its pending offsets count now, or never did."""
        for group_id, offsets in self._pending.pop(producer.producer_id, {}).items():
            for partition, pending in offsets.items():
                self._stabler(group_id, partition)
                if not committed:
                    continue
                kept = self.by_group.setdefault(group_id, {})
                current = kept.get(partition)
                # A later plain commit wins over an earlier one that was only decided now.
                if current is None or current.record_offset < pending.record_offset:
                    kept[partition] = pending

    def _stabler(self, group_id: str, partition: TopicPartition) -> None:
        place = (group_id, partition)
        left = self._unstable.get(place, 0) - 1
        if left > 0:
            self._unstable[place] = left
        else:
            self._unstable.pop(place, None)

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self.by_group[group_id]
        # A tombstone also undoes what a transaction under way has written before it.
        for groups in self._pending.values():
            if groups.get(group_id, {}).pop(partition, None) is not None:
                self._stabler(group_id, partition)

    def pending_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        for groups in self._pending.values():
            yield from groups.get(group_id, {})
