"""Replication throttles (KIP-73): real brokers on simulated machines, in virtual time.

Broker 2 leads a partition of known size, which is moved to broker 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import produce_request
from tests.broker.test_reassignment import move, request, settled

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
SOURCE, TARGET = 2, 3
RATE = 10_000
BATCH_BYTES = 1_000
# Small: on simulated machines an answer beyond the socket buffer costs much time.
SIZE_BYTES = 20 * RATE
# The time that the rate says, but for the sample that it may begin ahead.
SECONDS = (18.0, 21.5)
# Followers of a moving partition, by the side that is throttled.
THROTTLED = {"leader": f"0:{SOURCE}", "follower": f"0:{TARGET}"}
BROKERS = {"leader": SOURCE, "follower": TARGET}
SIDES = ["leader", "follower"]


def configure(
    cluster: Cluster, type_: int, name: str, configs: dict[str, str | None], through: int
) -> None:
    """Set configs, or delete those without a value."""
    resource = AlterConfigsResource(
        resource_type=type_,
        resource_name=name,
        configs=[
            AlterableConfig(
                name=key, config_operation=DELETE if value is None else SET, value=value
            )
            for key, value in configs.items()
        ],
    )
    answer = cluster.ask(through, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in answer.responses] == [0]


def throttle(cluster: Cluster, side: str, rate: int | None, broker: str | None = None) -> None:
    """Set or remove a rate of one broker, or ("") of all of them."""
    name = str(BROKERS[side]) if broker is None else broker
    value = None if rate is None else str(rate)
    through = int(name or 1)
    configure(cluster, BROKER, name, {f"{side}.replication.throttled.rate": value}, through)


def cover(cluster: Cluster, side: str, replicas: str | None, topic: str = "t") -> None:
    """Set or remove the throttled replicas of a topic."""
    configure(cluster, TOPIC, topic, {f"{side}.replication.throttled.replicas": replicas}, 1)


def append(
    cluster: Cluster, topic: str, count: int = 1, value: bytes = b"", leader: int = SOURCE
) -> None:
    """Batches of a size that counts; acknowledged by all in-sync replicas."""
    now_ms = cluster.client.clock.now_ms()
    for _ in range(count):
        batch = write_batch([Record(value or b"x" * BATCH_BYTES, timestamp=now_ms)])
        answer = cluster.ask(leader, produce_request(topic, 0, batch), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def create(cluster: Cluster, topic: str, replicas: Sequence[int], leader: int = SOURCE) -> None:
    """A topic with one partition, and a record in it."""
    assert cluster.create(topic, 1, 1, through=1, replicas=replicas).error_code == 0
    cluster.wait(lambda: cluster.partition(topic, seen_by=leader) is not None)
    append(cluster, topic, leader=leader)


def fill(
    cluster: Cluster, size_bytes: int = SIZE_BYTES, replicas: Sequence[int] = (SOURCE,)
) -> None:
    """A topic of that size, led by the source."""
    create(cluster, "t", replicas)
    append(cluster, "t", size_bytes // BATCH_BYTES - 1)


def moved(cluster: Cluster) -> bool:
    return settled(cluster, (TARGET,), 1, SOURCE, TARGET)


def copied(cluster: Cluster, topic: str = "t") -> int:
    """The records of the topic that the target has."""
    found = cluster.brokers[TARGET].broker.partitions.get(topic, 0)
    return 0 if found is None else found.end_offset


def seconds_to_move(cluster: Cluster) -> float:
    """Move the topic and return how long it took, in virtual time."""
    began_s = cluster.simulation.now_s
    assert move(cluster, (TARGET,)) == 0
    cluster.wait(lambda: moved(cluster), limit_s=300)
    return cluster.simulation.now_s - began_s


def fetches(cluster: Cluster) -> int:
    """The requests that the target has made, or looked whether to make."""
    return sum(each.number for each in cluster.brokers[TARGET].broker.replication.fetchers)


def shown_rate(cluster: Cluster, side: str) -> float:
    """What the metrics of the throttled broker show."""
    name = f"kafka_server_{side.capitalize()}Replication_byte_rate "
    text = cluster.brokers[BROKERS[side]].broker.metrics.text()
    [line] = [each for each in text.splitlines() if each.startswith(name)]
    return float(line.split()[-1])


@pytest.mark.parametrize("side", SIDES)
class TestOneSide:
    def test_a_move_takes_the_time_that_the_rate_says(self, side: str) -> None:
        """And no broker asks again and again meanwhile."""
        with Cluster(3) as cluster:
            fill(cluster)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, RATE)
            before = fetches(cluster)
            took_s = seconds_to_move(cluster)
            assert SECONDS[0] < took_s < SECONDS[1]
            # Each period of 200 ms in which the fetch of the target waits, and each burst.
            assert fetches(cluster) - before < 12 * took_s

    @pytest.mark.parametrize(
        ("rate", "replicas"), [(RATE, None), (RATE, "0:7,1:2,1:3"), (None, "*")]
    )
    def test_what_is_not_throttled_is_not_slow(
        self, side: str, rate: int | None, replicas: str | None
    ) -> None:
        """A rate without replicas of this partition here, or replicas without a rate."""
        with Cluster(3) as cluster:
            fill(cluster)
            if replicas is not None:
                cover(cluster, side, replicas)
            if rate is not None:
                throttle(cluster, side, rate)
            assert seconds_to_move(cluster) < 2

    def test_all_replicas_and_all_brokers(self, side: str) -> None:
        """`*`, and the rate of all brokers, which that of one broker replaces."""
        with Cluster(3) as cluster:
            fill(cluster)
            cover(cluster, side, "*")
            throttle(cluster, side, 2, broker="")
            throttle(cluster, side, RATE)
            assert SECONDS[0] < seconds_to_move(cluster) < SECONDS[1]

    def test_another_rate_counts_at_once(self, side: str) -> None:
        """In the middle of a move: slower first, then as fast as it goes."""
        with Cluster(3) as cluster:
            fill(cluster)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, RATE // 10)
            assert move(cluster, (TARGET,)) == 0
            began_s = cluster.simulation.now_s
            cluster.simulation.run_for(20)
            assert 15 <= copied(cluster) <= 30
            throttle(cluster, side, RATE)
            cluster.wait(lambda: copied(cluster) >= 100)
            assert cluster.simulation.now_s - began_s < 31
            throttle(cluster, side, None)
            began_s = cluster.simulation.now_s
            cluster.wait(lambda: moved(cluster))
            assert cluster.simulation.now_s - began_s < 1

    def test_replicas_that_are_not_throttled_any_more(self, side: str) -> None:
        """As `--verify` leaves it: the rest goes as fast as it can."""
        with Cluster(3) as cluster:
            fill(cluster)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, 1)
            assert move(cluster, (TARGET,)) == 0
            cluster.simulation.run_for(30)
            assert 0 < copied(cluster) < 6
            cover(cluster, side, None)
            began_s = cluster.simulation.now_s
            cluster.wait(lambda: moved(cluster))
            assert cluster.simulation.now_s - began_s < 1

    def test_others_are_not_slowed_down(self, side: str) -> None:
        """Records of another topic between the same brokers are acknowledged as ever."""
        with Cluster(3) as cluster:
            fill(cluster)
            create(cluster, "u", (SOURCE, TARGET))
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, RATE)
            assert move(cluster, (TARGET,)) == 0
            began_s = cluster.simulation.now_s
            append(cluster, "u", 200)
            assert cluster.simulation.now_s - began_s < 2
            assert copied(cluster, "u") == 201
            cluster.wait(lambda: moved(cluster), limit_s=300)
            assert SECONDS[0] < cluster.simulation.now_s - began_s < SECONDS[1]

    def test_an_in_sync_replica_is_not_held_back(self, side: str) -> None:
        """A throttle far below what is produced: acks=all goes on, and the ISR stays."""
        with Cluster(3) as cluster:
            create(cluster, "u", (SOURCE, TARGET))
            cover(cluster, side, "*", "u")
            throttle(cluster, side, 100)
            began_s = cluster.simulation.now_s
            append(cluster, "u", 100)
            assert cluster.simulation.now_s - began_s < 2
            assert set(cluster.partition("u").isr) == {SOURCE, TARGET}

    def test_a_batch_larger_than_the_quota_passes(self, side: str) -> None:
        """One in each window of eleven samples, however low the rate is."""
        with Cluster(3) as cluster:
            fill(cluster, size_bytes=3 * BATCH_BYTES)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, 0)
            assert 20 < seconds_to_move(cluster) < 25

    def test_a_follower_without_a_session(self, side: str) -> None:
        """The leader has no slot for one (KIP-227): it waits for the quota all the same."""
        with Cluster(3, max_incremental_fetch_session_cache_slots=0) as cluster:
            fill(cluster)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, RATE)
            before = fetches(cluster)
            took_s = seconds_to_move(cluster)
            assert SECONDS[0] < took_s < SECONDS[1]
            assert fetches(cluster) - before < 12 * took_s

    def test_records_that_come_meanwhile(self, side: str) -> None:
        """The high watermark moves with each, and nobody is sent it over and over for that."""
        with Cluster(3) as cluster:
            fill(cluster, replicas=(SOURCE, 1))
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, 1)
            assert move(cluster, (SOURCE, 1, TARGET)) == 0
            cluster.wait(lambda: copied(cluster) > 0)
            before = fetches(cluster)
            for _ in range(20):
                append(cluster, "t", 5, b"new")
                cluster.simulation.run_for(0.5)
            assert fetches(cluster) - before < 10 * 10

    def test_a_broker_that_is_started_again_keeps_to_it(self, side: str) -> None:
        """The configs are the cluster's: the process after it has them from the start."""
        with Cluster(3) as cluster:
            fill(cluster)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, RATE)
            broker = cluster.brokers[BROKERS[side]]
            broker.crash()
            broker.start()
            cluster.wait(lambda: broker.started and cluster.partition("t").leader == SOURCE)
            cluster.wait(lambda: not cluster.image(1).brokers[broker.id].fenced)
            assert SECONDS[0] < seconds_to_move(cluster) < SECONDS[1]

    def test_the_rate_is_shown(self, side: str) -> None:
        """Under the name of Kafka's MBean."""
        with Cluster(3) as cluster:
            fill(cluster)
            cover(cluster, side, THROTTLED[side])
            throttle(cluster, side, RATE)
            assert move(cluster, (TARGET,)) == 0
            cluster.simulation.run_for(10)
            assert RATE * 0.8 < shown_rate(cluster, side) < RATE * 1.3
            assert cluster.ask(1, request(None), 1).error_code == 0

    def test_nothing_is_counted_without_a_rate(self, side: str) -> None:
        """It is 0 again when the samples have expired, whatever is copied."""
        with Cluster(3) as cluster:
            create(cluster, "u", (SOURCE, TARGET))
            cover(cluster, side, "*", "u")
            throttle(cluster, side, RATE)
            append(cluster, "u", 5)
            assert shown_rate(cluster, side) > 0
            throttle(cluster, side, None)
            cluster.simulation.run_for(20)
            append(cluster, "u", 5)
            assert shown_rate(cluster, side) == 0


