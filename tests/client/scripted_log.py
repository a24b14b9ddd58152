"""A broker of one partition whose log a test writes and cuts by hand, and whose epoch it raises."""

from __future__ import annotations

import time
from typing import Any

from ottla.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.wire.control import COMMIT, write_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from ottla.wire.records import Record, write_batch
from tests.client.fake import FakeBroker

TOPIC = "cut"
TOPIC_ID = bytes(15) + b"\x07"
FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
FIND_COORDINATOR, EPOCH_END = 10, 23


class ScriptedLog(FakeBroker):
    """`log` is a list of (leader epoch, value), without a value a marker of a transaction;
    `committed` is what a group has committed: offset and epoch."""

    def __init__(self, log: list[tuple[int, bytes | None]], *, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.metadata_epoch: int | None = None  # another than the true one: stale metadata
        self.committed: tuple[int, int] | None = None
        self.refusals: list[ErrorCode] = []  # the next answers to EPOCH_END
        super().__init__(
            {
                FETCH: self.fetch,
                LIST_OFFSETS: self.list_offsets,
                METADATA: self.metadata,
                OFFSET_COMMIT: self.offset_commit,
                OFFSET_FETCH: self.offset_fetch,
                FIND_COORDINATOR: self.find_coordinator,
                EPOCH_END: self.epoch_end,
            }
        )

    @property
    def questions(self) -> int:
        """How often it was asked where an epoch ends."""
        return sum(key == EPOCH_END for key, _ in self.seen)

    def metadata(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        shown = self.leader_epoch if self.metadata_epoch is None else self.metadata_epoch
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=shown, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            controller_id=1,
            topics=[topic],
        )

    def wrong_epoch(self, asked: int) -> int:
        if asked < self.leader_epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        return int(ErrorCode.UNKNOWN_LEADER_EPOCH) if asked > self.leader_epoch else 0

    def fetch(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        asked = request.topics[0].partitions[0]
        data = PartitionData(
            error_code=self.wrong_epoch(asked.current_leader_epoch),
            high_watermark=len(self.log),
            last_stable_offset=len(self.log),
            records=b"",
        )
        if not data.error_code and asked.fetch_offset > len(self.log):
            data.error_code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif not data.error_code:
            data.records = b"".join(
                batch(value, offset, epoch)
                for offset, (epoch, value) in enumerate(self.log)
                if offset >= asked.fetch_offset
            )
            if not data.records:
                time.sleep(0.01)
        topic = FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[data])
        return FetchResponse(responses=[topic])

    def list_offsets(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        asked = request.topics[0].partitions[0]
        offset = len(self.log) if asked.timestamp == -1 else 0
        epoch = self.log[max(offset - 1, 0)][0] if self.log else self.leader_epoch
        answer = ListOffsetsPartitionResponse(offset=offset, leader_epoch=epoch)
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])]
        )

    def find_coordinator(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        found = [
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)

    def offset_commit(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        offset = request.topics[0].partitions[0]
        self.committed = offset.committed_offset, offset.committed_leader_epoch
        done = [OffsetCommitResponsePartition(partition_index=0)]
        topic = OffsetCommitResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=done)
        return OffsetCommitResponse(topics=[topic])

    def offset_fetch(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        offset, epoch = self.committed or (-1, -1)
        found = OffsetFetchResponsePartitions(committed_offset=offset, committed_leader_epoch=epoch)
        topic = OffsetFetchResponseTopics(name=TOPIC, topic_id=TOPIC_ID, partitions=[found])
        group = OffsetFetchResponseGroup(group_id=request.groups[0].group_id, topics=[topic])
        return OffsetFetchResponse(groups=[group])

    def epoch_end(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        assert request.replica_id == -1, "a consumer, not a replica"
        asked = request.topics[0].partitions[0]
        refusal = self.refusals.pop(0) if self.refusals else 0
        answer = EpochEndOffset(
            error_code=int(refusal) or self.wrong_epoch(asked.current_leader_epoch)
        )
        if not answer.error_code and asked.leader_epoch <= self.leader_epoch:
            known = [epoch for epoch, _ in self.log if epoch <= asked.leader_epoch]
            if known:
                answer.leader_epoch, answer.end_offset = known[-1], len(known)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[answer])]
        )


def batch(value: bytes | None, offset: int, epoch: int) -> bytes:
    """One record, or one marker, as it lies in a log."""
    if value is not None:
        return write_batch([Record(value, offset=offset)], leader_epoch=epoch)
    return write_marker(
        COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0,
        base_offset=offset, leader_epoch=epoch,
    )  # fmt: skip
