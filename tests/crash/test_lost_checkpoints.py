"""A killed broker whose checkpoints an operator deleted, emptied or spoilt: compacted topics stay.

The whole broker, in memory: recovery runs before the topics' configs are known, so nothing but the
disk can say that gaps between offsets are no damage.
"""

from __future__ import annotations

import pytest

from ottla.log import checkpoints
from ottla.wire.records import Record, write_batch
from tests.broker.harness import BrokerHarness, produce_request
from tests.broker.test_broker import again
from tests.log.managed import contents

CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.CLEANER_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
)
COUNT = 73


def compacted() -> BrokerHarness:
    """A broker that has compacted a topic of many keys, and then been killed."""
    harness = BrokerHarness(log_segment_bytes=1_048_576)
    harness.create("t", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    log = harness.partition("t").log
    for number in range(COUNT):
        now_ms = harness.clock.now_ms()
        pairs = [(b"hot", b"%d" % number), (b"key %d" % number, b"%d" % number)]
        records = [Record(value, key=key, timestamp=now_ms) for key, value in pairs]
        response = harness.ask(produce_request("t", 0, write_batch(records)), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        if number % 20 == 19:
            log.roll(now_ms=now_ms)
    assert harness.run(harness.broker.logs.cleaner.run()) == 1
    harness.run(harness.broker.logs.checkpointer.write(harness.broker.logs.directories))
    return harness


def everything(harness: BrokerHarness) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record."""
    return contents(harness.partition("t").log)


@pytest.mark.parametrize("what", ["deleted", "empty", "torn"])
def test_checkpoints_that_are_gone_cost_no_record(what: str) -> None:
    """Every record that compaction left is read after the restart, and the log goes on."""
    harness = compacted()
    before = everything(harness)
    assert COUNT <= len(before) < 2 * COUNT - 20
    harness.settle()
    harness.kill()
    for name in CHECKPOINTS:
        path = f"/data/{name}"
        data = harness.disk.read(path)
        harness.disk.unlink(path)
        if what != "deleted":
            harness.disk.open(path, create=True).append(data[: -3 if what == "torn" else 0])
    with again(harness) as harness:
        assert everything(harness) == before
        assert harness.broker.logs.set_aside_bytes == 0
        assert harness.partition("t").end_offset == 2 * COUNT


def test_no_single_flipped_bit_of_a_checkpoint_costs_a_record() -> None:
    """Whatever digit of a recovery point is spoilt, and however, all records are there."""
    harness = compacted()
    before = everything(harness)
    harness.settle()
    harness.kill()
    path = f"/data/{checkpoints.RECOVERY_POINTS}"
    sound = harness.disk.read(path)
    assert b"t 0 146\n" in sound
    for bit in range(len(sound) * 8):
        harness.disk.write_atomically(path, sound, sync=True)
        harness.disk.flip_bit(path, bit)
        harness = again(harness)
        assert everything(harness) == before, bit
        assert harness.broker.logs.set_aside_bytes == 0, bit
        harness.settle()
        harness.kill()


def test_a_directory_of_zookeepers_time_is_adopted_whole() -> None:
    """No topic id beside the partition, a `meta.properties` of version 0, no tree, no checkpoint:
    the topic is there again with every record, compacted or not.
    """
    harness = compacted()
    before = everything(harness)
    harness.settle()
    harness.kill()
    disk = harness.disk
    for name in disk.listdir("/data"):
        if name.endswith("checkpoint") or name == "coordination.db":
            disk.unlink(f"/data/{name}")
    for name in ("partition.metadata", checkpoints.COMPACTION_METADATA):
        disk.unlink(f"/data/t-0/{name}")
    meta = b"version=0\nbroker.id=1\ncluster.id=kafkas\n"
    disk.write_atomically("/data/meta.properties", meta, sync=True)
    with again(harness) as harness:
        assert harness.broker.logs.cluster_id == "kafkas"
        assert everything(harness) == before
