"""A replica that finds damage on its disk leaves the ISR and copies the range from a good one."""

from __future__ import annotations

import errno
import logging

import pytest

from ottla.replica.partition import Partition
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import Cluster, produce, read
from tests.broker.harness import DATA, produce_request

LOG_FILE = f"{DATA}/t-0/00000000000000000000.log"
VALUES = ["a", "b", "c"]
SCRUB = {"log_scrub_interval_ms": 1000}


def partition(cluster: Cluster, broker_id: int) -> Partition:
    found = cluster.brokers[broker_id].broker.partitions.get("t", 0)
    assert found is not None
    return found


def content(cluster: Cluster, broker_id: int) -> bytes:
    return cluster.brokers[broker_id].node.disk.read(LOG_FILE)


def written(cluster: Cluster, *replicas: int) -> None:
    """Three batches on these replicas, the first of which leads; synced and committed on all."""
    cluster.create("t", 1, 0, through=1, replicas=replicas)
    for value in VALUES:
        produce(cluster, replicas[0], value)
    cluster.wait(lambda: all(partition(cluster, each).high_watermark == 3 for each in replicas))
    for each in replicas:
        partition(cluster, each).log.flush()


def damage(cluster: Cluster, broker_id: int) -> None:
    """Flip a bit of the second batch."""
    size = partition(cluster, broker_id).size_bytes // 3
    cluster.brokers[broker_id].node.disk.flip_bit(LOG_FILE, (size + 65) * 8)


def repaired(cluster: Cluster, broker_id: int) -> bool:
    text = cluster.brokers[broker_id].broker.metrics.text()
    return "ottla_log_DamageRepaired_total 1" in text


def isr(cluster: Cluster) -> set[int]:
    return set(cluster.partition("t").isr)


def kept(cluster: Cluster, broker_id: int) -> list[str]:
    names = cluster.brokers[broker_id].node.disk.listdir(f"{DATA}/t-0")
    return [each for each in names if each.endswith(".corrupt")]


def test_a_damaged_follower_is_repaired() -> None:
    """It leaves the ISR before, is the same as the leader byte by byte afterwards, keeps what was
    damaged, and joins again.
    """
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage(cluster, 3)
        assert content(cluster, 3) != content(cluster, 1)
        cluster.wait(lambda: isr(cluster) == {1, 2})
        assert not repaired(cluster, 3)
        assert 3 not in cluster.partition("t").elr
        cluster.wait(lambda: repaired(cluster, 3))
        assert content(cluster, 3) == content(cluster, 1)
        assert kept(cluster, 3) == [f"{1:020d}.log.corrupt"]
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert cluster.partition("t").leader == 1


def test_a_damaged_leader_gives_leadership_away_first() -> None:
    """Another member of the ISR leads, and readers get every record."""
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage(cluster, 1)
        cluster.wait(lambda: cluster.partition("t").leader != 1)
        leader = cluster.partition("t").leader
        assert not repaired(cluster, 1)
        assert isr(cluster) == {2, 3}
        cluster.wait(lambda: cluster.partition("t", seen_by=leader).leader == leader)
        assert read(cluster, leader) == VALUES
        cluster.wait(lambda: repaired(cluster, 1))
        assert content(cluster, 1) == content(cluster, leader)
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})


def test_the_last_member_of_the_isr_stays(caplog: pytest.LogCaptureFixture) -> None:
    """It says that it is damaged, leads on, and is repaired when another one is in sync again."""
    with Cluster(2, min_insync_replicas=1, **SCRUB) as cluster:
        written(cluster, 1, 2)
        cluster.brokers[2].crash()
        cluster.wait(lambda: isr(cluster) == {1})
        with caplog.at_level(logging.ERROR):
            damage(cluster, 1)
            cluster.wait(lambda: "alone in its ISR" in caplog.text)
            cluster.simulation.run_for(20)
        assert caplog.text.count("alone in its ISR") == 1
        assert cluster.partition("t").leader == 1
        assert isr(cluster) == {1}
        cluster.brokers[2].start()
        cluster.wait(lambda: repaired(cluster, 1))
        assert content(cluster, 1) == content(cluster, 2)


def write_keyed(cluster: Cluster, leader: int, *keys: bytes) -> None:
    for number, key in enumerate(keys):
        stamp = cluster.client.clock.now_ms()
        batch = write_batch([Record(b"%d" % number, key=key, timestamp=stamp)])
        answer = cluster.ask(leader, produce_request("t", 0, batch), 9)
        assert not answer.responses[0].partition_responses[0].error_code


