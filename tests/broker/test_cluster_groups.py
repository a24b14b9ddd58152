"""The group coordinator among several brokers: it moves, and keeps what was acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_clients import (
    GROUP_TOPIC,
    SETTINGS,
    TRANSACTION_TOPIC,
    Asked,
    ClusterClient,
    codes,
    commit_request,
    groups_of,
    join_request,
    place,
    sync_request,
)
from tests.broker.cluster_harness import Cluster, ClusterBroker
from tests.broker.transactional import GROUP, TOPIC, offset_of

PLACES = {"groups": (2, 3, 1), "transactions": (2, 3, 1), "data": (1, 2, 3)}


@pytest.mark.parametrize(("key_type", "topic"), [(0, GROUP_TOPIC), (1, TRANSACTION_TOPIC)])
def test_internal_topics_wait_for_enough_brokers(key_type: int, topic: str) -> None:
    """With two brokers and three replicas there is no coordinator, as in Kafka, until a third
    broker has come; then each partition has its three replicas."""
    with Cluster(2, **SETTINGS) as cluster:
        find = FindCoordinatorRequest(coordinator_keys=["key"], key_type=key_type)
        wanted = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
        [refused] = cluster.ask(1, CreateTopicsRequest(topics=[wanted]), 7).topics
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        for broker_id in (1, 2):
            [found] = cluster.ask(broker_id, find, 4).coordinators
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert topic not in cluster.image(broker_id).topics
        third = cluster.brokers[3] = ClusterBroker(cluster, 3)
        third.start()
        cluster.wait(lambda: third.started and not cluster.image(1).brokers[3].fenced)
        [found] = cluster.ask(2, find, 4).coordinators
        assert not found.error_code
        placed = cluster.partition(topic, seen_by=2)
        assert (found.node_id, sorted(placed.replicas)) == (placed.leader, [1, 2, 3])
        configs = cluster.image(2).configs_of(topic)
        assert configs["cleanup.policy"] == "compact"
        if key_type:
            assert configs["min.insync.replicas"] == "2"


def test_a_join_goes_on_at_the_next_coordinator() -> None:
    """Trap 22: the coordinator dies while members wait for the others to join: they join anew.

    The group's next generation is the one after the last that was written down, and a member of
    that one is known.
    """
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client = ClusterClient(cluster)
        first = client.ask(join_request(), 2)
        client.ask(sync_request(first.member_id, first.generation_id), 1)
        waiting = Asked(cluster, 2, join_request(), 2)  # until the first member joins again
        cluster.wait(lambda: len(groups_of(cluster, 2).parked_replies()) == 1)
        cluster.brokers[2].crash()
        assert isinstance(waiting.answer(), OSError)
        beat = HeartbeatRequest(
            group_id=GROUP, generation_id=first.generation_id, member_id=first.member_id
        )
        assert client.ask(beat, 1).error_code == ErrorCode.NONE
        assert client.coordinator(0, GROUP) == 3
        second = Asked(cluster, 3, join_request(), 2)
        cluster.wait(lambda: len(groups_of(cluster, 3).parked_replies()) == 1)
        assert client.ask(beat, 1).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        again = client.ask(join_request(first.member_id), 2)
        joined = second.answer()
        assert {again.generation_id, joined.generation_id} == {first.generation_id + 1}
        leader = again if again.leader == again.member_id else joined
        assert {each.member_id for each in leader.members} == {again.member_id, joined.member_id}


def test_an_acknowledged_commit_is_seen_after_the_coordinators_death() -> None:
    """Each acknowledged commit is there at the next coordinator, whoever dies, time and again."""
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client: Any = ClusterClient(cluster)
        for offset, victim in ((7, 2), (8, 3), (9, 2)):
            assert set(codes(client.ask(commit_request(offset), 7))) == {0}
            assert client.coordinator(0, GROUP) == victim
            cluster.brokers[victim].crash()
            assert offset_of(client, 0) == offset
            cluster.brokers[victim].start()
            cluster.wait(lambda: len(cluster.partition(GROUP_TOPIC).isr) == 3)


def test_a_deposed_coordinator_answers_not_coordinator_to_all_that_waits() -> None:
    """A coordinator that was cut off from the others learns that another one coordinates.

    What it has appended since is not committed: a commit, a join that needs a record, and reads
    that would show either, are answered with NOT_COORDINATOR, and so is a join that waits for
    other members. Nothing of it is known to the next coordinator.
    """
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        member = client.ask(join_request(group_id="others"), 2)
        client.ask(sync_request(member.member_id, member.generation_id, "others"), 1)
        network = cluster.simulation.network
        for other in ("broker1", "broker3"):
            network.cut("broker2", other)
        asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
        partition = cluster.brokers[2].broker.partitions.get(GROUP_TOPIC, 0)
        assert partition is not None
        before = partition.end_offset
        waiting = [Asked(cluster, 2, commit_request(8), 7)]
        cluster.wait(lambda: partition.end_offset > before)
        waiting += [
            Asked(cluster, 2, request, version)
            for request, version in (
                (join_request(group_id="others"), 2),
                (join_request(), 2),
                (OffsetFetchRequest(groups=[group]), 8),
            )
        ]
        cluster.wait(lambda: cluster.partition(GROUP_TOPIC).leader == 3)
        assert all(each.open for each in waiting)
        assert offset_of(client, 0) == 7
        client.ask(commit_request(9), 7)
        for other in ("broker1", "broker3"):
            network.heal("broker2", other)
        for each in waiting:
            answer = each.answer()
            assert set(codes(answer)) - {0} == {ErrorCode.NOT_COORDINATOR}, answer
        cluster.wait(lambda: len(cluster.partition(GROUP_TOPIC).isr) == 3)
        assert offset_of(client, 0) == 9
        assert client.ask(join_request(member.member_id, "others"), 2).error_code == 0
