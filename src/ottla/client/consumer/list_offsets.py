"""Questions about offsets: ListOffsets for the start, the end or a time, one broker at a time.

`ask` is one attempt, from any thread, and never fails as a whole: it tells what was found and what
went wrong for each partition. `find` waits and asks again until all is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future

from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.errors import ErrorCode

from ..errors import KafkaError, KafkaTimeoutError, error_for
from ..futures import settled, then
from ..network.cluster_client import ConsumerClient
from ..network.cluster_metadata import topic_trouble
from ..structs import OffsetAndTimestamp, TopicPartition

END = -1
BEGINNING = -2

Found = dict[TopicPartition, OffsetAndTimestamp]
Unfound = dict[TopicPartition, KafkaError]


class Offsets:
    """Asks the leaders of partitions."""

    def __init__(self, client: ConsumerClient, isolation_level: int) -> None:
        self.client = client
        self.isolation_level = isolation_level

    def find(self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None) -> Found:
        """The offset of each partition for its timestamp; waits."""
        found: Found = {}
        if timeout_ms is None:
            timeout_ms = self.client.config["request_timeout_ms"]

        def attempt(left_ms: float) -> Found:
            missing = {each: time for each, time in wanted.items() if each not in found}
            cluster = self.client.cluster
            topics = {each.topic for each in missing}
            unknown = [
                t for t in topics if topic_trouble(t, cluster.topics.get(t), auto_create=False)
            ]
            if unknown:
                self.client.wait(self.client.refresh(unknown), left_ms)
            more, failed = self.client.wait(self.ask(missing), left_ms)
            found.update(more)
            if failed:
                raise next(iter(failed.values()))
            return found

        try:
            return self.client.retrying(attempt, timeout_ms)
        except KafkaTimeoutError as problem:
            raise KafkaTimeoutError(f"offsets were not found: {problem}") from None

    def ask(self, wanted: Mapping[TopicPartition, int]) -> Future[tuple[Found, Unfound]]:
        """One attempt."""
        cluster = self.client.cluster
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        failed: Unfound = {}
        for partition, time in wanted.items():
            known = cluster.partition(*partition)
            if known is None or known.leader < 0:
                failed[partition] = self._no_leader(partition)
                continue
            topics = by_leader.setdefault(known.leader, defaultdict(list))
            topics[partition.topic].append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=known.leader_epoch,
                    timestamp=time,
                )
            )
        asked = {
            leader: self.client.submit(leader, self._request(topics), channel="offsets")
            for leader, topics in by_leader.items()
        }

        def collect(_: object) -> tuple[Found, Unfound]:
            found: Found = {}
            for leader, future in asked.items():
                read_answer(future, by_leader[leader], found, failed)
            return found, failed

        return then(settled(asked.values()), collect)

    def _request(self, topics: Mapping[str, list[ListOffsetsPartition]]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.isolation_level,
            topics=[ListOffsetsTopic(name=n, partitions=p) for n, p in topics.items()],
            timeout_ms=self.client.config["request_timeout_ms"],
        )

    def _no_leader(self, partition: TopicPartition) -> KafkaError:
        topic = self.client.cluster.topics.get(partition.topic)
        trouble = topic_trouble(
            partition.topic, topic, auto_create=self.client.config["allow_auto_create_topics"]
        )
        if trouble is not None:
            return error_for(*trouble)
        assert topic is not None
        if partition.partition >= len(topic.partitions):
            return error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} has {len(topic.partitions)} partitions, "
                f"so no partition {partition.partition}",
            )
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")


def read_answer(
    future: Future[ListOffsetsResponse],
    asked: Mapping[str, list[ListOffsetsPartition]],
    found: Found,
    failed: Unfound,
) -> None:
    """Sort one broker's answer, or its failure, into found and failed."""
    problem = future.exception()
    if problem is not None:
        if not isinstance(problem, KafkaError):
            raise problem
        for name, partitions in asked.items():
            for each in partitions:
                failed[TopicPartition(name, each.partition_index)] = problem
        return
    for topic in future.result().topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                failed[partition] = error_for(answer.error_code)
            else:
                found[partition] = OffsetAndTimestamp(
                    answer.offset, answer.timestamp, answer.leader_epoch
                )
