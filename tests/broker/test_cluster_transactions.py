"""Transactions among several brokers: coordinator, leaders and producers that die in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from ottla.replica.partition import Partition
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_clients import (
    SETTINGS,
    TRANSACTION_TOPIC,
    Asked,
    ClusterClient,
    TransactionalClient,
    place,
)
from tests.broker.cluster_harness import Cluster
from tests.broker.test_transactions import request_of
from tests.broker.transactional import offset_of, visible


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The controller is on broker 1, the coordinators are on 2, the data is led by 3."""
    with Cluster(3, broker_session_timeout_ms=3000, **SETTINGS) as cluster:
        place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(3, 1, 2))
        yield cluster


def producer(cluster: Cluster, bumps: bool = False) -> TransactionalClient:
    client: Any = ClusterClient(cluster)
    made = TransactionalClient(client, "id", bumps)
    made.begin()
    return made


class HeldMarkers:
    """WriteTxnMarkers that a broker would send, held until `release`."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.held: list[tuple[int, Any, Callable[[Any], object]]] = []
        self.answers: list[Any] = []
        self._broker = cluster.brokers[broker_id].broker
        self._send = self._broker.peers.send
        self._broker.peers.send = self._hold  # type: ignore[method-assign]

    def _hold(self, node_id: int, request: Any, then: Callable[[Any], object]) -> None:
        if isinstance(request, WriteTxnMarkersRequest):
            self.held.append((node_id, request, then))
        else:
            self._send(node_id, request, then)

    async def release(self) -> None:
        """Send what was held, once; nothing is held any more."""
        self._broker.peers.send = self._send  # type: ignore[method-assign]
        for node_id, request, then in self.held:
            self._send(node_id, request, partial(self._answered, then))

    def _answered(self, then: Callable[[Any], object], answer: Any) -> None:
        self.answers.append(answer)
        then(answer)


def state(cluster: Cluster) -> str:
    request = DescribeTransactionsRequest(transactional_ids=["id"])
    client = ClusterClient(cluster)
    return str(client.ask(request, 0).transaction_states[0].transaction_state)


def completed(cluster: Cluster) -> str:
    """The state of the transaction once it is complete."""
    for _ in range(200):
        found = state(cluster)
        if found.startswith("Complete"):
            return found
        cluster.simulation.run_for(0.05)
    raise AssertionError(f"the transaction stays in {found}")


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_writes_the_markers(
    cluster: Cluster, bumps: bool, commit: bool
) -> None:
    """The coordinator dies when the outcome is decided, before any marker was written (trap 30).

    Records and offsets of the transaction become visible, or never do, and the producer goes on
    with what it was given before.
    """
    client = producer(cluster, bumps)
    client.write(0, b"0")
    client.commit_offset(5)
    markers = HeldMarkers(cluster, 2)
    client.end(commit)
    cluster.wait(lambda: bool(markers.held))
    cluster.brokers[2].crash()
    assert completed(cluster) == ("CompleteCommit" if commit else "CompleteAbort")
    reader: Any = client.harness
    assert visible(reader, 0) == ([b"0"] if commit else [])
    assert offset_of(reader, int(bumps)) == (5 if commit else -1)
    client.write(0, b"1")
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    assert visible(reader, 0) == ([b"0", b"1"] if commit else [b"1"])


def test_a_transaction_is_completed_when_the_isr_of_its_coordinator_is_large_enough_again(
    cluster: Cluster,
) -> None:
    """Its markers are written while nothing can be appended to the coordinator's own partition."""
    client = producer(cluster)
    client.write(0, b"0")
    markers = HeldMarkers(cluster, 2)
    client.end(True)
    cluster.wait(lambda: bool(markers.held))
    own = cluster.brokers[2].broker.partitions.get(TRANSACTION_TOPIC, 0)
    with patch.object(Partition, "has_min_isr", property(lambda self: self is not own)):
        cluster.run(cluster.brokers[2].node, markers.release())
        cluster.wait(lambda: bool(markers.answers))
        assert state(cluster) == "PrepareCommit"
    assert completed(cluster) == "CompleteCommit"


@pytest.mark.parametrize("replicated", [False, True])
def test_an_end_under_way_when_the_coordinator_dies_is_decided_once(
    cluster: Cluster, replicated: bool
) -> None:
    """Trap 25: its producer has no answer, and asks the next coordinator. The outcome is the
    same."""
    client = producer(cluster)
    client.write(0, b"0")
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        committed=True,
    )

    def end_offset(broker_id: int) -> int:
        partition = cluster.brokers[broker_id].broker.partitions.get(TRANSACTION_TOPIC, 0)
        assert partition is not None
        return partition.end_offset

    before = end_offset(2)
    under_way = Asked(cluster, 2, request, 3)
    cluster.wait(lambda: end_offset(1 if replicated else 2) > before)
    cluster.brokers[2].crash()
    assert isinstance(under_way.answer(), OSError)
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 0) == [b"0"]


