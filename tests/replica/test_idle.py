"""Partitions that do not move: what they cost, and that their followers still count as in sync."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from ottla.replica.partition import Partition
from tests.replica.brokers import TOPIC, Brokers

PARTITIONS = 30


class Reads:
    """Counts the reads of partitions on all brokers."""

    def __init__(self) -> None:
        self.count = 0
        self._read = Partition.read

    def __enter__(self) -> Reads:
        counted = self

        def read(partition: Partition, *arguments: Any, **options: Any) -> Any:
            counted.count += 1
            return counted._read(partition, *arguments, **options)

        self._patch = patch.object(Partition, "read", read)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def test_a_followers_fetch_reads_what_has_moved() -> None:
    """Not every partition of its session: neither while all is idle, nor when one is written."""
    with Brokers(3, partitions=PARTITIONS) as brokers:
        for index in range(PARTITIONS):
            brokers.lead(1, index)
        brokers.run(2)
        with Reads() as reads:
            brokers.run(10)
            assert reads.count == 0
            for _ in range(10):
                brokers.produced(1, b"value", index=7)
            # Two followers, each with the records and with the high watermark.
            assert reads.count < 10 * 2 * 4


def test_followers_of_idle_partitions_stay_in_the_isr() -> None:
    """They are at the end, and the first record after minutes does not make them lag."""
    with Brokers(3, replica_lag_time_max_ms=1000) as brokers:
        brokers.lead(1)
        brokers.run(120)
        for _ in range(20):
            brokers.produced(1, b"value")
            brokers.run(0.7)
        assert brokers.script.proposals == []


@pytest.mark.parametrize("state", ["fenced", "in_controlled_shutdown"])
def test_a_follower_joins_the_isr_of_an_idle_partition_once_it_may(state: str) -> None:
    """KIP-841: not while it is fenced or shuts down; nothing has to be written for it to be looked
    at again."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"value")
        brokers.script.move(3, **{state: True})
        brokers.run(0.1)
        brokers.script.decide(0, isr=(1, 2))
        brokers.run(5)
        assert brokers.script.state(0).isr == (1, 2)
        brokers.script.move(3, **{state: False})
        brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2, 3))


def test_fetches_of_an_earlier_process_do_not_count() -> None:
    """KIP-903: a broker that has registered again may have lost what it acknowledged before."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.run(1)
        epoch = brokers.script.image.brokers[3].epoch
        brokers.script.move(3, epoch=epoch + 1000)
        brokers.run(0.1)
        waiting = brokers.produce(1, b"value", timeout_ms=60_000)
        brokers.script.decide(0, isr=(1, 2))
        brokers.run(5)
        assert brokers.at(3).end_offset == 1
        assert brokers.script.state(0).isr == (1, 2)
        assert waiting.ready
        brokers.brokers[3].epoch = epoch + 1000
        brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2, 3))


def test_a_broker_that_is_no_replica_any_more_does_not_fetch() -> None:
    """After a reassignment it has no replica, asks for nothing, and counts for nothing."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.run(1)
        brokers.script.decide(0, leader=1, replicas=(1, 2), isr=(1, 2))
        brokers.run(1)
        brokers.produced(1, b"value")
        brokers.run(1)
        assert brokers.at(2).end_offset == 1
        assert brokers.brokers[3].partitions.get(TOPIC, 0) is None
        assert all(not each.partitions for each in brokers.brokers[3].replication.fetchers)


def test_a_follower_that_stops_fetching_leaves_the_isr_of_what_is_written() -> None:
    """Within replica.lag.time.max.ms and the interval of the check, half of it."""
    with Brokers(3, replica_lag_time_max_ms=2000) as brokers:
        brokers.lead(1)
        brokers.run(60)
        brokers.cut(3)
        brokers.run(10)
        answer = brokers.produce(1, b"value", timeout_ms=60_000)
        passed_s = brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2))
        assert passed_s <= 3.1
        brokers.run_until(lambda: answer.ready)
