"""Clients of a `Cluster`: each request goes to the broker that is to answer it.

`ClusterClient.ask` finds coordinators and leaders as real clients do, and asks again after errors
that pass. `TransactionalClient` is the producer of `transactional.py` on top of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from ottla.coordinator.group_shard import GroupShard
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from ottla.wire.schema import Struct
from tests.broker.cluster_harness import Cluster
from tests.broker.transactional import GROUP, TOPIC, Client

GROUP_TOPIC, TRANSACTION_TOPIC = "__consumer_offsets", "__transaction_state"
GROUP_KEY, TRANSACTION_KEY = 0, 1
Replicas = tuple[int, ...]
ASKED_MAX = 1000
PAUSE_MS = 50
PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
# One partition each, so that a test says which broker coordinates everything.
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
}


class ClusterClient:
    """As far as `transactional.py` goes, a `BrokerHarness` of several brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clock = cluster.client.clock

    def advance(self, ms: int) -> None:
        self.cluster.simulation.run_for(ms / 1000)

    def batch(self, value: bytes, **fields: Any) -> bytes:
        return write_batch([Record(value, timestamp=self.clock.now_ms())], **fields)

    def ask(self, request: Any, version: int) -> Any:
        """The answer of the right broker, once there is one without an error that passes."""
        answer = None
        for _ in range(ASKED_MAX):
            broker_id = self.broker_for(request)
            if broker_id is not None:
                try:
                    answer = self.cluster.ask(broker_id, request, version)
                except OSError as error:
                    answer = error
                else:
                    if not PASSING & set(codes(answer)):
                        return answer
            self.advance(PAUSE_MS)
        raise AssertionError(f"{request} is never answered: {answer}")

    def broker_for(self, request: Any) -> int | None:
        """The broker to ask, as far as it is known now."""
        if isinstance(request, FindCoordinatorRequest):
            return self.alive
        if isinstance(request, ProduceRequest):
            [topic] = request.topic_data
            return self.leader(topic.name, topic.partition_data[0].index)
        if isinstance(request, FetchRequest):
            [fetched] = request.topics
            return self.leader(fetched.topic, fetched.partitions[0].partition)
        if isinstance(request, OffsetFetchRequest):
            return self.coordinator(GROUP_KEY, request.groups[0].group_id)
        if hasattr(request, "v3_and_below_transactional_id"):
            return self.coordinator(TRANSACTION_KEY, request.v3_and_below_transactional_id)
        if isinstance(request, DescribeTransactionsRequest):
            return self.coordinator(TRANSACTION_KEY, request.transactional_ids[0])
        if hasattr(request, "member_id"):
            return self.coordinator(GROUP_KEY, request.group_id)
        return self.coordinator(TRANSACTION_KEY, request.transactional_id)

    @property
    def alive(self) -> int:
        """A broker that runs; the controller's is the last to be asked."""
        return max(
            each.id
            for each in self.cluster.brokers.values()
            if each.started and not each.node.loop.paused
        )

    def leader(self, topic: str, index: int = 0) -> int | None:
        known = self.cluster.image(self.alive).partition(topic, index)
        return None if known is None or known.leader < 0 else int(known.leader)

    def coordinator(self, key_type: int, key: str) -> int | None:
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        [found] = self.cluster.ask(self.alive, request, 4).coordinators
        return None if found.error_code else int(found.node_id)


class TransactionalClient(Client):
    """A transactional producer of a cluster."""

    def ask(self, request: Any, version: int) -> Any:
        return self.harness.ask(request, version)


def codes(message: Struct) -> Iterator[int]:
    """All error codes in a response."""
    for field in type(message).__schema__.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from codes(each)


class Asked:
    """A request that is under way on a connection of its own."""

    def __init__(self, cluster: Cluster, broker_id: int, request: Any, version: int) -> None:
        self.cluster = cluster

        async def ask() -> Any:
            connection = await Connection.open(cluster.client, f"broker{broker_id}")
            try:
                return await connection.ask(request, version)
            except OSError as error:
                return error
            finally:
                connection.close()

        self.task: asyncio.Task[Any] = cluster.client.task(ask())

    @property
    def open(self) -> bool:
        return not self.task.done()

    def answer(self) -> Any:
        """The response, or the error that ended the connection."""
        self.cluster.wait(self.task.done)
        return self.task.result()


def place(cluster: Cluster, *, groups: Replicas, transactions: Replicas, data: Replicas) -> None:
    """Create the topics, so that the first of their replicas coordinates and leads."""
    wanted = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index in range(count)
            ],
        )
        for name, count, replicas in (
            (GROUP_TOPIC, 1, groups),
            (TRANSACTION_TOPIC, 1, transactions),
            (TOPIC, 2, data),
        )
    ]
    created = cluster.ask(1, CreateTopicsRequest(topics=wanted), 7)
    assert set(codes(created)) == {ErrorCode.NONE}, created
    cluster.wait(lambda: cluster.images_agree(tuple(cluster.brokers)))


def groups_of(cluster: Cluster, broker_id: int) -> GroupShard:
    """The groups that a broker coordinates."""
    coordinator = cluster.brokers[broker_id].broker.coordinators.groups.runtime.active(0)
    assert coordinator is not None
    return coordinator.shard


def join_request(member_id: str = "", group_id: str = GROUP) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync_request(member_id: str, generation_id: int, group_id: str = GROUP) -> SyncGroupRequest:
    """Of the leader of a group that is its only member."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
    )


def commit_request(
    offset: int, member_id: str = "", generation_id: int = -1
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
