"""Clients of a simulated cluster: a producer that must not lose, and one that may.

They find leaders with Metadata and never go back to an older leader epoch, as Kafka's clients do
(KIP-320). What they send and get goes into a `History`; what can be judged at once is a problem.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ottla.seams.simulated.simulation import Node
from ottla.testing.history import History, Outcome
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch_header import BatchHeader
from ottla.wire.errors import ErrorCode
from ottla.wire.records import CorruptBatch, Record, read_records, write_batch
from ottla.wire.schema import NO_UUID

REQUEST_S_MAX = 2.0
RETRY_S = 0.05
PRODUCE_TIMEOUT_MS = 1000
FETCH_WAIT_MS = 300
IN_FLIGHT_MAX = 3  # Kafka allows an idempotent producer five
RECORDS_MAX = 3  # of one batch
NO_EPOCH = -1
# Behind a batch that failed these say no more than that.
AFTER_A_FAILURE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,)
FATAL = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
)


class Place(NamedTuple):
    """A partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Workload(Protocol):
    """What the clients share."""

    history: History
    hosts: list[str]
    done: bool  # producers stop after the batch they are at
    deleted: set[bytes]  # ids of topics whose deletion was answered

    def problem(self, text: str) -> None:
        """Something that must not be."""


class Leader(NamedTuple):
    """Where a partition's leader was last known to be."""

    host: str
    epoch: int


class ClusterClient:
    """Finds the leaders of partitions, and keeps one connection to each broker."""

    def __init__(
        self,
        node: Node,
        hosts: list[str],
        rng: random.Random,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """`topic_ids` of the topics that are known; of others the first one seen is taken."""
        self.node = node
        self._hosts = hosts
        self._at = rng.randrange(len(hosts))
        self._connections: dict[str, Connection] = {}
        self._leaders: dict[Place, Leader] = {}
        self._epochs: dict[Place, int] = {}
        self._topic_ids = dict(topic_ids or {})

    async def leader(self, place: Place) -> tuple[Connection, int] | None:
        """A connection to the leader and its epoch; None when there is none for now."""
        if place not in self._leaders:
            await self._refresh(place)
        leader = self._leaders.get(place)
        if leader is None:
            return None
        connection = await self.connect(leader.host)
        if connection is None:
            self.forget(place)
            return None
        return connection, leader.epoch

    def forget(self, place: Place) -> None:
        """The leader is another one, or cannot be reached: ask again before the next request."""
        self._leaders.pop(place, None)

    def saw_epoch(self, place: Place, epoch: int) -> None:
        """There has been a leader of this epoch: ask none of an earlier one."""
        if epoch > self._epochs.get(place, NO_EPOCH):
            self._epochs[place] = epoch
            self.forget(place)

    async def ask(self, place: Place, request: Any, version: int) -> tuple[Any, int] | None:
        """The leader's answer to a request, and its epoch; None without one.

        `request` may be a function that makes it for the leader's epoch.
        """
        found = await self.leader(place)
        if found is None:
            return None
        connection, epoch = found
        answer = await within(
            connection.post(request(epoch) if callable(request) else request, version)
        )
        if answer is None:
            connection.close()
            self.forget(place)
            return None
        return answer, epoch

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()

    async def connect(self, host: str) -> Connection | None:
        """The connection to a broker; None when it cannot be reached."""
        connection = self._connections.get(host)
        if connection is None or connection.closed:
            try:
                async with asyncio.timeout(REQUEST_S_MAX):
                    connection = await Connection.open(self.node, host)
            except (OSError, TimeoutError):
                return None
            self._connections[host] = connection
        return connection

    async def _refresh(self, place: Place) -> None:
        """Ask the next broker for the leader; take it unless its epoch is older than one seen."""
        self._at = (self._at + 1) % len(self._hosts)
        connection = await self.connect(self._hosts[self._at])
        if connection is None:
            return
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=False
        )
        answer = await within(connection.post(asked, 12))
        if answer is None:
            connection.close()
            return
        topic = answer.topics[0]
        if topic.error_code:
            return
        if self._topic_ids.setdefault(place.topic, topic.topic_id) != topic.topic_id:
            return  # another topic of that name
        hosts = {each.node_id: each.host for each in answer.brokers}
        for found in topic.partitions:
            known = (place.topic, found.partition_index)
            if found.leader_epoch < self._epochs.get(Place(*known), NO_EPOCH):
                continue
            self._epochs[Place(*known)] = found.leader_epoch
            if found.leader_id in hosts:
                self._leaders[Place(*known)] = Leader(hosts[found.leader_id], found.leader_epoch)


