"""Producers in transactions and readers of committed records, on a `BrokerHarness`.

`Client` is a producer of either generation; it keeps its own sequence numbers and goes on with what
EndTxn tells it. `visible` reads as a consumer of isolation level read_committed does: it leaves out
what the answer says was aborted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, read_header, read_records, write_batch
from tests.broker.harness import BrokerHarness, fetch_request, produce_request, whole_batches

TOPIC, GROUP = "t", "group"
BUSY = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class Stopped(Exception):
    """The machine has stopped."""


@dataclass
class Client:
    """A producer as a real client is one: of the classic generation, or of KIP-890's."""

    harness: BrokerHarness
    name: str
    bumps: bool
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    def ask(self, request: Any, version: int) -> Any:
        """The answer, if the machine lives to give it."""
        answer = self.harness.post(request, version)
        for _ in range(2000):
            if getattr(self.harness.disk, "stopped", False):
                raise Stopped
            if answer.ready:
                return answer.response
            self.harness.advance(1)
        raise AssertionError(f"no answer to {request}")

    def until(self, request: Any, version: int) -> Any:
        """Ask again while the coordinator is busy with what was before."""
        for _ in range(200):
            answer = self.ask(request, version)
            if answer.error_code not in BUSY:
                assert not answer.error_code, (request, ErrorCode(answer.error_code))
                return answer
            self.harness.advance(50)
        raise AssertionError(f"{request} is never answered")

    def begin(self) -> None:
        self.ask(FindCoordinatorRequest(coordinator_keys=[self.name], key_type=1), 4)
        self.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0), 4)
        granted = self.until(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4
        )
        self.producer_id, self.epoch = granted.producer_id, granted.producer_epoch
        self.sequences.clear()

    def write(self, partition: int, value: bytes, key: bytes | None = None) -> int:
        """Write one record, and say at which offset it is."""
        if not self.bumps:
            added = self.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])
                    ],
                ),
                3,
            )
            [result] = added.results_by_topic_v3_and_below[0].results_by_partition
            assert result.partition_error_code == 0
        batch = write_batch(
            [Record(value, key=key, timestamp=self.harness.clock.now_ms())],
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0),
        )
        request = produce_request(TOPIC, partition, batch)
        request.transactional_id = self.name
        response = self.ask(request, 12 if self.bumps else 9)
        [answer] = response.responses[0].partition_responses
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return int(answer.base_offset)

    def commit_offset(self, offset: int) -> None:
        if not self.bumps:
            self.until(
                AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=GROUP,
                ),
                3,
            )
        response = self.ask(
            TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=GROUP,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=int(self.bumps), committed_offset=offset
                            )
                        ],
                    )
                ],
            ),
            5 if self.bumps else 3,
        )
        assert response.topics[0].partitions[0].error_code == 0

    def end(self, commit: bool) -> None:
        granted = self.until(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.bumps else 3,
        )
        if self.bumps:
            self.producer_id, self.epoch = granted.producer_id, granted.producer_epoch
            self.sequences.clear()


def visible(
    harness: BrokerHarness, partition: int, offset: int = 0, *, bytes_max: int = 1 << 20
) -> list[bytes]:
    """What a reader of committed records gets from `offset` on, filtered as clients filter."""
    found: list[bytes] = []
    while True:
        request = fetch_request((TOPIC, partition, offset), isolation_level=1, bytes_max=bytes_max)
        [answer] = harness.ask(request, 11).responses[0].partitions
        assert answer.error_code == 0
        aborted = sorted(answer.aborted_transactions or [], key=lambda each: each.first_offset)
        found += committed_values(bytes(answer.records or b""), aborted, offset)
        bounds = whole_batches(memoryview(bytes(answer.records or b"")))
        if not bounds:
            assert offset == answer.high_watermark == answer.last_stable_offset, "held back"
            return found
        data = bytes(answer.records)
        offset = read_header(data[bounds[-1][0] : bounds[-1][1]]).last_offset + 1


def committed_values(data: bytes, aborted: list[Any], offset: int) -> Iterator[bytes]:
    skipping: set[int] = set()
    left = list(aborted)
    for start, end in whole_batches(memoryview(data)):
        batch = data[start:end]
        header = read_header(batch)
        while left and left[0].first_offset <= header.last_offset:
            skipping.add(left.pop(0).producer_id)
        if header.is_control:
            skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            for record in read_records(batch):
                if record.offset >= offset:
                    yield bytes(record.value or b"")


def offset_of(harness: BrokerHarness, partition: int) -> int:
    asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
    answer = harness.ask(OffsetFetchRequest(groups=[group], require_stable=True), 8)
    [found] = answer.groups[0].topics[0].partitions
    assert found.error_code == 0, ErrorCode(found.error_code)
    return int(found.committed_offset)
