"""A repair copies ranges of any size in slices, and one that a crash ends is gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker import repairs
from ottla.cli.cluster_disk import Repair, repair_on_disk
from ottla.log.repair import REPAIR_METADATA, Refill
from ottla.wire.batch_header import HEADER_BYTES, MAGIC_POSITION, BatchHeader
from tests.broker.cluster_clients import SETTINGS
from tests.broker.cluster_harness import Cluster, produce
from tests.broker.harness import DATA
from tests.broker.test_damaged_replica import Story
from tests.broker.test_repair import (
    LOG_FILE,
    SCRUB,
    all_bytes,
    content,
    cut_second_segment,
    damage,
    isr,
    partition,
    repaired,
    roll,
    stop,
    three_segments,
    written,
)
from tests.broker.transactional import TOPIC


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the slices that are written, of one batch each."""
    sizes: list[int] = []
    write = Refill.write

    def count(self: Refill, data: bytes, *rest: object) -> bool:
        sizes.append(len(data))
        return write(self, data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(repairs, "SLICE_BYTES", 1)
    monkeypatch.setattr(Refill, "write", count)
    return sizes


def damage_all(
    cluster: Cluster, broker_id: int, path: str = LOG_FILE, position: int = MAGIC_POSITION
) -> None:
    """Flip a bit of every batch. Without their magic there is no sound one up to the end."""
    disk = cluster.brokers[broker_id].node.disk
    at, data = 0, disk.read(path)
    while at < len(data):
        disk.flip_bit(path, (at + position) * 8)
        at += BatchHeader(data, at).size


def test_a_range_is_copied_in_slices(slices: list[int]) -> None:
    """No more than a slice is in memory, whatever is damaged."""
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage_all(cluster, 3)
        cluster.wait(lambda: repaired(cluster, 3))
        assert slices == [partition(cluster, 1).size_bytes // 3] * 3
        assert content(cluster, 3) == content(cluster, 1)
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert REPAIR_METADATA not in cluster.brokers[3].node.disk.listdir(f"{DATA}/t-0")


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_crash_in_the_middle_of_a_repair(slices: list[int], count: int, power: bool) -> None:
    """The next start goes on with it before the replica joins the ISR, long before the scrubber
    comes there.
    """
    settings = {"log_flush_offset_checkpoint_interval_ms": 100, "log_scrub_interval_ms": 3000}
    with Cluster(3, **settings) as cluster:
        three_segments(cluster, 1, 2, 3)
        cluster.simulation.run_for(1)  # what is synced and committed is checkpointed
        damage_all(cluster, 3, LOG_FILE.replace("0.log", "3.log"), HEADER_BYTES + 4)
        cluster.wait(lambda: len(slices) == count)
        third = cluster.brokers[3]
        third.crash(power=power)
        third.settings = {"log.scrub.interval.ms": 10**9}
        third.start()
        cluster.wait(lambda: third.started and 3 in isr(cluster))
        assert all_bytes(cluster, 3) == all_bytes(cluster, 1)
        assert third.broker.repairs.scrubber.passes == 0
        assert REPAIR_METADATA not in third.node.disk.listdir(f"{DATA}/t-0")


def test_a_source_that_fails_in_the_middle_of_a_repair(slices: list[int]) -> None:
    """What it did not give comes from another replica."""
    with Cluster(3, min_insync_replicas=1, **SCRUB) as cluster:
        cluster.create("t", 1, 0, through=1, replicas=(2, 1, 3))
        for value in ("a", "b", "c"):
            produce(cluster, 2, value)
        cluster.wait(lambda: all(partition(cluster, each).high_watermark == 3 for each in (1, 3)))
        for each in (1, 2, 3):
            partition(cluster, each).log.flush()
        damage_all(cluster, 3)
        cluster.wait(lambda: len(slices) == 1)
        cluster.brokers[2].crash()
        cluster.wait(lambda: repaired(cluster, 3))
        assert len(slices) == 3
        assert content(cluster, 3) == content(cluster, 1)


@pytest.mark.parametrize("crashes", [False, True], ids=["", "crash"])
def test_a_large_segment_that_is_missing(slices: list[int], crashes: bool) -> None:
    """Its records come back in segments that are no larger than others, with their indexes."""
    with Cluster(3) as cluster:
        written(cluster, 1, 2, 3)
        for end in (6, 7):
            for each in (1, 2, 3):
                roll(cluster, each)
            while partition(cluster, 1).end_offset < end:
                produce(cluster, 1, "x" * 500_000)
            opened = [partition(cluster, each) for each in (1, 2, 3)]
            cluster.wait(lambda: all(each.high_watermark == end for each in opened))  # noqa: B023
        stop(cluster, 3)
        cut_second_segment(cluster, 3, "removed")
        third = cluster.brokers[3]
        third.settings = {"log.segment.bytes": 1024 * 1024}
        third.start()
        if crashes:
            cluster.wait(lambda: len(slices) == 2)
            third.crash(power=True)
            third.start()
        cluster.wait(lambda: third.started and (repaired(cluster, 3) or 3 in isr(cluster)))
        assert isr(cluster) == {1, 2}
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert all_bytes(cluster, 3) == all_bytes(cluster, 1)
        segments = partition(cluster, 3).log.segments
        assert max(each.size_bytes for each in segments) <= 1024 * 1024
        assert [each.base_offset for each in segments] == [0, 5, 6]
        assert [each.next_offset for each in segments] == [5, 6, 7]
        assert segments[0].index.entries()


def test_aborted_transactions_of_a_missing_segment() -> None:
    """They are not shown to readers of committed records when the repaired replica leads."""
    settings = {"broker_session_timeout_ms": 3000, "log_index_interval_bytes": 1}
    with Cluster(3, **SETTINGS, **settings) as cluster:
        story = Story(cluster, 2)
        story.begin()
        story.roll()
        story.write(b"third")
        third = cluster.brokers[3]
        cluster.run(third.node, third.stop())
        third.crash()
        cluster.wait(lambda: not story.in_sync())
        disk = third.node.disk
        for index in story.partitions:
            folder = f"{DATA}/{TOPIC}-{index}"
            _, second, _ = sorted(each for each in disk.listdir(folder) if each.endswith(".log"))
            base = second.removesuffix(".log")
            for name in disk.listdir(folder):
                if name.startswith(base):
                    disk.unlink(f"{folder}/{name}")
        third.start()
        cluster.wait(lambda: third.started and story.in_sync())
        cluster.brokers[2].crash()
        cluster.wait(
            lambda: all(story.client.leader(TOPIC, index) == 3 for index in story.partitions)
        )
        story.check()


def test_one_damaged_batch_is_one_slice(slices: list[int]) -> None:
    """Nothing else is copied."""
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage(cluster, 3)
        cluster.wait(lambda: repaired(cluster, 3))
        assert len(slices) == 1


def note_of(cluster: Cluster, broker_id: int, tmp_path: Path) -> Repair | None:
    """What `ottla cluster why` reads in the folder of a replica."""
    disk, name = cluster.brokers[broker_id].node.disk, REPAIR_METADATA
    if name not in disk.listdir(f"{DATA}/t-0"):
        return None
    (tmp_path / name).write_bytes(disk.read(f"{DATA}/t-0/{name}"))
    return repair_on_disk(tmp_path)


def test_a_repair_is_noted_where_operators_look(
    slices: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is still damaged, until nothing is."""
    monkeypatch.setattr(repairs, "SLICES_NOTED", 1)
    with Cluster(3, **SCRUB) as cluster:
        written(cluster, 1, 2, 3)
        damage_all(cluster, 3)
        seen: dict[str, None] = {}

        def is_repaired() -> bool:
            seen.setdefault(str(note_of(cluster, 3, tmp_path)))
            return repaired(cluster, 3)

        cluster.wait(is_repaired)
        assert [*seen] == ["None", "offsets 0 to 2", "offsets 1 to 2", "offsets 2 to 2"]
        cluster.wait(lambda: isr(cluster) == {1, 2, 3})
        assert note_of(cluster, 3, tmp_path) is None


def test_a_repair_that_waits_says_why(tmp_path: Path) -> None:
    """The last member of an ISR cannot leave it."""
    with Cluster(2, min_insync_replicas=1, **SCRUB) as cluster:
        written(cluster, 1, 2)
        cluster.brokers[2].crash()
        cluster.wait(lambda: isr(cluster) == {1})
        damage(cluster, 1)
        cluster.wait(
            lambda: (note := note_of(cluster, 1, tmp_path)) is not None and note.reason != ""
        )
        assert str(note_of(cluster, 1, tmp_path)) == (
            "offsets 1 to 1 (alone in its ISR: it is repaired when another replica is in sync)"
        )
        cluster.brokers[2].start()
        cluster.wait(lambda: repaired(cluster, 1) and note_of(cluster, 1, tmp_path) is None)
