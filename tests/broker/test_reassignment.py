"""Partitions move between brokers while records are written: real brokers on simulated machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.metadata_store.local import LocalTree
from ottla.metadata_store.tree import Operation
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import Cluster, led_by, produce, read
from tests.broker.harness import DATA

BEFORE, AFTER = (2, 3, 4), (5, 3, 4)


def request(
    replicas: Sequence[int] | None, index: int = 0, topic: str = "t"
) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(
        partition_index=index, replicas=None if replicas is None else list(replicas)
    )
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])]
    )


def move(cluster: Cluster, replicas: Sequence[int] | None, through: int = 3) -> int:
    """Ask for other replicas of t-0, or cancel; the error code."""
    answer = cluster.ask(through, request(replicas), 1)
    assert answer.error_code == 0
    assert answer.allow_replication_factor_change
    return int(answer.responses[0].partitions[0].error_code)


def folders(cluster: Cluster, broker_id: int, topic: str = "t") -> list[str]:
    names = cluster.brokers[broker_id].node.disk.listdir(DATA)
    return sorted(name for name in names if name.startswith(topic))


def settled(cluster: Cluster, replicas: Sequence[int], *seen_by: int) -> bool:
    """Whether t-0 has these replicas, all in sync, and nothing moves."""
    for broker_id in seen_by:
        found = cluster.image(broker_id).partition("t", 0)
        if (
            found.replicas != tuple(replicas)
            or set(found.isr) != set(replicas)
            or found.adding_replicas
            or found.removing_replicas
        ):
            return False
    return True


def with_records(cluster: Cluster, replicas: Sequence[int] = BEFORE) -> list[str]:
    """A topic with one partition, led by the first of its replicas, and records in it."""
    assert cluster.create("t", 1, 3, through=3, replicas=replicas).error_code == 0
    cluster.wait(lambda: led_by(cluster, replicas[0], seen_by=replicas[0]))
    sent = [f"record {n}" for n in range(5)]
    for value in sent:
        produce(cluster, replicas[0], value)
    return sent


class TestMoves:
    def test_a_partition_moves_with_its_leader(self) -> None:
        """The new replica copies the log and leads; the old one deletes its folder."""
        with Cluster(5) as cluster:
            sent = with_records(cluster)
            assert move(cluster, AFTER, through=2) == 0
            cluster.wait(lambda: settled(cluster, AFTER, 1, 2, 3, 5))
            assert cluster.partition("t").leader == 5
            assert produce(cluster, 5, "after") == len(sent)
            assert read(cluster, 5) == [*sent, "after"]
            cluster.wait(lambda: "t-0" not in folders(cluster, 2))
            assert not [name for name in folders(cluster, 2) if "stray" in name]
            assert folders(cluster, 5) == ["t-0"]
            assert cluster.brokers[2].broker.partitions.get("t", 0) is None
            # The old leader sends clients elsewhere.
            answer = cluster.ask(2, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
            assert answer.topics[0].partitions[0].leader_id == 5

    def test_what_is_shown_on_the_way(self) -> None:
        """All replicas, old and new, until it is done; what is added and removed in the list."""
        with Cluster(5) as cluster:
            with_records(cluster)
            cluster.brokers[5].crash()
            cluster.wait(lambda: cluster.controller.image.brokers[5].fenced)
            assert move(cluster, AFTER) == 0
            listed = cluster.ask(4, ListPartitionReassignmentsRequest(topics=None), 0)
            [topic] = listed.topics
            [found] = topic.partitions
            assert (topic.name, found.partition_index) == ("t", 0)
            assert found.replicas == [5, 3, 4, 2]
            assert (found.adding_replicas, found.removing_replicas) == ([5], [2])
            moving = "kafka_server_ReplicaManager_ReassigningPartitions"
            assert f"{moving} 1" in cluster.brokers[2].broker.metrics.text()
            names = [MetadataRequestTopic(name="t")]
            metadata = cluster.ask(3, MetadataRequest(topics=names), 12).topics[0].partitions[0]
            assert metadata.replica_nodes == [5, 3, 4, 2]
            assert metadata.leader_id == 2
            described = cluster.ask(
                3, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0
            )
            assert described.topics[0].partitions[0].replica_nodes == [5, 3, 4, 2]

            assert move(cluster, None) == 0, "cancelled, for the target is dead"
            cluster.wait(lambda: settled(cluster, (3, 4, 2), 2, 3))
            assert move(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert cluster.ask(4, ListPartitionReassignmentsRequest(topics=None), 0).topics == []
            assert produce(cluster, 2, "goes on") == 5

    def test_more_replicas_and_fewer(self) -> None:
        """A topic with one replica gets three, and later has one again, elsewhere."""
        with Cluster(4) as cluster:
            sent = with_records(cluster, (2,))
            assert move(cluster, (2, 3, 4)) == 0
            cluster.wait(lambda: settled(cluster, (2, 3, 4), 2, 3, 4))
            sent.append("three")
            produce(cluster, 2, "three")
            assert move(cluster, (4,)) == 0
            cluster.wait(lambda: settled(cluster, (4,), 1, 2, 3, 4))
            assert produce(cluster, 4, "one") == len(sent)
            assert read(cluster, 4) == [*sent, "one"]
            cluster.wait(lambda: "t-0" not in folders(cluster, 2) + folders(cluster, 3))

    def test_errors_come_through_any_broker(self) -> None:
        """The controller's codes, and the flag that keeps the number of replicas (KIP-860)."""
        with Cluster(3) as cluster:
            with_records(cluster, (1, 2, 3))
            unknown = cluster.ask(2, request([1], topic="u"), 1).responses[0].partitions[0]
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert unknown.error_message == "Unable to find a topic named u."
            assert move(cluster, (1, 9)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            strict = request((1, 2))
            strict.allow_replication_factor_change = False
            answer = cluster.ask(2, strict, 1)
            assert not answer.allow_replication_factor_change
            code = answer.responses[0].partitions[0].error_code
            assert code == ErrorCode.INVALID_REPLICATION_FACTOR
            empty = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t")])
            assert [each.name for each in cluster.ask(2, empty, 0).responses] == ["t"]


class TestFaults:
    def test_a_target_dies_and_returns(self) -> None:
        """It goes on where the target is; the leader keeps serving meanwhile."""
        with Cluster(5) as cluster:
            sent = with_records(cluster)
            cluster.brokers[5].crash()
            assert move(cluster, AFTER) == 0
            sent.append("meanwhile")
            produce(cluster, 2, "meanwhile")
            cluster.brokers[5].start()
            cluster.wait(lambda: settled(cluster, AFTER, 3, 5))
            assert read(cluster, 5) == sent

    def test_a_replica_is_removed_while_its_broker_is_away(self) -> None:
        """Its folder is set aside when it returns, and nothing of it comes back."""
        with Cluster(5) as cluster:
            sent = with_records(cluster)
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.partition("t").leader in (3, 4))
            assert move(cluster, AFTER) == 0
            cluster.wait(lambda: settled(cluster, AFTER, 3, 5))
            cluster.brokers[2].start()
            cluster.wait(lambda: cluster.brokers[2].started)
            found = folders(cluster, 2)
            assert "t-0" not in found
            assert len([name for name in found if name.endswith("-stray")]) == 1
            assert move(cluster, (2, 3, 4)) == 0, "back again, from an empty log"
            cluster.wait(lambda: settled(cluster, (2, 3, 4), 2, 3))
            assert cluster.ask(2, request(None), 1).responses[0].partitions[0].error_code
            leader = cluster.partition("t", seen_by=2).leader
            assert read(cluster, leader) == sent

    def test_another_target_while_one_is_under_way(self) -> None:
        """What had begun is given up, with the folder of the replica that was in sync already."""
        with Cluster(5) as cluster:
            sent = with_records(cluster, (2, 3))
            cluster.brokers[4].crash()  # so that the first cannot be completed
            cluster.wait(lambda: cluster.controller.image.brokers[4].fenced)
            assert move(cluster, (5, 4)) == 0
            cluster.wait(lambda: 5 in cluster.partition("t").isr)
            assert cluster.partition("t").adding_replicas == (4, 5)
            assert folders(cluster, 5) == ["t-0"]
            assert move(cluster, (3, 1)) == 0
            cluster.wait(lambda: settled(cluster, (3, 1), 1, 2, 3, 5))
            cluster.wait(lambda: "t-0" not in folders(cluster, 5) + folders(cluster, 2))
            assert read(cluster, 3) == sent

    def test_the_topic_is_deleted_or_grows_on_the_way(self) -> None:
        """Partitions are added beside what moves; a deletion ends all of it."""
        with Cluster(5) as cluster:
            with_records(cluster)
            cluster.brokers[5].crash()
            assert move(cluster, AFTER) == 0
            grown = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
            more = CreatePartitionsRequest(topics=grown, timeout_ms=60_000)
            assert cluster.ask(3, more, 3).results[0].error_code == 0
            assert cluster.partition("t", seen_by=3).adding_replicas == (5,)
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000)
            assert cluster.ask(3, gone, 6).responses[0].error_code == 0
            assert cluster.ask(3, ListPartitionReassignmentsRequest(topics=None), 0).topics == []
            cluster.brokers[5].start()
            cluster.wait(lambda: not cluster.controller.image.deletions)
            assert "t-0" not in [n for each in (2, 3, 4, 5) for n in folders(cluster, each)]


