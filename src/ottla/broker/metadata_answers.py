"""Encoded parts of Metadata answers, kept until what they are made from changes.

An answer about 10,000 partitions is 260 kB and takes 15 to 30 ms to build and encode; clients ask
for it again every few minutes, and all of them at once after a restart. So each topic is encoded
once per variant (version, listener, with or without authorized operations) and kept as long as its
`TopicImage` is the same object, and the answer about all topics is kept as long as the image's
topics and brokers are. A change of one topic costs the encoding of that topic.

Partitions that differ in their index only share their bytes but for the index. What must be encoded
is encoded in slices (`PARTITIONS_PER_TURN`), so that no request holds the event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from ottla.broker.endpoints import nodes
from ottla.broker.fenced_lately import NOBODY
from ottla.cluster.image import ClusterImage, PartitionImage, TopicImage
from ottla.cluster.names import INTERNAL
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.out import Out
from ottla.wire.schema import writer

FLEXIBLE_FROM = 9
LISTENER_ERROR_FROM = 6
TOPIC_OPERATIONS_FROM = 8
CLUSTER_OPERATIONS = (8, 10)
ERROR_CODE_FROM = 13

# About two milliseconds of encoding; a topic costs as much as some partitions, a kept one as one.
PARTITIONS_PER_TURN = 2_000
TOPIC_COST = 10
KEPT_TOPIC_COST = 1
# Three or four versions are in use at a time, on two or three listeners.
VARIANTS_MAX = 16
# All variants together; 10,000 partitions are 260 kB in each.
ENCODED_BYTES_MAX = 64 * 1024 * 1024
# Partitions with different leaders, epochs or replicas, in one variant.
PARTITION_SHAPES_MAX = 20_000

_pack_error_and_index = struct.Struct(">hi").pack
_ERROR_AND_INDEX_BYTES = 6

Shape = tuple[int, int, tuple[int, ...], tuple[int, ...]]


class Variant:
    """The encoded topics of one version for one listener. Valid for one set of brokers."""

    def __init__(self, image: ClusterImage, listener: str, version: int, operations: int) -> None:
        self.brokers = image.brokers
        self.fenced = NOBODY  # brokers that are listed, and are not alive
        self.encoded_bytes = 0
        self.encoding = asyncio.Lock()
        self._version = version
        self._operations = operations
        self._write: Callable[[MetadataResponse, Out], object] = writer(MetadataResponse, version)
        self._listener = listener
        self._alive = {each.id for each in nodes(image, listener)}
        self._topics: dict[str, tuple[TopicImage, bytes]] = {}
        self._shapes: dict[Shape, tuple[int, bytes]] = {}
        self._whole: tuple[Mapping[str, TopicImage], tuple[object, ...], bytes] | None = None
        self._frames: dict[tuple[object, ...], tuple[bytes, bytes]] = {}
        flexible = version >= FLEXIBLE_FROM
        self._tag_bytes = 1 if flexible else 0
        self._array_bytes = 1 if flexible else 4  # of an array of no more than one item
        first, last = CLUSTER_OPERATIONS
        self._tail_bytes = self._tag_bytes
        self._tail_bytes += 4 if first <= version <= last else 0
        self._tail_bytes += 2 if version >= ERROR_CODE_FROM else 0
        self._topic_tail_bytes = self._tag_bytes + (4 if version >= TOPIC_OPERATIONS_FROM else 0)
        # What comes before the topics in an answer that has no brokers.
        self._bare_head_bytes = len(self._encode([])) - self._array_bytes - self._tail_bytes

    # Answers

    def all_topics(self, image: ClusterImage, cluster_operations: int) -> bytes | None:
        """The kept answer about all topics of this image; None when there is none."""
        if self._whole is None:
            return None
        topics, about, body = self._whole
        if topics is not image.topics or about != self._about(image, cluster_operations):
            return None
        return body

    def keep_all_topics(self, image: ClusterImage, cluster_operations: int, body: bytes) -> None:
        """Keep the answer about all topics, and forget topics that are gone."""
        if self._whole is not None:
            self.encoded_bytes -= len(self._whole[2])
        self._whole = (image.topics, self._about(image, cluster_operations), body)
        self.encoded_bytes += len(body)
        if len(self._topics) > len(image.topics):
            for name in self._topics.keys() - image.topics.keys():
                self.encoded_bytes -= len(self._topics.pop(name)[1])

    def answer(
        self, image: ClusterImage, topics: Sequence[bytes], cluster_operations: int
    ) -> bytes:
        """The body of an answer about these encoded topics."""
        head, tail = self._frame(image, cluster_operations)
        return b"".join((head, self._array_length(len(topics)), *topics, tail))

    # Topics

    def encode(
        self, topics: Iterable[TopicImage | MetadataResponseTopic], into: list[bytes]
    ) -> Iterator[None]:
        """Append the bytes of each topic to `into`, in steps of PARTITIONS_PER_TURN at most.

        Topics of the image are kept. Others (`MetadataResponseTopic`) have an error and no
        partitions.
        """
        left = PARTITIONS_PER_TURN
        for topic in topics:
            if left <= 0:
                yield
                left = PARTITIONS_PER_TURN
            kept = (
                None if isinstance(topic, MetadataResponseTopic) else self._topics.get(topic.name)
            )
            if kept is not None and kept[0] is topic:
                into.append(kept[1])
                left -= KEPT_TOPIC_COST
                continue
            left -= TOPIC_COST
            if isinstance(topic, MetadataResponseTopic):
                topic.topic_authorized_operations = self._operations
                into.append(self._encode_topic(topic))
                continue
            parts: list[bytes] = []
            start, count = 0, len(topic.partitions)
            while start < count:
                if left <= 0:
                    yield
                    left = PARTITIONS_PER_TURN
                piece = topic.partitions[start : start + left]
                parts.append(self._partitions(piece))
                start += len(piece)
                left -= len(piece)
            data = self._topic(topic, parts)
            into.append(data)
            self._keep(topic, data)

    def forget(self) -> None:
        """Keep nothing."""
        self._topics.clear()
        self._whole = None
        self.encoded_bytes = 0

    def _keep(self, topic: TopicImage, data: bytes) -> None:
        old = self._topics.get(topic.name)
        if old is not None:
            self.encoded_bytes -= len(old[1])
        self._topics[topic.name] = (topic, data)
        self.encoded_bytes += len(data)

    def _topic(self, topic: TopicImage, parts: list[bytes]) -> bytes:
        empty = self._encode_topic(
            MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.id,
                is_internal=topic.name in INTERNAL,
                topic_authorized_operations=self._operations,
            )
        )
        end = len(empty) - self._topic_tail_bytes
        head = empty[: end - self._array_bytes]
        length = self._array_length(len(topic.partitions))
        return b"".join((head, length, *parts, empty[end:]))

    def _partitions(self, partitions: Sequence[PartitionImage]) -> bytes:
        parts = []
        shapes = self._shapes
        for index, leader, leader_epoch, _, replicas, isr, *_ in partitions:
            shape = leader, leader_epoch, replicas, isr
            known = shapes.get(shape)
            if known is None:
                known = self._shape(shape)
            parts.append(_pack_error_and_index(known[0], index))
            parts.append(known[1])
        return b"".join(parts)

    def _shape(self, shape: Shape) -> tuple[int, bytes]:
        """The error, and the bytes behind the index, of partitions of this shape."""
        if len(self._shapes) >= PARTITION_SHAPES_MAX:
            self._shapes.clear()
        leader, leader_epoch, replicas, isr = shape
        example = PartitionImage(0, leader, leader_epoch, 0, replicas, isr)
        partition = described(example, self._alive, self.brokers, self._version)
        data = self._encode_topic(MetadataResponseTopic(name="", partitions=[partition]))
        empty = self._encode_topic(MetadataResponseTopic(name=""))
        # The two differ by the one partition, which lies before the end of the topic.
        start = len(empty) - self._topic_tail_bytes
        found = data[start + _ERROR_AND_INDEX_BYTES : len(data) - self._topic_tail_bytes]
        made = self._shapes[shape] = (partition.error_code, found)
        return made

    # Bytes

    def _encode(self, topics: list[MetadataResponseTopic]) -> bytes:
        out = Out()
        self._write(MetadataResponse(topics=topics), out)
        return bytes(out)

    def _encode_topic(self, topic: MetadataResponseTopic) -> bytes:
        data = self._encode([topic])
        return data[self._bare_head_bytes + self._array_bytes : len(data) - self._tail_bytes]

    def _array_length(self, count: int) -> bytes:
        if not self._tag_bytes:
            return count.to_bytes(4, "big")
        number, data = count + 1, bytearray()
        while number > 0x7F:
            data.append(number & 0x7F | 0x80)
            number >>= 7
        data.append(number)
        return bytes(data)

    def _frame(self, image: ClusterImage, cluster_operations: int) -> tuple[bytes, bytes]:
        """What comes before the array of topics, and behind it."""
        key = self._about(image, cluster_operations)
        frame = self._frames.get(key)
        if frame is None:
            out = Out()
            response = MetadataResponse(
                brokers=[
                    MetadataResponseBroker(
                        node_id=each.id, host=each.host, port=each.port, rack=each.rack
                    )
                    for each in nodes(image, self._listener, self.fenced)
                ],
                cluster_id=image.cluster_id,
                controller_id=image.controller_id,
                cluster_authorized_operations=cluster_operations,
            )
            self._write(response, out)
            end = len(out) - self._tail_bytes
            frame = bytes(out[: end - self._array_bytes]), bytes(out[end:])
            if len(self._frames) > VARIANTS_MAX:
                self._frames.clear()
            self._frames[key] = frame
        return frame

    def _about(self, image: ClusterImage, cluster_operations: int) -> tuple[object, ...]:
        return image.cluster_id, image.controller_id, self.fenced, cluster_operations


class MetadataAnswers:
    """The variants in use, the least recently used one first."""

    def __init__(self, fenced: Callable[[], frozenset[int]] = lambda: NOBODY) -> None:
        """`fenced` are listed among the brokers, though they are not alive."""
        self._fenced = fenced
        self._variants: dict[tuple[str, int, int], Variant] = {}

    def variant(self, image: ClusterImage, listener: str, version: int, operations: int) -> Variant:
        """The variant for this listener and version, with the topics' authorized operations."""
        key = (listener, version, operations)
        variant = self._variants.pop(key, None)
        if variant is None or variant.brokers is not image.brokers:
            variant = Variant(image, listener, version, operations)
        variant.fenced = self._fenced()
        self._variants[key] = variant
        if len(self._variants) > VARIANTS_MAX:
            del self._variants[next(iter(self._variants))]
        return variant

    def limit(self) -> None:
        """Forget the least recently used variants while all together are too large."""
        total = sum(variant.encoded_bytes for variant in self._variants.values())
        for key in list(self._variants):
            if total <= ENCODED_BYTES_MAX:
                return
            variant = self._variants.pop(key)
            total -= variant.encoded_bytes
            variant.forget()


def described(
    partition: PartitionImage, living: Container[int], registered: Container[int], version: int
) -> MetadataResponsePartition:
    """A partition for a client of a listener that the `living` brokers have an endpoint on."""
    alive = [each for each in partition.replicas if each in living]
    # Version 0 has no replicas without an address, so it leaves them out.
    replicas = alive if version == 0 else list(partition.replicas)
    in_sync = [each for each in partition.isr if version > 0 or each in alive]
    error = ErrorCode.NONE
    leader = partition.leader
    if leader not in alive:
        leader = -1
        listener_gone = partition.leader in registered and version >= LISTENER_ERROR_FROM
        error = ErrorCode.LISTENER_NOT_FOUND if listener_gone else ErrorCode.LEADER_NOT_AVAILABLE
    elif len(replicas) < len(partition.replicas) or len(in_sync) < len(partition.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        offline_replicas=[each for each in partition.replicas if each not in alive],
    )