def roll(cluster: Cluster, broker_id: int) -> None:
    async def begin_another() -> None:
        log = partition(cluster, broker_id).log
        log.roll(now_ms=cluster.client.clock.now_ms())
        log.flush()

    cluster.run(cluster.brokers[broker_id].node, begin_another())


def all_read(cluster: Cluster, broker_id: int) -> list[int]:
    """The offsets of the batches on a replica's disk."""
    segments = partition(cluster, broker_id).log.segments
    return [batch.base_offset for segment in segments for batch in segment.batches()]


@pytest.mark.parametrize("compacted", [1, 3])
def test_a_log_that_was_compacted_otherwise_is_copied_again(compacted: int) -> None:
    """The leader's log was compacted and the damaged one was not, or the other way round: the
    damaged segment and what follows is kept, and all of it comes from the leader.
    """
    settings = {"log_cleanup_policy": "compact", "log_cleaner_min_cleanable_ratio": 0.01}
    with Cluster(3, **SCRUB, **settings, log_cleaner_backoff_ms=10**9) as cluster:
        cluster.create("t", 1, 0, through=1, replicas=(1, 2, 3))
        write_keyed(cluster, 1, b"a", b"b", b"c", b"a", b"c", b"d")
        ends = [partition(cluster, each) for each in (1, 2, 3)]
        cluster.wait(lambda: all(each.high_watermark == 6 for each in ends))
        for each in (1, 2, 3):
            roll(cluster, each)
        write_keyed(cluster, 1, b"e")
        cluster.wait(lambda: all(each.high_watermark == 7 for each in ends))
        third = cluster.brokers[compacted]
        assert cluster.run(third.node, third.broker.logs.cleaner.run()) == 1
        assert all_read(cluster, compacted) == [1, 3, 4, 5, 6]
        # The first batch that both have is damaged, with offsets that only one of them has.
        first = partition(cluster, 3).log.segments[0].batch_at(0)
        cluster.brokers[3].node.disk.flip_bit(LOG_FILE, (first.size - 1) * 8)
        damaged = content(cluster, 3)
        cluster.wait(lambda: repaired(cluster, 3))
        assert 3 not in isr(cluster)
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert all_read(cluster, 3) == all_read(cluster, 1)
        [name] = kept(cluster, 3)
        assert cluster.brokers[3].node.disk.read(f"{DATA}/t-0/{name}").startswith(damaged)


