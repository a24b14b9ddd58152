"""Committed offsets of the groups of one shard, and those pending until a transaction ends.

State changes by `load`, `replay` and `replay_marker` alone. An offset that is committed inside a
transaction is pending until the producer's marker is replayed: then it counts, or is dropped.

Offsets are kept as the bytes of their records and decoded when they are read. Loading a log,
and replaying a commit, therefore decodes nothing, and the last of many records with the same key
simply replaces the others.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ottla.coordinator.effects import Producer, Record
from ottla.wire.coordinator_records import OffsetCommitValue, read_value, write_value
from ottla.wire.key_values import KeyValue
from ottla.wire.malformed import MalformedMessage
from ottla.wire.schema import NO_UUID
from ottla.wire.varint import put_uvarint

# What Kafka 4.3 writes: 4 with the topic's id, or 1 when the offset has its own expiration time.
VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1
NO_EXPIRY = -1
KEY_TYPE = 1
# How the key of an offset's record begins.
OFFSET_KEY = b"\0\1"
NO_TAGS = b"\0"
# One tagged field: number 0, of 16 bytes.
ONE_TAG_TOPIC_ID = b"\1\0\x10"
pack_start = struct.Struct(">hqi").pack
unpack_start = struct.Struct(">2xqi").unpack_from
pack_timestamp = struct.Struct(">q").pack
unpack_timestamp = struct.Struct(">q").unpack_from
pack_key_start = struct.Struct(">hh").pack
pack_length = struct.Struct(">h").pack
pack_partition = struct.Struct(">i").pack
pack_offset = struct.Struct(">q").pack
# Of a value: version, offset, leader epoch; where its metadata begins.
METADATA_POSITION = 14
# The size of a value of VALUE_VERSION without its metadata: with no tag, or with the topic's id.
PLAIN_SIZES = (23, 41)

# Distinct partitions whose keys are kept once for all groups that read them.
SHARED_MAX = 100_000

TopicPartition = tuple[str, int]
# A record's value, and in 8 bytes its offset in the log: one object, unknown to the garbage
# collector, where a tuple of both would be three. There may be millions.
StoredOffset = bytes


class Committed(NamedTuple):
    """One committed offset: the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: bytes = NO_UUID

    def is_of(self, topic_id: bytes) -> bool:
        """False when it was committed for an earlier topic of the same name."""
        return self.topic_id == topic_id or NO_UUID in (self.topic_id, topic_id)


