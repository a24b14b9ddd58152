"""What trips up those who re-implement Kafka: the traps of leaders and coordinators that move.

By their numbers; those of the log and of one partition are in `tests/replica/test_traps.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_clients import (
    SETTINGS,
    TRANSACTION_TOPIC,
    Asked,
    ClusterClient,
    TransactionalClient,
    codes,
    commit_request,
    place,
)
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import produce_request
from tests.broker.test_cluster_transactions import HeldMarkers, completed, producer, state
from tests.broker.test_transactions import request_of
from tests.broker.transactional import GROUP, TOPIC, offset_of, visible

STEP_S = 0.002  # between two requests of a client that polls


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers; the controller is on broker 1, topics are placed by each test."""
    with Cluster(3, broker_session_timeout_ms=3000, **SETTINGS) as cluster:
        yield cluster


def end_request(client: TransactionalClient, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=client.name,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        committed=commit,
    )


def test_trap_6_the_first_produce_to_a_topic_made_by_asking(cluster: Cluster) -> None:
    """Its leader, which may be another broker and learn of it later, takes it: at once by the
    topic's id, for which it waits; by name after the error that every client retries."""
    cluster.slow_feed(3, 0.05)
    leaders = set()
    for name in map("auto{}".format, range(20)):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        [topic] = cluster.ask(2, asked, 12).topics
        [partition] = topic.partitions
        assert (topic.error_code, partition.error_code) == (0, 0)
        leaders.add(partition.leader_id)
        by_name = produce_request(name, 0, write_batch([Record(b"x")]))
        by_id = produce_request(topic.topic_id, 0, write_batch([Record(b"y")]))
        first = code_of(cluster.ask(partition.leader_id, by_name, 9))
        if partition.leader_id != 3:
            assert first == ErrorCode.NONE
        else:
            assert first == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert code_of(cluster.ask(3, by_id, 13)) == ErrorCode.NONE
            assert code_of(cluster.ask(3, by_name, 9)) == ErrorCode.NONE
    assert leaders == {1, 2, 3}


def code_of(answer: Any) -> int:
    [topic] = answer.responses
    [partition] = topic.partition_responses
    return int(partition.error_code)


def test_trap_7_a_fresh_topic_has_leaders(cluster: Cluster) -> None:
    """Each broker that knows a topic knows its leaders; one that is behind does not know it.

    A partition without a leader makes some clients give up.
    """
    cluster.slow_feed(3, 0.02)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="fresh")], allow_auto_topic_creation=False
    )
    unknown = 0
    assert cluster.create("fresh", 6, 3, through=2).error_code == 0
    for broker_id in (1, 2, 3):
        for _ in range(200):
            [topic] = cluster.ask(broker_id, request, 12).topics
            if topic.error_code:
                assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert broker_id == 3
                unknown += 1
                cluster.simulation.run_for(STEP_S)
                continue
            assert len(topic.partitions) == 6
            for partition in topic.partitions:
                assert (partition.error_code, partition.leader_id > 0) == (0, True)
            break
        else:
            raise AssertionError(f"broker {broker_id} never knows the topic")
    assert unknown


def test_trap_24_an_epoch_is_raised_at_the_next_coordinator(cluster: Cluster) -> None:
    """KIP-360: a producer aborts after an error, and has its epoch raised by another coordinator. A
    retry whose answer was lost is no second instance: the epoch is the same."""
    place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(3, 1, 2))
    client = producer(cluster)
    client.write(0, b"0")
    client.end(False)
    assert completed(cluster) == "CompleteAbort"
    request = InitProducerIdRequest(
        transactional_id="id",
        transaction_timeout_ms=60_000,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
    )
    cluster.brokers[2].crash()
    for _ in range(2):
        granted = client.until(request, 4)
        raised = (granted.producer_id, granted.producer_epoch)
        assert raised == (client.producer_id, client.epoch + 1)
    client.epoch = granted.producer_epoch
    client.sequences.clear()
    client.write(0, b"1")
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 0) == [b"1"]


@pytest.mark.parametrize("victim", [2, 3])
@pytest.mark.parametrize("commit", [True, False])
def test_trap_27_what_is_late_stays_in_its_transaction(
    cluster: Cluster, victim: int, commit: bool
) -> None:
    """Produce and EndTxn of one transaction arrive in the next, after the coordinator (2) or the
    leader (3) has moved: KIP-890's epoch of each transaction fences them."""
    place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(3, 1, 2))
    client = producer(cluster, bumps=True)
    client.write(0, b"first")
    late = [request_of(client, 1), request_of(client, 0, partition=1)]
    late_end = end_request(client, not commit)
    client.end(commit)
    assert completed(cluster).startswith("Complete")
    cluster.brokers[victim].crash()
    client.write(0, b"second")
    for request in late:
        [result] = client.ask(request, 12).responses[0].partition_responses
        assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.ask(late_end, 5).error_code == ErrorCode.PRODUCER_FENCED
    assert state(cluster) == "Ongoing"
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 0) == ([b"first"] if commit else []) + [b"second"]
    assert visible(reader, 1) == []


