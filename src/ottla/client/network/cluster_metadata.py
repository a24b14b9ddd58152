"""The client's metadata of the cluster: brokers, topics, partitions and their leaders.

A `Cluster` never changes; an answer to Metadata makes a new one out of the old (`updated`). An
older leader epoch never replaces a newer one (KIP-320), and a hint in an error answer may move a
leader before Metadata is asked again (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.api.metadata import MetadataResponse, MetadataResponseTopic
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.wire.api import fetch, produce

NO_UUID = bytes(16)


class Broker(NamedTuple):
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(NamedTuple):
    """One partition; `leader` is -1 while there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


class Topic(NamedTuple):
    """One topic; `error_code` says why it cannot be used, or 0."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[Partition, ...]  # by index, without gaps
    error_code: int

    @property
    def available(self) -> tuple[int, ...]:
        """The partitions that have a leader now."""
        return tuple(each.partition for each in self.partitions if each.leader >= 0)


class Cluster:
    """Brokers by id, topics by name and id."""

    def __init__(
        self,
        brokers: Mapping[int, Broker] | None = None,
        topics: Mapping[str, Topic] | None = None,
        *,
        cluster_id: str | None = None,
        controller_id: int = -1,
    ) -> None:
        self.brokers = dict(brokers or {})
        self.topics = dict(topics or {})
        self.names = {topic.topic_id: name for name, topic in self.topics.items()}
        self.cluster_id = cluster_id
        self.controller_id = controller_id

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def leader(self, topic: str, index: int) -> int:
        """The id of the leading broker, or -1."""
        found = self.partition(topic, index)
        return -1 if found is None else found.leader

    def updated(self, answer: MetadataResponse, asked: Iterable[str] | None) -> Cluster:
        """The metadata after an answer; topics that were not asked about stay (None: all were)."""
        brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        topics = {} if asked is None else dict(self.topics)
        for name in asked or ():
            topics.pop(name, None)
        for topic in answer.topics:
            if topic.name is not None:
                topics[topic.name] = self._merged(topic.name, topic)
        return Cluster(
            brokers, topics, cluster_id=answer.cluster_id, controller_id=answer.controller_id
        )

    def _merged(self, name: str, topic: MetadataResponseTopic) -> Topic:
        old = self.topics.get(name)
        same = old is not None and old.topic_id == topic.topic_id
        partitions = []
        for each in sorted(topic.partitions, key=lambda found: int(found.partition_index)):
            known = self.partition(name, each.partition_index) if same else None
            if known is not None and -1 < each.leader_epoch < known.leader_epoch:
                partitions.append(known)
                continue
            partitions.append(
                Partition(
                    name,
                    each.partition_index,
                    each.leader_id,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    tuple(each.isr_nodes),
                    tuple(each.offline_replicas),
                    each.error_code,
                )
            )
        return Topic(name, topic.topic_id, topic.is_internal, tuple(partitions), topic.error_code)

    def with_leader(
        self,
        topic: str,
        index: int,
        leader: int,
        leader_epoch: int,
        endpoints: Iterable[fetch.NodeEndpoint | produce.NodeEndpoint] = (),
    ) -> Cluster:
        """The metadata after a hint (KIP-951); the same object if the hint is no news."""
        known = self.partition(topic, index)
        if known is None or leader < 0 or leader_epoch <= known.leader_epoch:
            return self
        brokers = dict(self.brokers)
        for each in endpoints:
            brokers[each.node_id] = Broker(each.node_id, each.host, each.port, each.rack)
        if leader not in brokers:
            return self
        old = self.topics[topic]
        partitions = list(old.partitions)
        partitions[index] = known._replace(leader=leader, leader_epoch=leader_epoch)
        topics = {**self.topics, topic: old._replace(partitions=tuple(partitions))}
        return Cluster(
            brokers, topics, cluster_id=self.cluster_id, controller_id=self.controller_id
        )


def topic_trouble(topic: str, found: Topic | None, *, auto_create: bool) -> tuple[int, str] | None:
    """Why a topic cannot be used and what to do, or None if it can."""
    if found is None:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"nothing is known of topic {topic!r} yet"
    code = found.error_code
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        why = (
            "the broker may have auto.create.topics.enable=false"
            if auto_create
            else "this client does not create topics (allow_auto_create_topics=False)"
        )
        return code, (
            f"there is no topic {topic!r}; {why}\nTry: ottla topics --create --topic {topic}"
        )
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return code, (
            f"{topic!r} is no name for a topic: 1 to 249 letters, digits, '.', '_' and '-'"
        )
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return code, f"this client may not use topic {topic!r}"
    if code:
        return code, f"topic {topic!r}: {ErrorCode(code).message}"
    if not found.partitions:
        return int(ErrorCode.LEADER_NOT_AVAILABLE), f"topic {topic!r} has no partitions yet"
    return None