def offset_record(group_id: str, topic: str, partition: int, committed: Committed) -> Record:
    key = offset_key(group_id, topic, partition)
    if committed.expire_timestamp_ms != NO_EXPIRY:
        value = write_value(declared_value(committed), VALUE_VERSION_WITH_EXPIRY)
        return Record(key, value)
    # Not by the declaration: every commit of every group is written here, in a quarter of the time.
    metadata = committed.metadata.encode()
    has_id = committed.topic_id != NO_UUID
    return Record(
        key,
        b"".join(
            (
                pack_start(VALUE_VERSION, committed.offset, committed.leader_epoch),
                put_uvarint(len(metadata) + 1),
                metadata,
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


def decode(value: bytes) -> Committed:
    """A record's value, of any version; `MalformedMessage` if it is none."""
    plain = plain_end(value)
    if plain:
        offset, leader_epoch = unpack_start(value)
        metadata = value[METADATA_POSITION + 1 : plain].decode()
        (timestamp_ms,) = unpack_timestamp(value, plain)
        topic_id = value[-16:] if value[plain + 8] else NO_UUID
        return Committed(offset, leader_epoch, metadata, timestamp_ms, NO_EXPIRY, topic_id)
    found = read_value(OffsetCommitValue, value)
    return Committed(
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
        found.topic_id,
    )


def plain_end(value: bytes) -> int:
    """The end of the metadata if `value` is just as `offset_record` writes it, and that is short.

    0 if it has another version or form: the declaration of the format reads it then.
    """
    if len(value) < 24 or value[0] or value[1] != VALUE_VERSION:
        return 0
    size = value[METADATA_POSITION]
    end = METADATA_POSITION + size
    left = len(value) - end - 8
    if not 0 < size < 128:
        return 0
    if left == 1 and not value[-1]:
        return end
    return end if left == 19 and value[end + 8 : end + 11] == ONE_TAG_TOPIC_ID else 0


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(offset_key(group_id, topic, partition), None)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group = group_id.encode()
    start = pack_key_start(KEY_TYPE, len(group))
    return b"".join((start, group, partition_key(topic, partition)))


def partition_key(topic: str, partition: int) -> bytes:
    """The part of a record's key after the group."""
    name = topic.encode()
    return b"".join((pack_length(len(name)), name, pack_partition(partition)))


def partition_of_key(key: bytes) -> TopicPartition:
    """What `partition_key` was made of."""
    return key[2:-4].decode(), int.from_bytes(key[-4:], "big", signed=True)


def log_offset(stored: StoredOffset) -> int:
    """Where the record of a stored offset is in the log."""
    return int.from_bytes(stored[-8:], "big")


def metadata_too_long(metadata: str | None, length_max: int) -> bool:
    """Whether metadata is longer than the broker keeps, in UTF-16 units as Java counts."""
    if metadata is None or len(metadata) * 2 <= length_max:
        return False
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > length_max


class GroupOffsets(Mapping[TopicPartition, Committed]):
    """The committed offsets of one group; each is decoded when it is read."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Mapping[bytes, StoredOffset]) -> None:
        self._stored = stored

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(partition_of_key, self._stored)

    def __getitem__(self, partition: TopicPartition) -> Committed:
        return decode(self._stored[partition_key(*partition)][:-8])


class Offsets:
    """All offsets of one shard: committed ones by group, pending ones by producer."""

    def __init__(self) -> None:
        # By group and by `partition_key`.
        self.by_group: dict[str, dict[bytes, StoredOffset]] = {}
        self._pending: dict[int, dict[tuple[str, bytes], StoredOffset]] = {}
        # The producers whose open transactions have an offset of a group's partition.
        self._open: dict[str, dict[bytes, set[int]]] = {}
        # One object for equal keys: many groups read the same partitions.
        self._shared: dict[bytes, bytes] = {}
        # While loading: the offsets of a group by the part of their records' keys that names it.
        self._loading: dict[bytes, dict[bytes, StoredOffset]] = {}

    def of(self, group_id: str) -> GroupOffsets:
        return GroupOffsets(self.by_group.get(group_id, {}))

    def group_ids(self) -> Iterator[str]:
        """Every group with an offset, committed or pending; some twice."""
        yield from self.by_group
        yield from self._open

    def unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset."""
        return group_id in self._open and partition_key(*partition) in self._open[group_id]

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def pending_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        return map(partition_of_key, self._open.get(group_id, ()))

    def of_topics(
        self, group_id: str, topics: Collection[bytes], last_offset: int
    ) -> set[TopicPartition]:
        """The partitions of these topics with an offset, committed or pending, of a group.

        Only those whose records are not behind `last_offset` in the log. Topics are encoded.
        """
        found = [
            key
            for key, stored in self.by_group.get(group_id, {}).items()
            if key[2:-4] in topics and log_offset(stored) <= last_offset
        ]
        for key, producers in self._open.get(group_id, {}).items():
            if key[2:-4] in topics and any(
                log_offset(self._pending[each][group_id, key]) <= last_offset for each in producers
            ):
                found.append(key)
        return {partition_of_key(key) for key in found}

    # ---- loading ---------------------------------------------------------------------------------

    def load(self, records: list[KeyValue]) -> list[KeyValue]:
        """Apply records outside of transactions while the log is loaded.

        Returns those that are no offsets. A loop almost without calls: it runs for each record of a
        log. Values are looked at only as far as needed to know that `decode` can read them.
        """
        others: list[KeyValue] = []
        loading, shared = self._loading, self._shared
        try:
            for record in records:
                key, value, offset = record
                if key is None or key[:2] != OFFSET_KEY:
                    others.append(record)
                    continue
                split = 4 + (key[2] << 8 | key[3])
                prefix = key[:split]
                stored = loading.get(prefix)
                if stored is None:
                    stored = self._load_group(prefix, split)
                rest = key[split:]
                partition = shared.get(rest) or self._share(rest)
                if value is None:
                    stored.pop(partition, None)
                    if self._open:
                        self._drop_pending(prefix[4:].decode(), partition)
                    continue
                if value[1] != VALUE_VERSION or len(value) - value[14] not in PLAIN_SIZES:
                    decode(value)  # raises if it cannot be read
                stored[partition] = value + pack_offset(offset)
        except (IndexError, UnicodeDecodeError) as problem:
            raise MalformedMessage(f"the record of a committed offset: {problem}") from problem
        return others

    def _load_group(self, prefix: bytes, split: int) -> dict[bytes, StoredOffset]:
        if len(prefix) != split:
            raise MalformedMessage(f"the group of a committed offset has {len(prefix) - 4} bytes")
        stored = self.by_group.setdefault(prefix[4:].decode(), {})
        self._loading[prefix] = stored
        return stored

    def _share(self, partition: bytes) -> bytes:
        """The same key, checked, and the object that equal ones will be replaced by."""
        if len(partition) < 6 or len(partition) != 6 + int.from_bytes(partition[:2], "big"):
            raise MalformedMessage(f"the partition of an offset has {len(partition)} bytes")
        partition_of_key(partition)
        if len(self._shared) >= SHARED_MAX:
            self._shared.clear()  # what is in use stays; only later keys are not shared with it
        return self._shared.setdefault(partition, partition)

    def loaded(self) -> None:
        """The whole log has been replayed."""
        self._loading.clear()
        for group_id in [group_id for group_id, stored in self.by_group.items() if not stored]:
            del self.by_group[group_id]

    # ---- replay ----------------------------------------------------------------------------------

    def replay(
        self,
        group_id: str,
        partition: bytes,
        value: bytes | None,
        producer: Producer | None,
        offset: int,
    ) -> None:
        """Apply one record: an offset, or a tombstone; `partition` as `partition_key` writes it."""
        if value is None:
            self._delete(group_id, partition)
        elif producer is None:
            partition = self._shared.get(partition) or self._share(partition)
            self.by_group.setdefault(group_id, {})[partition] = value + pack_offset(offset)
        else:
            pending = self._pending.setdefault(producer.producer_id, {})
            pending[group_id, partition] = value + pack_offset(offset)
            producers = self._open.setdefault(group_id, {}).setdefault(partition, set())
            producers.add(producer.producer_id)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A producer's transaction has ended: its pending offsets count, or are dropped."""
        ended = self._pending.pop(producer.producer_id, {})
        for (group_id, partition), pending in ended.items():
            self._release(group_id, partition, producer.producer_id)
            if not committed:
                continue
            stored = self.by_group.setdefault(group_id, {})
            current = stored.get(partition)
            # A later plain commit wins over an earlier one that is only decided now.
            if current is None or log_offset(current) < log_offset(pending):
                stored[partition] = pending

    def _delete(self, group_id: str, partition: bytes) -> None:
        stored = self.by_group.get(group_id)
        if stored is not None:
            stored.pop(partition, None)
            if not stored and not self._loading:
                del self.by_group[group_id]
        self._drop_pending(group_id, partition)

    def _drop_pending(self, group_id: str, partition: bytes) -> None:
        """A tombstone also deletes what an open transaction has written before it."""
        for producer_id in tuple(self._open.get(group_id, {}).get(partition, ())):
            del self._pending[producer_id][group_id, partition]
            self._release(group_id, partition, producer_id)

    def _release(self, group_id: str, partition: bytes, producer_id: int) -> None:
        partitions = self._open[group_id]
        producers = partitions[partition]
        producers.discard(producer_id)
        if not producers:
            del partitions[partition]
            if not partitions:
                del self._open[group_id]
