"""A partition on its own: what is shown, who may write, and group commit round by round."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.log.log import Log
from ottla.log.recovery import create_log
from ottla.metrics import Metrics
from ottla.replica.group_commit import GroupCommit
from ottla.replica.partition import FetchIsolation, Partition
from ottla.seams.clock import ManualClock
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.control import COMMIT, write_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch

NODE = 1


class SlowBackground:
    """Background work that ends when the test calls `finish_one`."""

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
        self.announced: list[Partition] = []
        self.appended: list[tuple[Partition, int | None]] = []
        self.group_commit = None
        if flush_before_ack:
            self.group_commit = GroupCommit(
                self.clock,
                self.background,  # type: ignore[arg-type]
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
        return self.lead(log)

    def lead(self, log: Log, high_watermark: int = 0) -> Partition:
        """A partition of this log, assigned to this node alone; what was announced is cleared."""
        partition = Partition(
            log,
            Metrics().topic("t"),
            self.group_commit,
            high_watermark=high_watermark,
            on_append=lambda partition, size_bytes: self.appended.append((partition, size_bytes)),
            on_change=self.announced.append,
        )
        partition.assign(NODE, NODE, 0, (NODE,), (NODE,))
        self.announced.clear()
        return partition

    def append(self, partition: Partition, *, acks: int = -1) -> Any:
        return partition.append(self.batch(), acks=acks, now_ms=self.clock.now_ms())

    def batch(self, **options: Any) -> memoryview:
        record = Record(b"v", timestamp=self.clock.now_ms())
        return memoryview(bytearray(write_batch([record], **options)))


def test_what_is_appended_is_shown_at_once() -> None:
    """With one replica, and without `log.flush.before.ack`."""
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


class TestHighWatermark:
    """One owner: whatever moves it, the partition announces it."""

    def test_it_starts_at_the_checkpoint_and_a_lone_leader_moves_it_to_the_end(self) -> None:
        """What a follower found beyond its checkpoint may not be committed."""
        fixture = Fixture()
        log = fixture.partition().log
        for _ in range(3):
            log.append(fixture.batch(), leader_epoch=0, now_ms=fixture.clock.now_ms())
        found = Partition(log, Metrics().topic("t"), high_watermark=2)
        assert found.high_watermark == 2
        found.assign(NODE, 2, 5, (NODE, 2), (NODE, 2))
        assert found.high_watermark == 2
        found.assign(NODE, NODE, 6, (NODE, 2), (NODE,))
        assert found.high_watermark == 3

    @pytest.mark.parametrize(("checkpointed", "expected"), [(0, 1), (2, 2), (99, 3)])
    def test_a_checkpoint_is_kept_within_the_log(self, checkpointed: int, expected: int) -> None:
        """A file from another time must show neither deleted records nor any beyond the end."""
        fixture = Fixture()
        partition = fixture.partition()
        for _ in range(3):
            fixture.append(partition)
        partition.delete_records_before(1)
        found = Partition(partition.log, Metrics().topic("t"), high_watermark=checkpointed)
        assert found.high_watermark == expected

    def test_an_append_is_announced_with_its_size(self) -> None:
        """Once, by the partition itself; a duplicate moves nothing and announces nothing."""
        fixture = Fixture()
        partition = fixture.partition()
        batch = fixture.batch()
        partition.append(batch, acks=1, now_ms=fixture.clock.now_ms())
        assert fixture.appended == [(partition, len(batch))]
        assert fixture.announced == []

    def test_a_marker_is_announced_without_a_size(self) -> None:
        """It may make a whole transaction visible: readers must look, whatever they wait for."""
        fixture = Fixture()
        partition = fixture.partition()
        marker = write_marker(
            COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0
        )
        partition.append_as_coordinator(memoryview(bytearray(marker)), now_ms=0)
        assert fixture.appended == [(partition, None)]

    def test_it_is_the_least_end_offset_of_the_in_sync_replicas(self) -> None:
        """And moves with the follower's fetch, not with the append."""
        fixture = Fixture()
        partition = fixture.partition()
        partition.assign(NODE, NODE, 1, (NODE, 2, 3), (NODE, 2))
        fixture.append(partition)
        fixture.append(partition)
        assert partition.high_watermark == 0
        fixture.announced.clear()
        partition.follower_fetched(2, 1)
        partition.follower_fetched(3, 2)
        assert (partition.high_watermark, fixture.announced) == (1, [partition])
        partition.assign(NODE, NODE, 1, (NODE, 2, 3), (NODE,))
        assert partition.high_watermark == 2

    def test_it_never_passes_what_is_synced_where_that_is_asked_for(self) -> None:
        """The synced offset is its own: a follower may be ahead of this disk, and behind it."""
        fixture = Fixture(flush_before_ack=True)
        partition = fixture.partition()
        partition.assign(NODE, NODE, 1, (NODE, 2), (NODE, 2))
        fixture.append(partition)
        partition.follower_fetched(2, 1)
        assert (partition.high_watermark, partition.synced_offset) == (0, 0)
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert (partition.high_watermark, partition.synced_offset) == (1, 1)
        fixture.append(partition)
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert (partition.high_watermark, partition.synced_offset) == (1, 2)

    def test_other_changes_are_announced_too(self) -> None:
        """The log start, a disk that failed, another leader, the end of the topic."""
        fixture = Fixture()
        partition = fixture.partition()
        fixture.append(partition)
        fixture.appended.clear()
        partition.delete_records_before(1)
        assert fixture.appended == [(partition, None)]
        partition.go_offline("the disk is gone")
        assert fixture.appended == [(partition, None)] * 2
        partition.assign(NODE, 2, 1, (NODE, 2), (2,))
        assert fixture.announced == [partition]
        partition.remove()
        assert fixture.appended == [(partition, None)] * 3
        assert not partition.is_leader


