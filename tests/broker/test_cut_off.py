"""A leader that its clients reach, and neither the controller nor its followers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.cut_off import CHECK_S
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_clients import (
    GROUP_TOPIC,
    SETTINGS,
    Asked,
    ClusterClient,
    codes,
    commit_request,
    place,
)
from tests.broker.cluster_harness import SETTINGS as CLUSTER_SETTINGS
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import produce_request
from tests.broker.transactional import TOPIC, offset_of

SESSION_MS = 3000
TIMEOUT_MS = 60_000
PLACES = {"groups": (2, 3, 1), "transactions": (1, 2, 3), "data": (2, 3, 1)}
# As `CutOff` has it, with its two checks.
LATEST_S = (
    SESSION_MS + int(str(CLUSTER_SETTINGS["replica.fetch.wait.max.ms"]))
) / 1000 + 2 * CHECK_S
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Broker 2 leads and coordinates, broker 1 is the controller."""
    with Cluster(3, **SETTINGS, broker_session_timeout_ms=SESSION_MS) as made:
        place(made, **PLACES)
        yield made


def cut(cluster: Cluster, *others: int) -> None:
    for other in others:
        cluster.simulation.network.cut("broker2", f"broker{other}")


def heal(cluster: Cluster) -> None:
    for other in (1, 3):
        cluster.simulation.network.heal("broker2", f"broker{other}")


class Producer:
    """An idempotent producer of partition 0."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        granted = cluster.ask(1, InitProducerIdRequest(transactional_id=None), 4)
        assert not granted.error_code
        self.producer_id = granted.producer_id

    def request(self, sequence: int, acks: int = -1) -> Any:
        batch = write_batch(
            [Record(b"%d" % sequence, timestamp=self.cluster.client.clock.now_ms())],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return produce_request(TOPIC, 0, batch, acks=acks, timeout_ms=TIMEOUT_MS)

    def send(self, sequence: int, to: int, acks: int = -1) -> Asked:
        return Asked(self.cluster, to, self.request(sequence, acks), 10)


def outcome(asked: Asked) -> Any:
    return asked.answer().responses[0].partition_responses[0]


def test_producers_look_for_the_leader_that_was_elected(cluster: Cluster) -> None:
    """What waits, and what comes later, is answered NOT_LEADER_OR_FOLLOWER soon after the session
    has run out, and without a hint; sent again to the next leader it is there once.
    """
    producer = Producer(cluster)
    assert outcome(producer.send(0, 2)).error_code == 0
    cut(cluster, 1, 3)
    before_s = cluster.client.clock.monotonic()
    answer = outcome(producer.send(1, 2))
    assert (answer.error_code, answer.current_leader.leader_id) == (NOT_LEADER, -1)
    elapsed_s = cluster.client.clock.monotonic() - before_s
    assert SESSION_MS / 1000 < elapsed_s <= LATEST_S
    assert cluster.partition(TOPIC).leader == 3
    assert outcome(producer.send(2, 2)).error_code == NOT_LEADER
    # The records of who asks for no more than this leader are taken, as in Kafka.
    assert outcome(producer.send(2, 2, acks=1)).error_code == 0
    assert outcome(producer.send(1, 3)).base_offset == 1
    heal(cluster)
    cluster.wait(lambda: len(cluster.partition(TOPIC).isr) == 3)
    follower = cluster.brokers[2].broker.partitions.get(TOPIC, 0)
    assert follower is not None
    assert follower.end_offset == 2
    assert outcome(producer.send(2, 3)).base_offset == 2


def test_the_connection_of_a_producer_ends_after_the_answer(cluster: Cluster) -> None:
    """Whoever has no other one would be given the old leader again and again."""
    producer = Producer(cluster)
    client = cluster.client

    async def ask() -> Connection:
        connection = await Connection.open(client, "broker2")
        answer = await connection.ask(producer.request(0), 10)
        assert answer.responses[0].partition_responses[0].error_code == NOT_LEADER
        return connection

    cut(cluster, 1, 3)
    connection = cluster.run(client, ask())
    cluster.wait(lambda: connection.closed)
    assert outcome(producer.send(0, 2, acks=1)).error_code == 0


def test_commits_that_wait_are_answered_not_coordinator(cluster: Cluster) -> None:
    """As are those that come later; none of them is known to the next coordinator."""
    client: Any = ClusterClient(cluster)
    client.ask(commit_request(7), 7)
    cut(cluster, 1, 3)
    for _ in range(2):
        commit = Asked(cluster, 2, commit_request(8), 7)
        assert set(codes(commit.answer())) == {ErrorCode.NOT_COORDINATOR}
    assert cluster.partition(GROUP_TOPIC).leader == 3
    assert offset_of(client, 0) == 7


@pytest.mark.parametrize("follower_is_lost", [False, True])
def test_nothing_changes_while_the_controller_or_all_followers_are_there(
    follower_is_lost: bool,
) -> None:
    """Without a controller records are acknowledged, and without a follower when that has left the
    ISR, however long either takes.
    """
    settings = {**SETTINGS, "replica_lag_time_max_ms": 3 * SESSION_MS}
    with Cluster(4, **settings, broker_session_timeout_ms=SESSION_MS) as cluster:
        place(cluster, **{**PLACES, "data": (2, 3, 4)})
        producer = Producer(cluster)
        assert outcome(producer.send(0, 2)).error_code == 0
        if follower_is_lost:
            cut(cluster, 3)
        else:
            cluster.brokers[1].crash()  # the controller, which has no replica of it
            cluster.simulation.run_for(3 * SESSION_MS / 1000)
        assert outcome(producer.send(1, 2)).error_code == 0


def test_a_leader_that_is_reached_again_goes_on(cluster: Cluster) -> None:
    """Nobody else was elected: the controller was away too."""
    producer = Producer(cluster)
    assert outcome(producer.send(0, 2)).error_code == 0
    cluster.brokers[1].node.pause()
    cut(cluster, 3)
    assert outcome(producer.send(1, 2)).error_code == NOT_LEADER
    heal(cluster)
    cluster.brokers[1].node.resume()
    led = cluster.brokers[2].broker.partitions.get(TOPIC, 0)
    assert led is not None
    cluster.wait(lambda: not led.cut_off)
    assert outcome(producer.send(1, 2)).base_offset == 1
