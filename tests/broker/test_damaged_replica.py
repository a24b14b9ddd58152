"""Trap 32: one replica of three with damaged files, started again and then elected.

"One flipped bit in one file lost half of the acknowledged writes" (Jepsen on NATS, 2025). Here none
is lost, none is doubled, and no aborted one is seen, whichever file it is. All partitions have the
same records, and each has another file damaged, so that one election tests them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from ottla.log.epochs import CHECKPOINT
from ottla.log.log import Log
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_clients import SETTINGS, ClusterClient, TransactionalClient, codes, place
from tests.broker.cluster_harness import Cluster, produce, read
from tests.broker.harness import DATA, produce_request
from tests.broker.transactional import TOPIC, visible

IDEMPOTENT: dict[str, Any] = {"producer_id": 900_000, "producer_epoch": 0}
# Which file of a partition's folder, by the end of its name; the last of those, or the first.
FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", CHECKPOINT, PARTITION_METADATA)
FIRST_OF = (".txnindex", ".timeindex", ".index")
Damage = Callable[[SimulatedDisk, str], None]


class Story:
    """The records of all partitions, which broker 2 leads; broker 3 is the next to lead."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self.cluster = cluster
        self.partitions = range(partitions)
        self.client: Any = ClusterClient(cluster)
        self.expected: list[bytes] = []  # of each partition
        self.start_offset = self.sequence = 0
        self.stamps: dict[int, int] = {}  # timestamp by offset
        self.last = b""
        self.last_offset = -1
        self.transactional = TransactionalClient(self.client, "id", False)

    def begin(self) -> None:
        place(self.cluster, groups=(1, 2, 3), transactions=(1, 2, 3), data=(2, 3, 1))
        if len(self.partitions) > 2:
            self.add_partitions()
        self.transactional.begin()
        self.write(b"first")
        self.roll()
        self.write(b"second")

    def add_partitions(self) -> None:
        count = len(self.partitions)
        placed = [CreatePartitionsAssignment(broker_ids=[2, 3, 1]) for _ in self.partitions[2:]]
        more = CreatePartitionsTopic(name=TOPIC, count=count, assignments=placed)
        added = self.cluster.ask(1, CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
        assert set(codes(added)) == {0}
        self.cluster.wait(lambda: self.cluster.images_agree((1, 2, 3)))

    def write(self, part: bytes) -> None:
        self.plain(b"plain %s" % part)
        for commit in (False, True):
            value = b"%s %s" % (b"committed" if commit else b"aborted", part)
            for index in self.partitions:
                self.transactional.write(index, value)
            self.transactional.end(commit)
            self.client.advance(50)
            self.expected += [value] if commit else []
        self.plain(b"end of %s" % part)

    def plain(self, value: bytes) -> None:
        stamp = self.client.clock.now_ms()
        batch = self.client.batch(value, base_sequence=self.sequence, **IDEMPOTENT)
        [offset] = {self.send(index, batch) for index in self.partitions}
        self.stamps[offset] = stamp
        self.sequence += 1
        self.last, self.last_offset = batch, offset
        self.expected.append(value)

    def delete(self, count: int) -> None:
        """Delete the first records of each partition, which are plain ones."""
        for index in self.partitions:
            which = [DeleteRecordsPartition(partition_index=index, offset=count)]
            topics = [DeleteRecordsTopic(name=TOPIC, partitions=which)]
            answer = self.cluster.ask(2, DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
            assert set(codes(answer)) == {0}
        self.start_offset = count
        self.expected = self.expected[count:]
        self.stamps = {each: at for each, at in self.stamps.items() if each >= count}

    def send(self, index: int, batch: bytes) -> int:
        answer = self.client.ask(produce_request(TOPIC, index, batch), 9)
        [result] = answer.responses[0].partition_responses
        assert not result.error_code, ErrorCode(result.error_code).name
        return int(result.base_offset)

    def roll(self) -> None:
        """Let each replica begin a new segment at the same offset."""
        for index in self.partitions:
            end = self.log(2, index).end_offset
            for each in (1, 2, 3):
                log = self.log(each, index)
                self.cluster.wait(lambda log=log, end=end: log.end_offset == end)  # type: ignore[misc]

                async def roll(log: Log = log) -> None:
                    log.roll(now_ms=self.client.clock.now_ms())

                self.cluster.run(self.cluster.brokers[each].node, roll())

    def log(self, broker_id: int, index: int) -> Log:
        partition = self.cluster.brokers[broker_id].broker.partitions.get(TOPIC, index)
        assert partition is not None
        return partition.log

    def in_sync(self) -> bool:
        topic = self.cluster.controller.image.topics[TOPIC]
        return all(len(each.isr) == 3 for each in topic.partitions)

    def check(self) -> None:
        """Read everything at the leader, repeat what was sent last, and go on."""
        for index in self.partitions:
            assert visible(self.client, index, self.start_offset) == self.expected, (
                f"partition {index}"
            )
            assert self.found(index) == self.stamps, f"partition {index}"
            assert self.send(index, self.last) == self.last_offset, f"doubled in {index}"
        self.write(b"third")
        for index in self.partitions:
            assert visible(self.client, index, self.start_offset) == self.expected, (
                f"partition {index}"
            )

    def found(self, index: int) -> dict[int, int]:
        """The records that ListOffsets finds by their times."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=0)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
        found = {}
        for stamp in self.stamps.values():
            asked[0].timestamp = stamp
            answer = self.cluster.ask(self.client.leader(TOPIC, index), request, 5)
            [result] = answer.topics[0].partitions
            found[result.offset] = result.timestamp
        return found


@pytest.fixture(params=[False, True], ids=["killed", "stopped"])
def stopped(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Stop broker 3, damage its files, start it again, and let it lead."""
    clean = bool(request.param)

    def run(
        partitions: int, damage: Callable[[SimulatedDisk, bool], None], deleted: int = 0
    ) -> None:
        settings = {
            "log_index_interval_bytes": 1,
            "broker_session_timeout_ms": 3000,
            "log_flush_offset_checkpoint_interval_ms": 1000,
        }
        with Cluster(3, **SETTINGS, **settings) as cluster:
            story = Story(cluster, partitions)
            story.begin()
            if deleted:
                story.delete(deleted)
            third = cluster.brokers[3]
            cluster.simulation.run_for(6)  # the high watermark is checkpointed
            if clean:
                cluster.run(third.node, third.stop())
            third.crash()
            cluster.wait(lambda: not story.in_sync())
            damage(third.node.disk, clean)
            third.start()
            cluster.wait(lambda: third.started)
            assert third.starting is not None
            third.starting.result()
            cluster.wait(story.in_sync)
            cluster.brokers[2].crash()
            cluster.wait(
                lambda: all(story.client.leader(TOPIC, index) == 3 for index in story.partitions)
            )
            story.check()

    return run


def path_of(disk: SimulatedDisk, index: int, ending: str) -> str:
    folder = f"{DATA}/{TOPIC}-{index}"
    found = sorted(each.name for each in disk.entries(folder) if each.name.endswith(ending))
    return f"{folder}/{found[0] if ending in FIRST_OF else found[-1]}"


def cut(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, len(disk.read(path)) // 2)


def flip(disk: SimulatedDisk, path: str) -> None:
    disk.flip_bit(path, 8 * (len(disk.read(path)) * 2 // 3) + 6)


def remove(disk: SimulatedDisk, path: str) -> None:
    disk.unlink(path)


@pytest.mark.parametrize("damage", [cut, flip, remove])
def test_a_replica_with_damaged_files_may_lead(
    stopped: Callable[..., None], damage: Damage
) -> None:
    """One file in the folder of each partition."""

    def damage_all(disk: SimulatedDisk, clean: bool) -> None:
        for index, ending in enumerate(FILES):
            if damage is flip and clean and ending == ".log":
                continue  # what was synced is not looked at after a clean stop
            damage(disk, path_of(disk, index, ending))

    stopped(len(FILES), damage_all)


@pytest.mark.parametrize("damage", [cut, flip, remove])
def test_a_replica_with_damaged_checkpoints_may_lead(
    stopped: Callable[..., None], damage: Damage
) -> None:
    """The files of the data directory."""

    def damage_all(disk: SimulatedDisk, clean: bool) -> None:
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            damage(disk, f"{DATA}/{name}")

    stopped(2, damage_all)


def test_a_flipped_bit_deletes_no_records(stopped: Callable[..., None]) -> None:
    """In the start of a log: as a leader it would have its followers delete theirs, too."""

    def flip_one(disk: SimulatedDisk, clean: bool) -> None:
        path = f"{DATA}/{LOG_START_OFFSETS}"
        sound = disk.read(path)
        assert b"t 0 1\n" in sound
        disk.write_atomically(path, sound.replace(b"t 0 1\n", b"t 0 5\n"), sync=True)

    stopped(2, flip_one, deleted=1)


def test_a_log_that_was_cut_while_all_were_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both replicas are eligible after their clean stops. The one that lacks a record, and is back
    first, does not lead: the other would cut its log to the same end.
    """

    async def none_to_skip(_: object) -> None:
        """As where the tree is not new: then no log is opened for the ids in it."""

    monkeypatch.setattr("ottla.broker.broker.skip_used_ids", none_to_skip)
    with Cluster(3, min_insync_replicas=2) as cluster:
        cluster.create("t", 1, 0, through=1, replicas=(2, 3))
        sizes = []
        for value in ("kept", "cut off"):
            produce(cluster, 2, value)
            opened = [cluster.brokers[each].broker.partitions.get("t", 0) for each in (2, 3)]
            cluster.wait(lambda: len({each.high_watermark for each in opened if each}) == 1)  # noqa: B023
            sizes.append(opened[0].size_bytes if opened[0] else 0)
        for each in (2, 3):
            stopped = cluster.brokers[each]
            cluster.run(stopped.node, stopped.stop())
            stopped.crash()
            cluster.wait(lambda: each not in cluster.partition("t").isr)  # noqa: B023
        assert set(cluster.partition("t").elr) == {2, 3}
        disk = cluster.brokers[3].node.disk
        disk.cut(f"{DATA}/t-0/00000000000000000000.log", sizes[0])
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        assert cluster.partition("t").elr == (2,)
        cluster.brokers[2].start()
        cluster.wait(lambda: set(cluster.partition("t").isr) == {2, 3})
        assert read(cluster, cluster.partition("t").leader) == ["kept", "cut off"]