class TestRead:
    """What a reader may see."""

    def test_each_isolation_has_its_end(self) -> None:
        """High watermark, log end, last stable offset."""
        fixture = Fixture()
        partition = fixture.partition()
        fixture.append(partition)
        partition.append(
            fixture.batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
            acks=1,
            now_ms=fixture.clock.now_ms(),
        )
        partition.assign(NODE, NODE, 1, (NODE, 2), (NODE, 2))
        fixture.append(partition)
        ends = {each: partition.visible_end(each) for each in FetchIsolation}
        assert list(ends.values()) == [3, 2, 1]
        for isolation, end in ends.items():
            assert not partition.read(end - 1, bytes_max=1000, isolation=isolation).at_end
            info = partition.read(end, bytes_max=1000, isolation=isolation)
            assert info.at_end
            assert info.records is None
            assert (info.high_watermark, info.last_stable_offset) == (2, 1)

    def test_errors_are_returned(self) -> None:
        """Out of range, and a disk that does not answer, which takes the partition offline."""
        fixture = Fixture()
        partition = fixture.partition()
        fixture.append(partition)
        assert partition.read(5, bytes_max=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        partition.go_offline("the disk is gone")
        assert partition.read(0, bytes_max=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_reader_held_at_the_last_stable_offset_does_not_lag(self) -> None:
        """An open transaction older than the last segment must not make its reader ask in vain."""
        fixture = Fixture()
        partition = fixture.partition()
        partition.append(
            fixture.batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
            acks=1,
            now_ms=fixture.clock.now_ms(),
        )
        partition.log.roll(now_ms=fixture.clock.now_ms())
        fixture.append(partition)
        assert partition.lags(0, FetchIsolation.HIGH_WATERMARK)
        assert not partition.lags(0, FetchIsolation.TXN_COMMITTED)

    def test_the_last_stable_offset_is_not_below_the_log_start(self) -> None:
        """DeleteRecords may pass the beginning of an open transaction."""
        fixture = Fixture()
        partition = fixture.partition()
        for sequence in range(3):
            partition.append(
                fixture.batch(
                    producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
                ),
                acks=1,
                now_ms=fixture.clock.now_ms(),
            )
        assert partition.last_stable_offset == 0
        partition.delete_records_before(2)
        assert partition.last_stable_offset == 2


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
        assert fixture.announced == [partition, partition]

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

    def test_a_sync_without_a_descriptor_is_tried_again(self) -> None:
        """The partition stays online, and its records are shown once they are synced."""
        fixture = Fixture(flush_before_ack=True)
        starved, good = fixture.partition(0), fixture.partition(1)
        fixture.disk.fail("sync", "t-0/", errno.EMFILE, times=2)
        fixture.append(starved)
        fixture.append(good)
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert (starved.high_watermark, good.high_watermark) == (0, 1)
        assert starved.offline is None
        fixture.clock.advance(100)
        fixture.background.finish_one()
        assert starved.high_watermark == 0
        fixture.clock.advance(100)
        fixture.background.finish_one()
        assert starved.high_watermark == 1
        assert fixture.background.waiting == []

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
        found = fixture.lead(first.log)
        assert found.high_watermark == 0
        fixture.clock.advance(0)
        fixture.background.finish_one()
        assert found.high_watermark == 1

    def test_a_partition_that_went_offline_otherwise_is_announced_too(self) -> None:
        """Who waits for its records must not wait for a round that never comes."""
        fixture = Fixture(flush_before_ack=True)
        partition = fixture.partition()
        fixture.append(partition)
        partition.go_offline("another flush failed")
        fixture.clock.advance(0)
        assert fixture.background.waiting == []
        assert fixture.announced == [partition]

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
