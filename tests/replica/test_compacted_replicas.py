"""Replicas of a compacted topic: each compacts by itself, and they say the same."""

from __future__ import annotations

import random

import pytest

from ottla.replica.partition import Partition
from ottla.testing.simulation.replica_log import producer_states
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, read_records, write_batch
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import produce_request

WRITES = 80
KEYS = [b"k%d" % number for number in range(7)]
# Key and value of a record by its offset.
Records = dict[int, tuple[bytes | None, bytes | None]]


def partition(cluster: Cluster, broker_id: int) -> Partition:
    found = cluster.brokers[broker_id].broker.partitions.get("t", 0)
    assert found is not None
    return found


def records(replica: Partition) -> Records:
    """All records on the replica's disk, by offset."""
    return {
        record.offset: (record.key, record.value)
        for segment in replica.log.segments
        for batch in segment.batches()
        if not batch.is_control
        for record in read_records(segment.file.pread(batch.size, batch.position))
    }


def last_values(found: Records) -> dict[bytes | None, bytes | None]:
    """The last value of each key; not of those that were deleted."""
    last = {key: value for _, (key, value) in sorted(found.items())}
    return {key: value for key, value in last.items() if value is not None}


def write(cluster: Cluster, sequence: int, key: bytes, value: bytes | None) -> None:
    """Write one record with acks=all, again until it is acknowledged."""
    batch = bytes(
        write_batch(
            [Record(value, key=key, timestamp=cluster.client.clock.now_ms())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )
    while True:
        leader = cluster.controller.image.partition("t", 0).leader
        if leader >= 0 and cluster.brokers[leader].started:
            answer = cluster.ask(leader, produce_request("t", 0, batch), 9)
            if answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                return
        cluster.simulation.run_for(0.05)


@pytest.mark.parametrize("seed", range(4))
def test_replicas_that_compact_agree(seed: int) -> None:
    """After leaders were killed and replicas compacted at different times: the same record at
    common offsets, the same last value of each key, which is the one that was acknowledged, and
    the same producer state at one offset.
    """
    rng = random.Random(seed)
    settings = {
        "log_cleanup_policy": "compact",
        "log_cleaner_min_cleanable_ratio": 0.01,
        "log_cleaner_backoff_ms": 10**9,
        "log_roll_ms": 400,
    }
    acknowledged: dict[bytes, bytes | None] = {}
    with Cluster(3, seed=seed, **settings) as cluster:
        cluster.create("t", 1, 0, through=1, replicas=(2, 3, 1))
        cleaned = 0
        for number in range(WRITES):
            key = rng.choice(KEYS)
            value = None if rng.random() < 0.1 else b"%d" % number
            write(cluster, number, key, value)
            acknowledged[key] = value
            cluster.simulation.run_for(rng.uniform(0.0, 0.1))
            if rng.random() < 0.15:
                broker = cluster.brokers[rng.choice((1, 2, 3))]
                if broker.started:
                    cleaned += cluster.run(broker.node, broker.broker.logs.cleaner.run())
            if rng.random() < 0.06:
                victim = cluster.brokers[rng.choice((2, 3))]
                others = (cluster.brokers[each] for each in (2, 3) if each != victim.id)
                if victim.started and all(each.started for each in others):
                    victim.crash(power=rng.random() < 0.5)
                    victim.start()
        cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
        cluster.wait(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        replicas = [partition(cluster, each) for each in (1, 2, 3)]
        cluster.wait(lambda: len({each.high_watermark for each in replicas}) == 1)
        found = [records(each) for each in replicas]
        assert cleaned > 2
        assert len({frozenset(each) for each in found}) > 1, "they compacted differently"
        for one in found:
            for other in found:
                for offset in one.keys() & other.keys():
                    assert one[offset] == other[offset]
        expected = {key: value for key, value in acknowledged.items() if value is not None}
        assert [last_values(each) for each in found] == [expected] * 3
        assert len({producer_states(each) for each in replicas}) == 1


def test_what_may_be_cut_takes_nothing_away() -> None:
    """A deposed leader has a later value that nobody else has: compaction leaves the earlier one,
    which is all there is when the log has been cut."""
    settings = {"log_cleanup_policy": "compact", "log_cleaner_min_cleanable_ratio": 0.01}
    with Cluster(3, **settings, log_cleaner_backoff_ms=10**9) as cluster:
        cluster.create("t", 1, 0, through=1, replicas=(2, 3, 1))
        write(cluster, 0, b"a", b"kept")
        deposed = cluster.brokers[2]
        cluster.wait(lambda: partition(cluster, 2).high_watermark == 1)

        async def roll() -> None:
            log = partition(cluster, 2).log
            log.roll(now_ms=cluster.client.clock.now_ms())
            log.flush()

        cluster.run(deposed.node, roll())
        for other in ("broker1", "broker3"):
            cluster.simulation.network.cut("broker2", other)
        later = write_batch([Record(b"cut", key=b"a", timestamp=cluster.client.clock.now_ms())])
        answer = cluster.ask(2, produce_request("t", 0, later, acks=1), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 1
        cluster.run(deposed.node, roll())
        cluster.run(deposed.node, deposed.broker.logs.cleaner.run())
        assert records(partition(cluster, 2)) == {0: (b"a", b"kept"), 1: (b"a", b"cut")}
        cluster.wait(lambda: cluster.partition("t", seen_by=3).leader == 3)
        for other in ("broker1", "broker3"):
            cluster.simulation.network.heal("broker2", other)
        cluster.wait(lambda: set(cluster.partition("t", seen_by=3).isr) == {1, 2, 3})
        assert records(partition(cluster, 2)) == {0: (b"a", b"kept")}
