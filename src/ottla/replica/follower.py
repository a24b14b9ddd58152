"""A follower's fetches from one leader broker, without I/O.

One request at a time asks for all partitions that follow this leader. Each states the leader epoch
it believes in and the epoch of its last record; the leader answers with records, or with the epoch
at which the two logs part (KIP-595). The log is cut only for such an answer: a high watermark does
not tell what the leader has. Everything in an answer holds for the state that was asked with, so an
answer that comes after the partition has another leader, epoch or end is dropped.

    request = fetcher.request(...)
    for truncation in fetcher.answered(response, now_ms): ...
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.wire.api.fetch import FetchResponse, PartitionData

logger = logging.getLogger("ottla.replica")

NO_SESSION_EPOCH = -1


class Limits(NamedTuple):
    """Kafka's `replica.fetch.*` options."""

    wait_ms: int
    bytes_min: int
    partition_bytes_max: int
    response_bytes_max: int


class Asked(NamedTuple):
    """What a request said of a partition."""

    partition: Partition
    leader_epoch: int
    offset: int

    @property
    def current(self) -> bool:
        """Whether the partition is still as it was when the request was made."""
        partition = self.partition
        return (
            partition.leader_epoch == self.leader_epoch
            and not partition.is_leader
            and partition.end_offset == self.offset
            and partition.offline is None
        )


class Truncation(NamedTuple):
    """The log must be cut to `offset` before the next fetch, if `asked` is still current.

    `restart`: everything goes, because the leader's log begins at `offset`.
    """

    asked: Asked
    offset: int
    restart: bool = False

    def carry_out(self, now_ms: int) -> None:
        """Cut the log, unless the partition has changed since."""
        if not self.asked.current:
            return
        partition = self.asked.partition
        if self.restart:
            partition.restart_at(self.offset, now_ms=now_ms)
        else:
            partition.truncate_to(self.offset, now_ms=now_ms)


class Fetcher:
    """The partitions that this broker fetches from one leader broker."""

    def __init__(self, node_id: int, leader_id: int) -> None:
        self.node_id = node_id
        self.leader_id = leader_id
        self.partitions: dict[Partition, None] = {}
        # Partitions that are not asked for until their time: after an error, or during a cut.
        self.delayed: set[Partition] = set()
        self._asked: dict[tuple[bytes, int], Asked] = {}

    def request(self, limits: Limits, broker_epoch: int) -> FetchRequest | None:
        """The next request; None when there is nothing to ask for."""
        self._asked = {}
        topics: dict[bytes, FetchTopic] = {}
        for partition in self.partitions:
            if partition in self.delayed or not self._may_ask(partition):
                continue
            asked = Asked(partition, partition.leader_epoch, partition.end_offset)
            self._asked[partition.topic_id, partition.index] = asked
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = FetchTopic(topic_id=partition.topic_id, partitions=[])
                topics[partition.topic_id] = topic
            topic.partitions.append(self._fetch_partition(asked, limits))
        if not topics:
            return None
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=broker_epoch),
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=limits.response_bytes_max,
            session_epoch=NO_SESSION_EPOCH,
            topics=list(topics.values()),
        )

    def _may_ask(self, partition: Partition) -> bool:
        """Whether the fetch offset, which acknowledges all below it, is true of this replica."""
        if partition.offline is not None or partition.is_leader:
            return False
        return partition.group_commit is None or partition.synced_offset >= partition.end_offset

    def _fetch_partition(self, asked: Asked, limits: Limits) -> FetchPartition:
        partition = asked.partition
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=asked.leader_epoch,
            fetch_offset=asked.offset,
            last_fetched_epoch=partition.log.leader_epoch,
            log_start_offset=partition.log_start_offset,
            partition_max_bytes=limits.partition_bytes_max,
            high_watermark=partition.high_watermark,
        )

    def answered(
        self, response: FetchResponse, now_ms: int
    ) -> tuple[list[Truncation], list[Asked]]:
        """Take the answer to the last request: logs to be cut, and partitions to be asked later."""
        truncations: list[Truncation] = []
        failed: list[Asked] = []
        if response.error_code:
            return [], list(self._asked.values())
        for asked, data in self._pairs(response):
            if not asked.current or asked.partition not in self.partitions:
                continue
            truncation = truncation_for(asked, data)
            if truncation is not None:
                truncations.append(truncation)
            elif data.error_code or self._append(asked, data, now_ms):
                failed.append(asked)
        return truncations, failed

    def _pairs(self, response: FetchResponse) -> Iterator[tuple[Asked, PartitionData]]:
        for topic in response.responses:
            for data in topic.partitions:
                asked = self._asked.get((topic.topic_id, data.partition_index))
                if asked is not None:
                    yield asked, data

    def _append(self, asked: Asked, data: PartitionData, now_ms: int) -> ErrorCode:
        partition = asked.partition
        records: object = data.records
        error = partition.append_as_follower(
            records if isinstance(records, memoryview) else memoryview(records or b""),  # type: ignore[arg-type]
            leader_epoch=asked.leader_epoch,
            leader_high_watermark=data.high_watermark,
            now_ms=now_ms,
        )
        if not error and data.log_start_offset > partition.log_start_offset:
            # Never beyond what is known committed here; the rest with a later answer.
            start = min(data.log_start_offset, partition.high_watermark)
            partition.delete_records_before(start)
        return error


def truncation_for(asked: Asked, data: PartitionData) -> Truncation | None:
    """The cut that an answer asks for, if it does."""
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # The leader's log begins beyond this one's end (retention went on without it).
        if data.log_start_offset > asked.offset:
            return Truncation(asked, data.log_start_offset, restart=True)
        return None
    diverging = data.diverging_epoch
    if data.error_code or diverging.epoch < 0:
        return None
    partition = asked.partition
    own_epoch, own_end_offset = partition.end_offset_for_epoch(diverging.epoch)
    return Truncation(
        asked,
        truncation_offset(
            diverging.epoch, diverging.end_offset, own_epoch, own_end_offset, asked.offset
        ),
    )


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_end_offset: int, end_offset: int
) -> int:
    """Where to cut: the leader's largest epoch not above our last ends at `leader_end_offset`.

    `own_epoch` is our largest epoch not above the leader's. If it is another one, our log is cut to
    its end, and the next answer is about that epoch (KIP-279).
    """
    if own_epoch < 0:
        return min(leader_end_offset, end_offset)
    if own_epoch != leader_epoch:
        return min(own_end_offset, end_offset)
    return min(own_end_offset, leader_end_offset, end_offset)
