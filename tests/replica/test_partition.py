"""A partition on its own: what is shown, who may write, and group commit round by round."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.log.recovery import create_log
from ottla.metrics import Metrics
from ottla.replica.group_commit import GroupCommit
from ottla.replica.partition import Partition
from ottla.seams.clock import ManualClock
from ottla.seams.simulated_disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch

NODE = 1


class SlowBackground:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.waiting: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def thread(self, fn: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        self.waiting.append((future, fn, args))
        return future

    def finish_one(self) -> None:
        future, fn, args = self.waiting.pop(0)
        future.set_result(fn(*args))
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()


class Fixture:
    """Partitions on one disk, with or without group commit."""

    def __init__(self, *, flush_before_ack: bool = False) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.background = SlowBackground()
        self.synced: list[Partition] = []
        self.group_commit = None
        if flush_before_ack:
            self.group_commit = GroupCommit(
                self.clock,
                self.background,  # type: ignore[arg-type]
                self.synced.append,
            )

    def partition(self, index: int = 0, **config: object) -> Partition:
        log = create_log(
            self.disk,
            f"/data/t-{index}",
            "t",
            index,
            bytes(16),
            LogConfig()._replace(**config),
            now_ms=self.clock.now_ms(),
        )
        partition = Partition(log, Metrics().topic("t"), self.group_commit)
        partition.assign(NODE, NODE, 0, (NODE,), (NODE,))
        return partition

    def append(self, partition: Partition, *, acks: int = -1) -> Any:
        now_ms = self.clock.now_ms()
        batch = memoryview(bytearray(write_batch([Record(b"v", timestamp=now_ms)])))
        return partition.append(batch, acks=acks, now_ms=now_ms)


def test_what_is_appended_is_shown_at_once() -> None:
    """With one replica and no wish for fsync."""
    fixture = Fixture()
    partition = fixture.partition()
    for number in range(3):
        assert fixture.append(partition).base_offset == number
        assert partition.high_watermark == partition.last_stable_offset == number + 1


def test_only_the_leader_writes() -> None:
    """NOT_LEADER_OR_FOLLOWER when the cluster has chosen another."""
    fixture = Fixture()
    partition = fixture.partition()
    partition.assign(NODE, 2, 1, (1, 2), (1, 2))
    assert fixture.append(partition).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.error_for_client() == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_acks_all_needs_enough_replicas(acks: int) -> None:
    """NOT_ENOUGH_REPLICAS only for who asked for all of them."""
    fixture = Fixture()
    partition = fixture.partition(min_insync_replicas=2)
    partition.assign(NODE, NODE, 1, (1, 2, 3), (1,))
    expected = ErrorCode.NOT_ENOUGH_REPLICAS if acks == -1 else ErrorCode.NONE
    assert fixture.append(partition, acks=acks).error_code == expected


def test_a_new_leader_epoch_is_stamped_into_batches() -> None:
    """And the log remembers where it began."""
    fixture = Fixture()
    partition = fixture.partition()
    fixture.append(partition)
    partition.assign(NODE, NODE, 4, (NODE,), (NODE,))
    assert partition.epoch_start_offset == 1
    fixture.append(partition)
    assert partition.log.end_offset_for_epoch(0) == (0, 1)
    assert partition.log.end_offset_for_epoch(4) == (4, 2)


class TestGroupCommit:
    """One fsync for all that waits."""

    def test_rounds_overlap_with_appends(self) -> None:
        """What comes while a round runs is shown after the next, never before."""
        fixture = Fixture(flush_before_ack=True)
        partition = fixture.partition()
        fixture.append(partition)
        fixture.append(partition)
        assert fixture.background.waiting == []
        fixture.clock.advance(0)
        assert len(fixture.background.waiting) == 1
        fixture.append(partition)
        fixture.clock.advance(0)
        assert len(fixture.background.waiting) == 1
        assert partition.high_watermark == 0
        fixture.background.finish_one()
        assert partition.high_watermark == 2
        assert len(fixture.background.waiting) == 1
        fixture.background.finish_one()
        assert partition.high_watermark == 3
        assert fixture.background.waiting == []
        assert fixture.synced == [partition, partition]

    def test_one_failing_file_leaves_the_others_alone(self) -> None:
        """Its partition goes offline, the neighbour's records are shown."""
        fixture = Fixture(flush_before_ack=True)
        bad, good = fixture.partition(0), fixture.partition(1)
        fixture.disk.fail("sync", "t-0/", errno.EIO)
        fixture.append(bad)
        fixture.append(good)
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert (bad.high_watermark, good.high_watermark) == (0, 1)
        assert bad.offline is not None
        assert fixture.append(bad).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert good.offline is None

    def test_a_failed_fsync_is_not_asked_again(self) -> None:
        """The second would succeed, and would be a lie."""
        fixture = Fixture(flush_before_ack=True)
        partition = fixture.partition()
        fixture.disk.fail("sync", "t-0/", errno.EIO, times=1)
        fixture.append(partition)
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert fixture.group_commit is not None
        fixture.group_commit.add(partition)
        fixture.clock.advance(0)
        assert fixture.background.waiting == []
        assert partition.high_watermark == 0

    def test_what_a_start_finds_unsynced_is_synced_before_it_is_shown(self) -> None:
        """After a SIGKILL the records are in the page cache only."""
        fixture = Fixture(flush_before_ack=True)
        first = fixture.partition()
        fixture.append(first)
        found = Partition(first.log, Metrics().topic("t"), fixture.group_commit)
        assert found.high_watermark == 0
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert found.high_watermark == 1

    def test_a_partition_that_went_offline_otherwise_is_told_too(self) -> None:
        """Who waits for its records must not wait for a round that never comes."""
        fixture = Fixture(flush_before_ack=True)
        partition = fixture.partition()
        fixture.append(partition)
        partition.go_offline("another flush failed")
        fixture.clock.advance(0)
        assert fixture.background.waiting == []
        assert fixture.synced == [partition]

    def test_drain_waits_for_the_last_round(self) -> None:
        """A stop syncs what is under way first."""
        fixture = Fixture(flush_before_ack=True)
        partition = fixture.partition()
        fixture.append(partition)
        assert fixture.group_commit is not None
        draining = fixture.background.loop.create_task(fixture.group_commit.drain())
        fixture.clock.advance(0)
        fixture.background.finish_one()
        fixture.background.loop.run_until_complete(draining)
        assert partition.high_watermark == 1