def test_trap_27_a_late_write_of_a_classic_producer(cluster: Cluster) -> None:
    """Its epoch stays the same: a partition that is no part of the next transaction takes nothing,
    also when the coordinator that is asked about it has just been elected."""
    place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(3, 1, 2))
    client = producer(cluster)
    client.write(1, b"first")
    late = request_of(client, 1, partition=1)
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    cluster.brokers[2].crash()
    client.write(0, b"second")
    [result] = client.ask(late, 9).responses[0].partition_responses
    assert result.error_code == ErrorCode.INVALID_TXN_STATE
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 1) == [b"first"]
    assert visible(reader, 0) == [b"second"]


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("fault", ["killed", "silent"])
def test_trap_30_coordinator_and_leader_move_together(
    cluster: Cluster, bumps: bool, fault: str
) -> None:
    """The acknowledged record of an open transaction is there when both are elected anew, and is a
    part of the transaction that the next coordinator ends. The last one does not reach the other
    replicas before: it is not acknowledged, and is written again."""
    place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(2, 3, 1))
    client = producer(cluster, bumps)
    for number in range(3):
        client.write(0, b"%d" % number)
    client.write(1, b"other")
    for other in ("broker1", "broker3"):
        cluster.simulation.network.cut("broker2", other)
    last = write_batch(
        [Record(b"last", timestamp=cluster.client.clock.now_ms())],
        transactional=True,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        base_sequence=1,
    )
    request = produce_request(TOPIC, 1, last)
    request.transactional_id = client.name
    sent = Asked(cluster, 2, request, 12 if bumps else 9)
    cluster.simulation.run_for(0.5)
    if fault == "killed":
        cluster.brokers[2].crash()
    else:
        cluster.brokers[2].node.pause()
    if sent.open:
        client.write(1, b"last")
    client.write(0, b"3")
    client.end(True)
    assert completed(cluster) == "CompleteCommit"
    reader: Any = client.harness
    assert visible(reader, 0) == [b"%d" % number for number in range(4)]
    assert visible(reader, 1) == [b"other", b"last"]


@pytest.mark.parametrize("bumps", [False, True])
def test_trap_30_a_coordinator_that_is_cut_off_commits_nothing(
    cluster: Cluster, bumps: bool
) -> None:
    """Consume, transform, produce: the coordinator is cut off from the other brokers, not from the
    client, which asks it to commit. Its successor finds the input not done, and does it again.

    Each input is in the output once, whatever the deposed coordinator answers, and when.
    """
    place(cluster, groups=(2, 1, 3), transactions=(2, 1, 3), data=(3, 1, 2))
    first = producer(cluster, bumps)
    first.write(0, b"output")
    first.commit_offset(1)
    network = cluster.simulation.network
    for other in ("broker1", "broker3"):
        network.cut("broker2", other)
    end = Asked(cluster, 2, end_request(first), 5 if bumps else 3)
    cluster.wait(lambda: cluster.partition(TRANSACTION_TOPIC, seen_by=3).leader == 1)
    second = producer(cluster, bumps)
    reader: Any = second.harness
    assert offset_of(reader, int(bumps)) == -1
    second.write(0, b"output")
    second.commit_offset(1)
    second.end(True)
    assert completed(cluster) == "CompleteCommit"
    for other in ("broker1", "broker3"):
        network.heal("broker2", other)
    assert end.answer().error_code == ErrorCode.NOT_COORDINATOR
    assert first.ask(end_request(first), 5 if bumps else 3).error_code == ErrorCode.PRODUCER_FENCED
    assert visible(reader, 0) == [b"output"]
    assert offset_of(reader, int(bumps)) == 1


@pytest.mark.parametrize("victim", [2, 3])
@pytest.mark.parametrize("commit", [True, False])
def test_trap_30_no_group_stays_unstable(cluster: Cluster, victim: int, commit: bool) -> None:
    """The coordinator of the transaction (2), or that of the group (3), dies between the decision
    and the markers: UNSTABLE_OFFSET_COMMIT until the next one has written them, and no longer."""
    place(cluster, groups=(3, 1, 2), transactions=(2, 1, 3), data=(1, 2, 3))
    client = producer(cluster)
    client.commit_offset(5)
    markers = HeldMarkers(cluster, 2)
    client.end(commit)
    cluster.wait(lambda: bool(markers.held))
    asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
    unstable = cluster.ask(3, OffsetFetchRequest(groups=[group], require_stable=True), 8)
    assert ErrorCode.UNSTABLE_OFFSET_COMMIT in codes(unstable)
    cluster.brokers[victim].crash()
    if victim == 3:
        cluster.run(cluster.brokers[2].node, markers.release())
    reader: Any = client.harness
    assert offset_of(reader, 0) == (5 if commit else -1)
    assert completed(cluster) == ("CompleteCommit" if commit else "CompleteAbort")


def test_trap_31_no_committed_offset_seems_to_be_zero(cluster: Cluster) -> None:
    """While the next coordinator is elected and loads, OffsetFetch is an error; "none committed"
    would send a consumer back to the start. (ListOffsets: `tests/replica/test_acknowledgements.py`)
    """
    place(cluster, groups=(2, 3, 1), transactions=(2, 3, 1), data=(1, 2, 3))
    client = ClusterClient(cluster)
    for offset in range(1, 8):
        client.ask(commit_request(offset), 7)
    asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
    others = cluster.brokers[3].broker.coordinators.groups.runtime._turn  # partitions that load
    cluster.run(cluster.brokers[3].node, others.acquire())
    cluster.brokers[2].crash()

    def fetched() -> tuple[int, int]:
        [answer] = cluster.ask(3, OffsetFetchRequest(groups=[group]), 8).groups
        found = answer.topics[0].partitions[0] if answer.topics else None
        return answer.error_code, found.committed_offset if found else -1

    errors = {fetched()[0]}
    while ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in errors:
        cluster.simulation.run_for(STEP_S)
        errors.add(fetched()[0])
    assert errors == {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    others.release()
    loaded = cluster.brokers[3].broker.coordinators.groups.runtime.active
    cluster.wait(lambda: loaded(0) is not None)
    assert fetched() == (0, 7)
