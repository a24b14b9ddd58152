"""A client that consumes, transforms and produces in transactions, in a simulated cluster.

Each record of a partition is written to the same partition of the output topic, in a transaction
with the offset that was reached and the leader epoch there (KIP-320). Several clients with one
transactional id compete: each that begins fences the one before and goes on from the committed
offset. Some end in the middle, some transactions are aborted. However that goes, the output must
have each record once, in order.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

from ottla.seams.simulated.simulation import Node
from ottla.testing.simulation.clients import ClusterClient, Place
from ottla.testing.simulation.committed_reader import epoch_before, fetch, values_in
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch

# Both have one partition: it coordinates every group and transactional id.
GROUPS = Place("__consumer_offsets", 0)
TRANSACTIONS = Place("__transaction_state", 0)
GROUP = "transform"
TRANSACTION_TIMEOUT_MS = 4000
PRODUCE_TIMEOUT_MS = 1000
RETRY_S = 0.05
GIVE_UP_S = 6.0  # for one request: then the client begins anew, as after a crash
RECORDS_MAX = 40  # of one transaction
BETWEEN_S_MAX = 0.3  # from one transaction to the next
PAUSE_S_MAX = 1.5  # before it begins again, so that another one gets on
ABORT_SHARE = 0.15
END_SHARE = 0.03  # of the steps after which a client ends in the middle
# By these a client learns that another one has begun, or that its transaction was aborted.
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
    }
)
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class Stopped(Exception):
    """This client ends here: fenced, or as if killed."""


class Workload(Protocol):
    """What the clients share."""

    hosts: list[str]
    transformed: bool  # all is in the output: clients end

    def problem(self, text: str) -> None:
        """Something that must not be."""


class Transformer:
    """One of the clients of a partition; it begins again whenever it has stopped."""

    def __init__(
        self, workload: Workload, node: Node, source: Place, output: Place, *, bumps: bool
    ) -> None:
        """`bumps`: of KIP-890's generation, whose epoch rises with every transaction."""
        self._workload = workload
        self._node = node
        self._source = source
        self._output = output
        self._bumps = bumps
        self._name = f"transform-{source.number}"
        self._rng = random.Random(f"{node.simulation.seed} {node.name}")
        self._client = ClusterClient(node, workload.hosts, self._rng)
        self._producer_id = self._epoch = -1
        self._sequence = 0
        self.commits = 0

    async def run(self) -> None:
        while not self._workload.transformed:
            try:
                await self._begin()
                position = await self._committed_offset()
                while not self._workload.transformed:
                    position = await self._transform(position)
            except Stopped:
                await asyncio.sleep(self._rng.uniform(0, PAUSE_S_MAX))

    async def _transform(self, position: int) -> int:
        """One transaction; where the next one begins."""
        answer = await self._ask(
            self._source, lambda epoch: fetch(self._source, position, 0, epoch), 12, fetch_error
        )
        data = answer.responses[0].partitions[0]
        records = values_in(data, position)
        records = records[: self._rng.randint(1, RECORDS_MAX)]
        if not records:
            return position
        end = records[-1][0] + 1
        self._may_stop()
        await self._write([value for _, value in records])
        self._may_stop()
        await self._commit_offset(end, epoch_before(data, end))
        self._may_stop()
        commit = self._rng.random() >= ABORT_SHARE
        await self._end(commit)
        self.commits += commit
        await asyncio.sleep(self._rng.uniform(0, BETWEEN_S_MAX))
        return end if commit else position

    def _may_stop(self) -> None:
        if self._rng.random() < END_SHARE:
            raise Stopped

    # Requests

    async def _begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        granted = await self._ask(TRANSACTIONS, request, 4, top_error)
        self._producer_id, self._epoch = granted.producer_id, granted.producer_epoch
        self._sequence = 0

    async def _committed_offset(self) -> int:
        asked = OffsetFetchRequestTopics(
            name=self._source.topic, partition_indexes=[self._source.number]
        )
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self._ask(GROUPS, request, 8, offset_error)
        found = answer.groups[0].topics[0].partitions[0]
        # A leader that was replaced before that epoch may lack these records, and not know it yet.
        self._client.saw_epoch(self._source, found.committed_leader_epoch)
        return max(int(found.committed_offset), 0)

    async def _write(self, values: list[str]) -> None:
        if not self._bumps:
            topic = AddPartitionsToTxnTopic(
                name=self._output.topic, partitions=[self._output.number]
            )
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[topic],
            )
            await self._ask(TRANSACTIONS, added, 3, added_error)
        now_ms = self._node.clock.now_ms()
        batch = write_batch(
            [Record(value.encode(), timestamp=now_ms) for value in values],
            transactional=True,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        data = PartitionProduceData(index=self._output.number, records=batch)
        request = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._output.topic, partition_data=[data])],
        )
        await self._ask(self._output, request, 12 if self._bumps else 9, produce_error)
        self._sequence += len(values)

    async def _commit_offset(self, offset: int, leader_epoch: int) -> None:
        identity: dict[str, Any] = {
            "transactional_id": self._name,
            "group_id": GROUP,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
        }
        if not self._bumps:
            await self._ask(TRANSACTIONS, AddOffsetsToTxnRequest(**identity), 3, top_error)
        partition = TxnOffsetCommitRequestPartition(
            partition_index=self._source.number,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
        )
        topic = TxnOffsetCommitRequestTopic(name=self._source.topic, partitions=[partition])
        request = TxnOffsetCommitRequest(topics=[topic], **identity)
        await self._ask(GROUPS, request, 5 if self._bumps else 3, commit_error)

    async def _end(self, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        granted = await self._ask(TRANSACTIONS, request, 5 if self._bumps else 3, top_error)
        if self._bumps:
            self._producer_id, self._epoch = granted.producer_id, granted.producer_epoch
            self._sequence = 0

    async def _ask(self, place: Place, request: Any, version: int, error_of: Any) -> Any:
        """The answer of whoever leads `place`, asked again after what passes."""
        end_s = self._node.clock.monotonic() + GIVE_UP_S
        while self._node.clock.monotonic() < end_s and not self._workload.transformed:
            found = await self._client.ask(place, request, version)
            if found is not None:
                answer = found[0]
                error = ErrorCode(error_of(answer))
                if not error:
                    return answer
                if error in FENCED:
                    raise Stopped
                if error not in PASSING:
                    kind = type(answer).__name__
                    self._workload.problem(f"{self._node.name}: {kind} has {error.name}")
                    raise Stopped
            self._client.forget(place)
            await asyncio.sleep(RETRY_S)
        raise Stopped


def top_error(answer: Any) -> int:
    return int(answer.error_code)


def fetch_error(answer: Any) -> int:
    return int(answer.error_code or answer.responses[0].partitions[0].error_code)


def produce_error(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def added_error(answer: Any) -> int:
    topic = answer.results_by_topic_v3_and_below[0]
    return int(topic.results_by_partition[0].partition_error_code)


def commit_error(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def offset_error(answer: Any) -> int:
    group = answer.groups[0]
    return int(group.error_code or group.topics[0].partitions[0].error_code)