def test_a_marker_goes_to_the_next_leader_when_the_leader_dies(cluster: Cluster) -> None:
    """The leader of a partition dies while the marker is on its way to it."""
    client = producer(cluster)
    client.write(0, b"0")
    markers = HeldMarkers(cluster, 2)
    client.end(True)
    cluster.wait(lambda: bool(markers.held))
    assert {node_id for node_id, _, _ in markers.held} == {3}
    cluster.run(cluster.brokers[2].node, markers.release())
    assert not markers.answers
    cluster.brokers[3].crash()
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 0) == [b"0"]


def test_a_marker_does_not_wait_for_a_leader_that_is_silent() -> None:
    """A suspended leader keeps its connections: the marker goes to the next one as soon as others
    lead, long before the request to the old one has timed out."""
    settings = {"broker_session_timeout_ms": 2500, "replica_socket_timeout_ms": 30_000}
    with Cluster(3, **settings, **SETTINGS) as cluster:
        place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(3, 1, 2))
        client = producer(cluster)
        client.write(0, b"0")
        markers = HeldMarkers(cluster, 2)
        client.end(True)
        cluster.wait(lambda: bool(markers.held))
        before_s = cluster.simulation.now_s
        cluster.brokers[3].node.pause()
        cluster.run(cluster.brokers[2].node, markers.release())
        assert completed(cluster) == "CompleteCommit"
        assert cluster.simulation.now_s - before_s < 10
        reader: Any = client.harness
        assert visible(reader, 0) == [b"0"]


def test_markers_of_a_deposed_coordinator_are_fenced(cluster: Cluster) -> None:
    """It decided, was cut off from the controller, and sends its markers much later.

    The next coordinator has written them meanwhile, and the same producer, under the same epoch,
    is in its next transaction: that one does not end by them.
    """
    client = producer(cluster)
    client.write(0, b"0")
    markers = HeldMarkers(cluster, 2)
    client.end(True)
    cluster.wait(lambda: bool(markers.held))
    cluster.simulation.network.cut("broker1", "broker2")
    cluster.wait(lambda: cluster.partition(TRANSACTION_TOPIC, seen_by=3).leader == 1)
    assert completed(cluster) == "CompleteCommit"
    client.write(0, b"1")
    cluster.run(cluster.brokers[2].node, markers.release())
    cluster.wait(lambda: len(markers.answers) == len(markers.held))
    for answer in markers.answers:
        [result] = answer.markers[0].topics[0].partitions
        assert result.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert state(cluster) == "Ongoing"
    client.end(False)
    cluster.simulation.network.heal("broker1", "broker2")
    assert completed(cluster) == "CompleteAbort"
    reader: Any = client.harness
    assert visible(reader, 0) == [b"0"]


@pytest.mark.parametrize("bumps", [False, True])
def test_a_zombie_is_fenced_after_a_failover(cluster: Cluster, bumps: bool) -> None:
    """Trap 23: its successor begins at the next coordinator. What the zombie wrote is aborted, and
    neither leader nor coordinator takes anything more of it: each answers its own error."""
    zombie = producer(cluster, bumps)
    zombie.write(0, b"zombie")
    cluster.brokers[2].crash()
    successor = producer(cluster, bumps)
    assert successor.epoch > zombie.epoch
    written = zombie.ask(request_of(zombie, sequence=1), 12 if bumps else 9)
    [result] = written.responses[0].partition_responses
    assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    end = EndTxnRequest(
        transactional_id="id",
        producer_id=zombie.producer_id,
        producer_epoch=zombie.epoch,
        committed=True,
    )
    assert zombie.ask(end, 5 if bumps else 3).error_code == ErrorCode.PRODUCER_FENCED
    successor.write(0, b"successor")
    successor.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = successor.harness
    assert visible(reader, 0) == [b"successor"]


@pytest.mark.parametrize("fault", ["dead", "silent"])
def test_a_write_that_cannot_be_verified_is_retried(cluster: Cluster, fault: str) -> None:
    """Without a coordinator to ask, the leader answers NOT_ENOUGH_REPLICAS, which every client
    retries; at the next coordinator the write is verified."""
    client = producer(cluster, bumps=True)
    if fault == "dead":
        cluster.brokers[2].crash()
    else:
        cluster.brokers[2].node.pause()
    answer = cluster.ask(3, request_of(client), 12)
    [result] = answer.responses[0].partition_responses
    assert result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    client.write(0, b"0")
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 0) == [b"0"]
