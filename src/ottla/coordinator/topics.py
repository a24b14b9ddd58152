"""The cluster's topics, as the coordinators of one broker see them: one view for their shards.

A group has a hash of the topics that its members subscribe to, as Kafka computes it (KIP-1101):
when it differs from the one in the group's record, the group's epoch rises. Hashes are kept by
topic, and a change of leaders or of the ISR, which a hash does not cover, costs one comparison.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.cluster.image import ZERO_ID, ClusterImage, TopicImage
from ottla.wire.xxh3 import xxh3_64

MAGIC = b"\0"
pack_int = struct.Struct("<i").pack
pack_hash = struct.Struct("<Q").pack


class HashedTopic(NamedTuple):
    """A topic's hash, and what it was computed from."""

    topic: TopicImage
    hash: int


class TopicsView:
    """Follows the cluster's image."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._hashes: dict[str, HashedTopic] = {}
        self._racks: Mapping[int, str] = {}
        self._racks_of: Mapping[int, object] = {}
        self._ids_seen: Mapping[bytes, TopicImage] = {}
        self._newest_creation = -1

    @property
    def newest_creation(self) -> int:
        """The number of an image since which no topic was created; patterns are resolved anew."""
        ids = self.image.topics_by_id
        if ids is not self._ids_seen:
            if self._newest_creation < 0 or ids.keys() - self._ids_seen.keys():
                self._newest_creation = self.image.number
            self._ids_seen = ids
        return max(self._newest_creation, 0)

    def partition_count(self, topic_id: bytes) -> int:
        """-1 for a topic that does not exist."""
        topic = self.image.topics_by_id.get(topic_id)
        return -1 if topic is None else len(topic.partitions)

    def ids_of(self, names: Iterable[str]) -> dict[bytes, int]:
        """The ids of those topics that exist, with their numbers of partitions."""
        topics = self.image.topics
        found = (topics.get(name) for name in names)
        return {topic.id: len(topic.partitions) for topic in found if topic is not None}

    def partition_ids(self, partitions: Iterable[tuple[str, int]]) -> list[tuple[bytes, int]]:
        """Partitions with their topics' ids; zeros for a topic that does not exist."""
        topics = self.image.topics
        return [
            (topics[name].id if name in topics else ZERO_ID, index) for name, index in partitions
        ]

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def group_hash(self, names: Iterable[str]) -> int:
        """The hash of the topics that exist among these, signed as in the record."""
        topics = self.image.topics
        # Java sorts by UTF-16 units; topics' names are ASCII.
        hashes = [self._topic_hash(topics[name]) for name in sorted(names) if name in topics]
        return signed(xxh3_64(b"".join(map(pack_hash, hashes)))) if hashes else 0

    def _topic_hash(self, topic: TopicImage) -> int:
        self._follow_racks()
        known = self._hashes.get(topic.name)
        if known is not None:
            if known.topic is topic:
                return known.hash
            if same_for_hash(known.topic, topic):
                self._hashes[topic.name] = HashedTopic(topic, known.hash)
                return known.hash
        hashed = topic_hash(topic, self._racks)
        self._hashes[topic.name] = HashedTopic(topic, hashed)
        return hashed

    def _follow_racks(self) -> None:
        brokers = self.image.brokers
        if brokers is self._racks_of:
            return
        self._racks_of = brokers
        racks = {each.id: each.rack for each in brokers.values() if each.rack is not None}
        if racks != self._racks:
            self._racks = racks
            self._hashes.clear()
        for name in [name for name in self._hashes if name not in self.image.topics]:
            del self._hashes[name]


def same_for_hash(one: TopicImage, other: TopicImage) -> bool:
    if one.id != other.id or len(one.partitions) != len(other.partitions):
        return False
    pairs = zip(one.partitions, other.partitions, strict=True)
    return all(old is new or old.replicas == new.replicas for old, new in pairs)


def topic_hash(topic: TopicImage, racks: Mapping[int, str]) -> int:
    """Kafka's hash of a topic: id, name, and each partition's racks; unsigned."""
    high, low = topic.id[:8], topic.id[8:]
    parts = [MAGIC, high[::-1], low[::-1], *text(topic.name), pack_int(len(topic.partitions))]
    for partition in topic.partitions:
        parts.append(pack_int(partition.index))
        for rack in sorted(racks[each] for each in partition.replicas if each in racks):
            parts.append(pack_int(utf16_units(rack)))
            parts += text(rack)
    return xxh3_64(b"".join(parts))


def text(value: str) -> tuple[bytes, bytes]:
    """A string as the hash has it: UTF-16, then how many units."""
    data = value.encode("utf-16-le", "surrogatepass")
    return data, pack_int(len(data) // 2)


def utf16_units(value: str) -> int:
    return len(value.encode("utf-16-le", "surrogatepass")) // 2


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