def test_leaders_share_the_quota_of_their_follower() -> None:
    """Two partitions that come from two brokers take as long as one of that size together."""
    with Cluster(4) as cluster:
        half = SIZE_BYTES // 2
        fill(cluster, half)
        create(cluster, "u", (4,), leader=4)
        append(cluster, "u", half // BATCH_BYTES - 1, leader=4)
        for topic in ("t", "u"):
            cover(cluster, "follower", "*", topic)
        throttle(cluster, "follower", RATE)
        assert cluster.ask(3, request((TARGET,), topic="u"), 1).error_code == 0
        assert move(cluster, (TARGET,)) == 0
        began_s = cluster.simulation.now_s
        before = fetches(cluster)
        cluster.wait(
            lambda: all(cluster.partition(each).replicas == (TARGET,) for each in "tu"), limit_s=300
        )
        took_s = cluster.simulation.now_s - began_s
        assert SECONDS[0] - 1 < took_s < SECONDS[1]
        assert fetches(cluster) - before < 24 * took_s


def test_followers_share_the_quota_of_their_leader() -> None:
    """Two copies of one partition take twice the time of one, and both are made."""
    with Cluster(4) as cluster:
        fill(cluster, SIZE_BYTES // 2)
        cover(cluster, "leader", "*")
        throttle(cluster, "leader", RATE)
        began_s = cluster.simulation.now_s
        assert move(cluster, (TARGET, 4)) == 0
        cluster.wait(lambda: settled(cluster, (TARGET, 4), 1, TARGET, 4), limit_s=300)
        assert SECONDS[0] - 1 < cluster.simulation.now_s - began_s < SECONDS[1]


def test_both_sides_at_once() -> None:
    """As `kafka-reassign-partitions.sh --throttle` sets it: the rate, and not half of it."""
    with Cluster(3) as cluster:
        fill(cluster)
        for side in SIDES:
            cover(cluster, side, THROTTLED[side])
            for broker in (SOURCE, TARGET):
                throttle(cluster, side, RATE, str(broker))
        assert SECONDS[0] < seconds_to_move(cluster) < SECONDS[1] + 2