class Hang:
    """Lets the controller's writes hang from the n-th on, before it is made or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes: int, *, made: bool) -> None:
        self.left = -1
        self.hangs = False
        multi = LocalTree.multi

        async def slow(tree: LocalTree, operations: Sequence[Operation]) -> Any:
            if self.left == 0:
                self.hangs = True
                if made:
                    await multi(tree, operations)
                await asyncio.get_running_loop().create_future()
            self.left -= 1
            return await multi(tree, operations)

        monkeypatch.setattr(LocalTree, "multi", slow)
        self.writes = writes

    def begin(self) -> None:
        self.left = self.writes

    def end(self) -> None:
        self.left = -1


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("writes", [0, 1])
def test_the_controller_dies_on_the_way(
    monkeypatch: pytest.MonkeyPatch, writes: int, made: bool
) -> None:
    """At the write that begins it, and at the one that completes it: the next one goes on.

    The broker that took the request sends it again; both may have been carried out.
    """
    hang = Hang(monkeypatch, writes, made=made)
    with Cluster(5) as cluster:
        sent = with_records(cluster)
        hang.begin()

        async def ask() -> Any:
            connection = await Connection.open(cluster.client, "broker3")
            return await connection.ask(request(AFTER), 1)

        asked = cluster.client.task(ask())
        cluster.wait(lambda: hang.hangs)
        cluster.brokers[1].crash()
        hang.end()
        cluster.host(3)
        cluster.wait(lambda: settled(cluster, AFTER, 2, 3, 4, 5))
        cluster.wait(asked.done)
        assert asked.result().responses[0].partitions[0].error_code == 0
        leader = cluster.partition("t", seen_by=5).leader
        assert produce(cluster, leader, "after") == len(sent)
        assert read(cluster, leader) == [*sent, "after"]
        cluster.wait(lambda: "t-0" not in folders(cluster, 2))
