"""OffsetFetch with `require_stable`: never older than what any coordinator has committed before."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from ottla.broker.leader_confirmation import ASK_AGAIN_S
from ottla.broker.network_peers import NetworkPeers
from ottla.wire.api.known_leader_epoch import KnownLeaderEpochRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_clients import (
    GROUP_TOPIC,
    SETTINGS,
    Asked,
    ClusterClient,
    codes,
    commit_request,
    place,
)
from tests.broker.cluster_harness import Cluster
from tests.broker.transactional import GROUP, TOPIC, offset_of

PLACES = {"groups": (2, 3, 1), "transactions": (2, 3, 1), "data": (1, 2, 3)}
READS = 50
send = NetworkPeers.send


def fetch_request(*, stable: bool = True) -> OffsetFetchRequest:
    asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def committed(answer: Any) -> int:
    assert set(codes(answer)) == {0}, answer
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def refusal(answer: Any) -> int:
    return int(answer.groups[0].error_code)


class Questions:
    """Counts the epochs that brokers ask others for; answers them with `instead` if that is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.instead: ErrorCode | None = None

    def send(self, peers: NetworkPeers, node_id: int, request: Any, then: Any) -> None:
        if isinstance(request, KnownLeaderEpochRequest):
            self.asked += 1
            if self.instead is not None:
                then(self.instead)
                return
        send(peers, node_id, request, then)


@pytest.fixture
def questions() -> Any:
    counted = Questions()
    with patch.object(NetworkPeers, "send", lambda *each: counted.send(*each)):
        yield counted


def test_a_coordinator_that_is_cut_off_gives_no_stable_offsets() -> None:
    """Another one has committed since, and clients still reach the first, which does not know.

    Offsets that need not be stable it gives as it knows them, as Kafka does.
    """
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        assert committed(cluster.ask(2, fetch_request(), 8)) == 7
        for other in ("broker1", "broker3"):
            cluster.simulation.network.cut("broker2", other)
        cluster.wait(lambda: cluster.partition(GROUP_TOPIC).leader == 3)
        client.ask(commit_request(9), 7)
        assert refusal(cluster.ask(2, fetch_request(), 8)) == ErrorCode.NOT_COORDINATOR
        assert committed(cluster.ask(2, fetch_request(stable=False), 8)) == 7
        assert offset_of(client, 0) == 9


def test_a_coordinator_learns_from_a_replica_that_it_was_replaced() -> None:
    """It does not reach the controller and nothing else is wrong: the answer comes at once."""
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        cluster.simulation.network.cut("broker2", "broker1")
        cluster.wait(lambda: cluster.partition(GROUP_TOPIC, seen_by=3).leader == 3)
        assert cluster.partition(GROUP_TOPIC, seen_by=2).leader == 2
        before_s = cluster.client.clock.monotonic()
        assert refusal(cluster.ask(2, fetch_request(), 8)) == ErrorCode.NOT_COORDINATOR
        assert cluster.client.clock.monotonic() - before_s < ASK_AGAIN_S


def test_a_dead_replica_is_waited_for_until_it_is_out_of_the_isr() -> None:
    """With fewer than `min.insync.replicas` in sync nothing is stable, for one of those that left
    may lead now; it is again when one of them is back.
    """
    with Cluster(4, **SETTINGS) as cluster:
        place(cluster, **{**PLACES, "groups": (2, 3, 4)})
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        cluster.brokers[3].crash()
        assert offset_of(client, 0) == 7
        cluster.brokers[4].crash()
        cluster.wait(lambda: cluster.partition(GROUP_TOPIC, seen_by=2).isr == (2,))
        assert refusal(cluster.ask(2, fetch_request(), 8)) == ErrorCode.NOT_COORDINATOR
        assert committed(cluster.ask(2, fetch_request(stable=False), 8)) == 7
        cluster.brokers[3].start()
        assert offset_of(client, 0) == 7


def test_one_question_to_each_replica_serves_all_reads_that_wait(questions: Questions) -> None:
    """Reads that arrive while others are asked share the next question."""
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        reads = [Asked(cluster, 2, fetch_request(), 8) for _ in range(READS)]
        assert {committed(each.answer()) for each in reads} == {7}
        assert 2 <= questions.asked <= READS // 2


def test_a_broker_of_an_earlier_version_does_not_hold_reads_up(questions: Questions) -> None:
    """During an upgrade a replica may not know the question: then offsets are as in Kafka."""
    questions.instead = ErrorCode.UNSUPPORTED_VERSION
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **PLACES)
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        assert committed(cluster.ask(2, fetch_request(), 8)) == 7


def test_nobody_is_asked_where_there_is_one_replica(questions: Questions) -> None:
    """And such a read is not held up."""
    with Cluster(3, **SETTINGS) as cluster:
        place(cluster, **{**PLACES, "groups": (2,)})
        client: Any = ClusterClient(cluster)
        client.ask(commit_request(7), 7)
        assert committed(cluster.ask(2, fetch_request(), 8)) == 7
        assert not questions.asked