async def within(answer: asyncio.Future[Any], seconds: float = REQUEST_S_MAX) -> Any:
    """The answer, or None when it takes too long."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        return None


@dataclass
class Sent:
    """A batch whose acknowledgement, or that of one before it, is missing."""

    values: list[str]
    batch: bytes
    offset: int | None = None  # once it is acknowledged


class Producer:
    """An idempotent producer with acks=all: every batch is sent until it is acknowledged."""

    def __init__(
        self, workload: Workload, node: Node, place: Place, producer_id: int, seed: object
    ) -> None:
        self._workload = workload
        self._node = node
        self._place = place
        self._producer_id = producer_id
        self._rng = random.Random(f"{seed} {node.name}")
        self._client = ClusterClient(node, workload.hosts, self._rng)
        self._sequence = 0
        self._open: list[Sent] = []

    async def run(self) -> None:
        workload, rng = self._workload, self._rng
        while not workload.done or self._open:
            while not workload.done and len(self._open) < rng.randint(1, IN_FLIGHT_MAX):
                self._open.append(self._next())
            if not await self._send_all():
                for sent in self._open:
                    self._record(sent, Outcome.UNKNOWN)
                return
            await asyncio.sleep(rng.uniform(0, 0.4))

    def _next(self) -> Sent:
        count = self._rng.randint(1, RECORDS_MAX)
        first, now_ms = self._sequence, self._node.clock.now_ms()
        values = [f"{self._node.name} {first + n}" for n in range(count)]
        self._sequence += count
        return Sent(
            values,
            write_batch(
                [Record(value.encode(), timestamp=now_ms) for value in values],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=first,
            ),
        )

    async def _send_all(self) -> bool:
        """Send what is open, in order; False after an error that must not be."""
        found = await self._client.leader(self._place)
        if found is None:
            await asyncio.sleep(RETRY_S)
            return True
        connection, _ = found
        missing = [sent for sent in self._open if sent.offset is None]
        answers = [
            connection.post(produce_request(self._place, sent.batch, acks=-1), 9)
            for sent in missing
        ]
        failed = False
        for sent, answer in zip(missing, answers, strict=True):
            response = await within(answer)
            if response is None:
                connection.close()
                failed = True
                continue
            data = response.responses[0].partition_responses[0]
            if not data.error_code:
                sent.offset = data.base_offset
                continue
            if data.error_code in FATAL and not (failed and data.error_code in AFTER_A_FAILURE):
                name = ErrorCode(data.error_code).name
                self._workload.problem(f"{self._place}: {sent.values[0]} got {name}")
                return False
            failed = True
        while self._open and self._open[0].offset is not None:
            self._record(self._open.pop(0), Outcome.OK)
        if failed:
            self._client.forget(self._place)
            await asyncio.sleep(RETRY_S)
        return True

    def _record(self, sent: Sent, outcome: Outcome) -> None:
        for n, value in enumerate(sent.values):
            self._workload.history.sent(
                self._node.name,
                self._place,
                value,
                outcome=outcome,
                offset=None if sent.offset is None else sent.offset + n,
            )


class CarelessProducer:
    """Sends with acks=1, never again: any of it may be lost, none may come twice or change.

    A leader that has been replaced and does not know takes its records, so logs part.
    """

    def __init__(self, workload: Workload, node: Node, place: Place, seed: object) -> None:
        self._workload = workload
        self._node = node
        self._place = place
        self._rng = random.Random(f"{seed} {node.name}")
        self._client = ClusterClient(node, workload.hosts, self._rng)

    async def run(self) -> None:
        number = 0
        while not self._workload.done:
            value = f"{self._node.name} {number}"
            number += 1
            batch = write_batch([Record(value.encode(), timestamp=self._node.clock.now_ms())])
            self._workload.history.sent(
                self._node.name, self._place, value, outcome=Outcome.UNKNOWN
            )
            request = produce_request(self._place, batch, acks=1)
            answer = await self._client.ask(self._place, request, 9)
            if answer is None or answer[0].responses[0].partition_responses[0].error_code:
                self._client.forget(self._place)
            await asyncio.sleep(self._rng.uniform(0, 0.4))


def produce_request(
    place: Place, batch: bytes, *, acks: int, topic_id: bytes = NO_UUID
) -> ProduceRequest:
    """One batch for one partition; by the topic's id from version 13 on."""
    data = PartitionProduceData(index=place.number, records=batch)
    topic = TopicProduceData(name=place.topic, topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])


def fetch_request(place: Place, offset: int, epoch: int, topic_id: bytes = NO_UUID) -> FetchRequest:
    """A consumer's fetch of one partition; by the topic's id from version 13 on."""
    partition = FetchPartition(
        partition=place.number,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=place.topic, topic_id=topic_id, partitions=[partition])],
    )


def records_in(data: Any) -> Iterator[tuple[int, str, int]]:
    """Offset, value and leader epoch of each record in the batches that are there whole, up to one
    that is damaged.
    """
    view = memoryview(bytes(data or b""))
    position = 0
    while position + 12 <= len(view):
        end = position + 12 + int.from_bytes(view[position + 8 : position + 12], "big")
        if end > len(view):
            return
        batch = view[position:end]
        epoch = BatchHeader(batch, 0, 0).leader_epoch
        try:
            records = read_records(batch)
        except CorruptBatch:
            return
        for record in records:
            yield record.offset, bytes(record.value or b"").decode(), epoch
        position = end
