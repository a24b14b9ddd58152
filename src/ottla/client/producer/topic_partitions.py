"""From a topic, a key and the partitioner to the queue of a partition.

Queues of a topic are made when its metadata is known, and added when it gets more partitions. The
default partitioner is built in, for it runs for every record; others are asked.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.client.randomness import RANDOM
from ottla.wire.errors import ErrorCode

from ..codec.records import murmur2
from ..errors import IllegalArgumentError, KafkaTimeoutError, error_for
from ..network.cluster_client import UNKNOWN_S_MAX, ProducerClient
from ..network.cluster_metadata import Cluster, topic_trouble
from .accumulator import PartitionQueue
from .partitioners import ClusterView, DefaultPartitioner
from .sender import Sender


class TopicQueues:
    """The queues of one topic, and the one that records without a key go to now."""

    __slots__ = ("queues", "sticky")

    def __init__(self, queues: list[PartitionQueue], sticky: PartitionQueue) -> None:
        self.queues = queues
        self.sticky = sticky


class Topics:
    """Topics that were sent to."""

    def __init__(self, client: ProducerClient, sender: Sender, partitioner: object) -> None:
        self.client = client
        self.sender = sender
        self.partitioner: Any = None if type(partitioner) is DefaultPartitioner else partitioner
        self.known: dict[str, TopicQueues] = {}
        client.metadata.listeners.append(self._follow)

    def queue(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        key_object: object,
        value: object,
        value_bytes: bytes | None,
    ) -> PartitionQueue:
        """Where the record goes; waits for metadata of a new topic."""
        known = self.known.get(topic)
        if known is None:
            known = self._learn(topic)
        if partition is not None:
            return self._explicit(topic, known, partition)
        if self.partitioner is not None:
            partition = self._ask(topic, known, key, key_object, value, value_bytes)
            if partition is not None:
                return self._explicit(topic, known, partition)
        if key is None:
            return known.sticky
        queues = known.queues
        return queues[murmur2(key) % len(queues)]

    def next_queue(self, queue: PartitionQueue) -> PartitionQueue:
        """Another partition for records without a key, now that this one's batch is full."""
        known = self.known[queue.topic]
        if known.sticky is not queue:  # another thread has moved on already
            return known.sticky
        found = self.client.cluster.topics.get(queue.topic)
        choice = [
            each
            for each in known.queues
            if each is not queue and (found is None or each.partition in found.available)
        ]
        known.sticky = RANDOM.choice(choice) if choice else queue
        return known.sticky

    def partition_count(self, topic: str) -> int:
        return len((self.known.get(topic) or self._learn(topic)).queues)

    def _explicit(self, topic: str, known: TopicQueues, partition: int) -> PartitionQueue:
        if not isinstance(partition, int) or isinstance(partition, bool):
            raise TypeError(f"partition must be a whole number (got {partition!r})")
        if not 0 <= partition < len(known.queues):
            self.client.wait(self.client.refresh([topic]), self.client.config["max_block_ms"])
            known = self.known[topic]
        if not 0 <= partition < len(known.queues):
            raise IllegalArgumentError(
                f"topic {topic!r} has no partition {partition}: it has {len(known.queues)}, "
                f"from 0 to {len(known.queues) - 1}"
            )
        return known.queues[partition]

    def _ask(
        self,
        topic: str,
        known: TopicQueues,
        key: bytes | None,
        key_object: object,
        value: object,
        value_bytes: bytes | None,
    ) -> int | None:
        if hasattr(self.partitioner, "partition"):
            view = ClusterView(self.client.cluster)
            chosen = self.partitioner.partition(topic, key_object, key, value, value_bytes, view)
        else:
            found = self.client.cluster.topics.get(topic)
            available = list(found.available) if found is not None else []
            chosen = self.partitioner(key, list(range(len(known.queues))), available)
        return None if chosen is None else int(chosen)

    def _learn(self, topic: str) -> TopicQueues:
        """Wait until the topic's metadata is there, or say why it cannot be."""
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a string (got {topic!r})")
        config = self.client.config
        block_s = config["max_block_ms"] / 1000
        began = time.monotonic()
        tries = 0
        words = ""
        while True:
            left_s = began + block_s - time.monotonic()
            if left_s <= 0:
                raise KafkaTimeoutError(
                    f"no metadata of topic {topic!r} within max_block_ms={config['max_block_ms']}: "
                    + (words or self.client.metadata.no_broker_text())
                )
            cluster = self._refreshed(topic, left_s)
            if cluster is None:
                continue
            trouble = topic_trouble(
                topic, cluster.topics.get(topic), auto_create=config["allow_auto_create_topics"]
            )
            if trouble is None:
                self._follow(cluster, topic)
                return self.known[topic]
            code, words = trouble
            waited_s = time.monotonic() - began
            unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not ErrorCode(code).retriable or (unknown and waited_s > UNKNOWN_S_MAX):
                self.client.metadata.topics = self.client.metadata.topics - {topic}
                raise error_for(code, words)
            time.sleep(min(self.client.backoff_s(tries), max(left_s, 0)))
            tries += 1

    def _refreshed(self, topic: str, left_s: float) -> Cluster | None:
        try:
            return self.client.wait(self.client.refresh([topic]), left_s * 1000)
        except KafkaTimeoutError:
            return None

    def _follow(self, cluster: Cluster, new: str | None = None) -> None:
        """Make queues for the partitions in the metadata; partitions never go away."""
        for topic in [*self.known, *([new] if new is not None else [])]:
            found = cluster.topics.get(topic)
            if found is None or found.error_code:
                continue
            known = self.known.get(topic)
            count = len(found.partitions)
            if known is not None and len(known.queues) == count:
                continue
            queues = [self._queue(topic, index) for index in range(count)]
            if queues:
                self.known[topic] = TopicQueues(queues, RANDOM.choice(queues))

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        key = (topic, partition)
        queue = self.sender.queues.get(key)
        if queue is None:
            changed, inside = self.sender.changed, self.client.loop.is_inside
            queue = PartitionQueue(topic, partition, changed, inside)
            queue = self.sender.queues.setdefault(key, queue)
        return queue
