"""The state of producers is the same on all replicas at one offset: it follows from the log."""

from __future__ import annotations

import random

import pytest

from ottla.log.log import Log
from ottla.log.producers import Producers
from ottla.log.recovery import create_log, load_log
from ottla.metrics import Metrics
from ottla.replica.partition import Partition
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.control import ABORT, COMMIT, write_marker
from ottla.wire.records import Record, write_batch

LEADER, FOLLOWER = 1, 2
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=100)
NOW_MS = 1_800_000_000_000
STEPS = 150


class Replica:
    """One replica on a disk of its own."""

    def __init__(self, node_id: int) -> None:
        self.disk = SimulatedDisk()
        self.disk.mkdir("/d")
        self.log: Log = create_log(self.disk, "/d/t-0", "t", 0, TOPIC_ID, SMALL, now_ms=NOW_MS)
        self.partition = Partition(self.log, Metrics().topic("t"))
        self.partition.assign(node_id, LEADER, 3, (LEADER, FOLLOWER), (LEADER, FOLLOWER))

    def reloaded(self) -> Producers:
        """The state that a start after a crash finds."""
        log = load_log(
            self.disk,
            "/d/t-0",
            "t",
            0,
            TOPIC_ID,
            SMALL,
            clean=False,
            recovery_point=0,
            log_start_offset=0,
            now_ms=NOW_MS,
        )
        return log.producers


def write(leader: Partition, rng: random.Random, sequences: dict[int, int]) -> None:
    """One step of a producer: plain, idempotent, transactional, or the end of a transaction."""
    now_ms = NOW_MS + leader.end_offset
    producer_id = rng.randrange(6)
    records = [Record(b"v", timestamp=now_ms) for _ in range(rng.randint(1, 3))]
    transactional = producer_id >= 3
    if producer_id == 0:
        batch = write_batch(records)
    elif transactional and rng.random() < 0.4:
        kind = rng.choice([ABORT, COMMIT])
        batch = write_marker(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=7, timestamp=now_ms
        )
        leader.append_as_coordinator(memoryview(bytearray(batch)), now_ms=now_ms)
        return
    else:
        batch = write_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences.get(producer_id, 0),
            transactional=transactional,
        )
        sequences[producer_id] = sequences.get(producer_id, 0) + len(records)
    result = leader.append(memoryview(bytearray(batch)), acks=1, now_ms=now_ms)
    assert not result.error_code


def replicate(leader: Log, follower: Partition, high_watermark: int) -> None:
    """What a fetch brings: all that the follower lacks, up to the end of a segment."""
    while follower.end_offset < leader.end_offset:
        found = leader.read(follower.end_offset, bytes_max=1 << 20, end_offset=leader.end_offset)
        assert found is not None
        data = found.file.pread(found.size, found.position)
        size, error = follower.append_as_follower(
            memoryview(data), leader_epoch=3, leader_high_watermark=high_watermark, now_ms=NOW_MS
        )
        assert (size, error) == (len(data), 0)


def state(producers: Producers) -> tuple[object, ...]:
    """All of it that decides about later batches and readers."""
    return (
        {
            producer_id: (
                each.epoch,
                each.coordinator_epoch,
                each.last_timestamp,
                each.transaction_first_offset,
                each.batches,
            )
            for producer_id, each in producers.by_id.items()
        },
        producers.ongoing,
        producers.completed,
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_follower_knows_what_its_leader_knows(seed: int) -> None:
    """Batches, epochs and open transactions, at every offset; control batches count as they do at
    the leader; and after a crash the log gives the same."""
    rng = random.Random(seed)
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    sequences: dict[int, int] = {}
    for _ in range(STEPS):
        write(leader.partition, rng, sequences)
        if rng.random() < 0.3:
            high_watermark = leader.partition.high_watermark
            replicate(leader.log, follower.partition, high_watermark)
            assert state(follower.log.producers) == state(leader.log.producers)
            assert follower.partition.last_stable_offset == leader.partition.last_stable_offset
    replicate(leader.log, follower.partition, leader.partition.high_watermark)
    assert len(follower.log.segments) > 3
    assert state(follower.log.producers) == state(leader.log.producers)
    for replica in (leader, follower):
        found = replica.reloaded()
        known = replica.log.producers.by_id
        assert {each: found.by_id[each].last_sequence for each in found.by_id} == {
            each: known[each].last_sequence for each in known
        }
        assert found.ongoing == replica.log.producers.ongoing


@pytest.mark.parametrize("seed", range(4))
def test_a_truncation_takes_the_state_back(seed: int) -> None:
    """After a cut at any batch the follower knows what it knew when its log ended there."""
    rng = random.Random(f"{seed} cut")
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    sequences: dict[int, int] = {}
    known: dict[int, tuple[object, object]] = {}
    for _ in range(STEPS):
        write(leader.partition, rng, sequences)
        replicate(leader.log, follower.partition, 0)
        producers = follower.log.producers
        last = {each: producers.by_id[each].last_sequence for each in producers.by_id}
        known[follower.log.end_offset] = (last, dict(producers.ongoing))
    for offset in sorted(rng.sample(sorted(known), 10), reverse=True):
        follower.partition.truncate_to(offset, now_ms=NOW_MS)
        producers = follower.log.producers
        last = {each: producers.by_id[each].last_sequence for each in producers.by_id}
        assert (last, producers.ongoing) == known[offset]