@pytest.mark.parametrize("broker_id", [1, 3])
def test_a_segment_that_is_cut_while_its_broker_runs(broker_id: int) -> None:
    """A leader or follower whose file is shorter than it was gets the rest from another replica."""
    with Cluster(3, **SCRUB, log_index_interval_bytes=1) as cluster:
        written(cluster, 1, 2, 3)
        disk = cluster.brokers[broker_id].node.disk
        disk.cut(LOG_FILE, len(disk.read(LOG_FILE)) // 3 + 5)
        cluster.wait(lambda: repaired(cluster, broker_id))
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert content(cluster, 1) == content(cluster, 2) == content(cluster, 3)


def all_bytes(cluster: Cluster, broker_id: int) -> bytes:
    """What all segments of a replica contain, one behind the other."""
    segments = partition(cluster, broker_id).log.segments
    return b"".join(each.file.pread(each.size_bytes, 0) for each in segments)


def three_segments(cluster: Cluster, *replicas: int) -> None:
    """Seven batches on these replicas, the first of which leads; segments begin at 0, 3 and 5."""
    written(cluster, *replicas)
    for end in (5, 7):
        for each in replicas:
            roll(cluster, each)
        for _ in range(2):
            produce(cluster, replicas[0], "more")
        opened = [partition(cluster, each) for each in replicas]
        cluster.wait(lambda: all(each.high_watermark == end for each in opened))  # noqa: B023


def stop(cluster: Cluster, broker_id: int) -> None:
    """Stop a broker cleanly; the controller has noticed."""
    stopped = cluster.brokers[broker_id]
    cluster.run(stopped.node, stopped.stop())
    stopped.crash()
    cluster.wait(lambda: broker_id not in isr(cluster))


def cut_second_segment(cluster: Cluster, broker_id: int, how: str = "cut") -> None:
    disk, path = cluster.brokers[broker_id].node.disk, LOG_FILE.replace("0.log", "3.log")
    if how == "removed":
        disk.unlink(path)
    else:
        disk.cut(path, len(disk.read(path)) // 2 + (5 if how == "torn" else 0))


@pytest.mark.parametrize("rate", [0, 1], ids=["unscrubbed", "scrubbed"])
@pytest.mark.parametrize("how", ["torn", "cut", "removed"])
def test_a_segment_that_is_cut_while_its_broker_is_stopped(how: str, rate: int) -> None:
    """One before the last ends in a batch or behind one, or is gone. The start sees that the next
    one does not follow, and the rest is copied before the replica joins the ISR, though its log
    ends where the leader's does.
    """
    with Cluster(3, log_scrub_bytes_per_second=rate) as cluster:
        three_segments(cluster, 1, 2, 3)
        stop(cluster, 3)
        cut_second_segment(cluster, 3, how)
        third = cluster.brokers[3]
        third.start()
        cluster.wait(lambda: third.started and (repaired(cluster, 3) or 3 in isr(cluster)))
        assert isr(cluster) == {1, 2}
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert all_bytes(cluster, 3) == all_bytes(cluster, 1)
        assert all_read(cluster, 3) == list(range(7))


def test_an_eligible_replica_with_a_cut_segment() -> None:
    """It was stopped cleanly, and is back first: it does not lead, and is repaired before it is in
    the ISR.
    """
    with Cluster(3) as cluster:
        three_segments(cluster, 2, 3)
        stop(cluster, 2)
        stop(cluster, 3)
        assert set(cluster.partition("t").elr) == {2, 3}
        cut_second_segment(cluster, 3)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        assert cluster.partition("t").elr == (2,)
        assert cluster.partition("t").leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: repaired(cluster, 3) or 3 in isr(cluster))
        assert isr(cluster) == {2}
        cluster.wait(lambda: isr(cluster) == {2, 3})
        assert all_bytes(cluster, 3) == all_bytes(cluster, 2)


def test_a_full_disk_puts_a_repair_off(caplog: pytest.LogCaptureFixture) -> None:
    """What is damaged cannot be kept: the replica stays out of the ISR, tries again, and all else
    of its broker goes on.
    """
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage(cluster, 3)
        disk = cluster.brokers[3].node.disk
        disk.fail("write", ".corrupt", errno.ENOSPC, times=2)
        with caplog.at_level(logging.ERROR):
            cluster.wait(lambda: "cannot be repaired now" in caplog.text)
        assert isr(cluster) == {1, 2}
        assert partition(cluster, 3).offline is None
        assert not cluster.brokers[3].broker.replication.gave_up
        assert kept(cluster, 3) == []
        cluster.wait(lambda: repaired(cluster, 3))
        assert content(cluster, 3) == content(cluster, 1)
        assert kept(cluster, 3) == [f"{1:020d}.log.corrupt"]
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})


def test_a_leader_checks_what_a_follower_refuses() -> None:
    """A follower that has to copy a damaged batch finds it before the leader's scrubber does."""
    with Cluster(3, log_scrub_interval_ms=10**9) as cluster:
        written(cluster, 1, 2, 3)
        cluster.brokers[3].crash()
        cluster.wait(lambda: isr(cluster) == {1, 2})
        damage(cluster, 1)
        cluster.brokers[3].node.disk = SimulatedDisk()
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.partition("t").leader == 2)
        assert cluster.brokers[1].broker.repairs.scrubber.passes == 0
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert content(cluster, 1) == content(cluster, 2) == content(cluster, 3)


def test_damage_that_is_deleted_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """By retention or DeleteRecords: nobody is asked to restore it, and the replica is back."""
    with Cluster(2, min_insync_replicas=1, **SCRUB) as cluster:
        written(cluster, 1, 2)
        with caplog.at_level(logging.ERROR):
            damage(cluster, 1)
            damage(cluster, 2)
            cluster.wait(lambda: len(isr(cluster)) == 1)
            cluster.simulation.run_for(1)  # it has asked for the first time, and waits
            for each in (1, 2):
                partition(cluster, each).log.delete_records_before(2)
            cluster.wait(lambda: isr(cluster) == {1, 2})
            cluster.simulation.run_for(20)
        assert "is to be repaired" in caplog.text
        assert "no other replica has" not in caplog.text


def test_both_copies_are_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """What no replica has is reported with what to try, and the replica joins the ISR again."""
    with Cluster(2, min_insync_replicas=1, **SCRUB) as cluster:
        written(cluster, 1, 2)
        with caplog.at_level(logging.ERROR):
            damage(cluster, 1)
            damage(cluster, 2)
            cluster.wait(lambda: "no other replica has the same batches" in caplog.text)
        cluster.wait(lambda: isr(cluster) == {1, 2})
        assert "kafka-delete-records.sh, offset 2" in caplog.text
