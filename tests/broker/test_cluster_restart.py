"""A whole cluster stops, in order or not, and comes back with its topics and records."""

from __future__ import annotations

import pytest

from ottla.broker.process_checkpoint import PROCESS_CHECKPOINT, Noted
from ottla.cluster.image import PartitionImage
from ottla.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_if_there,
)
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.cluster_harness import Cluster, produce, read
from tests.broker.harness import DATA

SENT = [f"record {n}" for n in range(5)]


def decided(cluster: Cluster) -> PartitionImage:
    """The partition as the controller has it."""
    found = cluster.controller.image.partition("t", 0)
    assert found is not None
    return found


def begin(cluster: Cluster, replicas: tuple[int, ...] = (2, 3, 1)) -> PartitionImage:
    """A topic with some records in it."""
    assert cluster.create("t", 1, 3, through=2, replicas=replicas).error_code == 0
    cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
    for value in SENT:
        produce(cluster, replicas[0], value)
    return decided(cluster)


def start_all(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.start()
    cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
    cluster.wait(lambda: all(each.active for each in cluster.controller.image.brokers.values()))


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2)])
def test_all_brokers_are_killed(order: tuple[int, ...]) -> None:
    """Their machines run on, so none has lost a record: one of them leads, all join it again."""
    with Cluster(3) as cluster:
        before = begin(cluster)
        for broker in cluster.brokers.values():
            broker.crash()
        for broker_id in order:
            cluster.brokers[broker_id].start()
        cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
        cluster.wait(lambda: len(decided(cluster).isr) == 3)
        after = decided(cluster)
        assert after.leader_epoch > before.leader_epoch
        assert not after.elr
        assert not after.recovering
        cluster.wait(lambda: cluster.image(after.leader).partition("t", 0) == after)
        assert read(cluster, after.leader) == SENT
        assert produce(cluster, after.leader, "after") == len(SENT)


@pytest.mark.parametrize("first", [1, 2, 3])
def test_whichever_returns_first_leads(first: int) -> None:
    """All were killed at once: none can have committed anything without the others."""
    with Cluster(3) as cluster:
        begin(cluster)
        for broker in cluster.brokers.values():
            broker.crash()
        cluster.controller_id = first
        cluster.brokers[first].start()
        cluster.wait(lambda: cluster.brokers[first].started)
        cluster.wait(lambda: decided(cluster).leader == first)
        assert sorted((*decided(cluster).isr, *decided(cluster).elr)) == [1, 2, 3]
        cluster.brokers[first % 3 + 1].start()  # below min.insync.replicas nothing is committed
        cluster.wait(lambda: len(decided(cluster).isr) == 2)
        cluster.wait(lambda: cluster.image(first).partition("t", 0) == decided(cluster))
        assert read(cluster, first) == SENT


def test_a_replica_that_lost_records_does_not_lead_before_one_that_did_not() -> None:
    """One loses power, and the leader is killed before the controller knows of that. Whoever
    returns first, the one that was killed leads."""
    with Cluster(3) as cluster:
        begin(cluster, (2, 3))
        cluster.brokers[3].crash(power=True)
        cluster.brokers[2].crash()
        # Nobody answers at the address of a machine without power: 3 is taken for alive, and leads.
        cluster.wait(lambda: decided(cluster).leader == 3)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert (decided(cluster).leader, decided(cluster).elr) == (-1, (2,))
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(decided(cluster).isr) == [2, 3])
        assert decided(cluster).leader == 2
        assert read(cluster, 2) == SENT


def test_a_partition_stays_offline_when_all_may_have_lost_records() -> None:
    """A power cut of all machines. A user may elect a leader nevertheless."""
    with Cluster(3) as cluster:
        begin(cluster)
        for broker in cluster.brokers.values():
            broker.crash(power=True)
        start_all(cluster)
        assert (decided(cluster).leader, decided(cluster).isr, decided(cluster).elr) == (-1, (), ())
        named = [TopicPartitions(topic="t", partitions=[0])]
        answer = cluster.ask(1, ElectLeadersRequest(election_type=1, topic_partitions=named), 2)
        assert answer.replica_election_results[0].partition_result[0].error_code == 0
        cluster.wait(lambda: len(decided(cluster).isr) == 3)


def test_all_lose_power_after_they_have_synced() -> None:
    """With log.flush.before.ack none of them has lost what it acknowledged."""
    with Cluster(3, log_flush_before_ack="true") as cluster:
        begin(cluster)
        for _ in range(2):
            for broker in cluster.brokers.values():
                broker.crash(power=True)
            start_all(cluster)
            cluster.wait(lambda: len(decided(cluster).isr) == 3)
        leader = decided(cluster).leader
        cluster.wait(lambda: cluster.image(leader).partition("t", 0) == decided(cluster))
        assert read(cluster, leader) == SENT


def test_what_was_not_synced_stays_in_doubt_for_later_processes() -> None:
    """One without log.flush.before.ack was killed; the next syncs before it acknowledges, and then
    the machine loses power."""
    with Cluster(3) as cluster:
        begin(cluster)
        cluster.settings["log.flush.before.ack"] = "true"
        for power in (False, True):
            for broker in cluster.brokers.values():
                broker.crash(power=power)
            start_all(cluster)
            if not power:
                cluster.wait(lambda: decided(cluster).leader >= 0)
        assert decided(cluster).leader == -1


@pytest.mark.parametrize("damage", ["remove", "cut"])
def test_a_log_that_is_gone_or_too_short_is_not_eligible(damage: str) -> None:
    """Whatever the machine did meanwhile: a folder was removed, a file was cut."""
    with Cluster(3) as cluster:
        begin(cluster, (2, 3))
        damaged = cluster.brokers[3].node.disk
        cluster.wait(
            lambda: b"t 0 5" in (read_if_there(damaged, f"{DATA}/{HIGH_WATERMARKS}") or b"")
        )
        for broker_id in (3, 2):
            cluster.brokers[broker_id].crash()
        cluster.wait(lambda: decided(cluster).leader == -1)
        if damage == "remove":
            damaged.rmtree(f"{DATA}/t-0")
        else:
            damaged.cut(f"{DATA}/t-0/00000000000000000000.log", 100)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert decided(cluster).leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(decided(cluster).isr) == [2, 3])
        assert decided(cluster).leader == 2
        assert read(cluster, 2) == SENT


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("removed", ["folder", "files"])
def test_a_log_that_was_removed_with_its_checkpoints_is_not_eligible(
    removed: str, stop: str
) -> None:
    """Nothing in the data directory says then how much it had; what is left says that the last
    stop lost nothing.
    """
    with Cluster(3) as cluster:
        begin(cluster, (2, 3))
        disk = cluster.brokers[3].node.disk
        for broker_id in (2, 3):
            if stop == "clean":
                cluster.run(cluster.brokers[broker_id].node, cluster.brokers[broker_id].stop())
            cluster.brokers[broker_id].crash()
        cluster.wait(lambda: decided(cluster).leader == -1)
        assert 3 in decided(cluster).elr
        remove(disk, removed)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert decided(cluster).leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(decided(cluster).isr) == [2, 3])
        assert decided(cluster).leader == 2
        assert read(cluster, 2) == SENT


def test_an_older_copy_over_a_clean_stop_is_not_eligible() -> None:
    """A backup that was made while the broker ran is unpacked over its directory: logs and
    checkpoints are older and agree with each other, and the mark of the clean stop stays.
    """
    with Cluster(3) as cluster:
        begin(cluster, (2, 3))
        three = cluster.brokers[3]
        disk = three.node.disk
        path = f"{DATA}/{HIGH_WATERMARKS}"
        cluster.wait(lambda: b"t 0 5" in (read_if_there(disk, path) or b""))
        paths = [
            f"{folder}/{each.name}"
            for folder in (DATA, f"{DATA}/t-0")
            for each in disk.entries(folder)
            if not each.is_directory
        ]
        copied = {each: disk.read(each) for each in paths}
        for number in range(5, 10):
            produce(cluster, 2, f"record {number}")
        for broker_id in (2, 3):
            cluster.run(cluster.brokers[broker_id].node, cluster.brokers[broker_id].stop())
            cluster.brokers[broker_id].crash()
        cluster.wait(lambda: decided(cluster).leader == -1)
        for each, data in copied.items():
            disk.write_atomically(each, data, sync=True)
        three.start()
        cluster.wait(lambda: three.started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert decided(cluster).leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(decided(cluster).isr) == [2, 3])
        assert decided(cluster).leader == 2
        assert len(read(cluster, 2)) == 10


def remove(disk: SimulatedDisk, what: str) -> None:
    """Remove a partition's folder, or all files in it, and the checkpoints of offsets."""
    folder = f"{DATA}/t-0"
    for each in list(disk.entries(folder)):
        disk.unlink(f"{folder}/{each.name}")
    if what == "folder":
        disk.rmtree(folder)
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS):
        disk.unlink(f"{DATA}/{name}", missing_ok=True)


def test_a_folder_that_was_not_made_yet_costs_nothing() -> None:
    """All brokers are killed while a topic is created: they are eligible for what they had."""
    with Cluster(3) as cluster:
        begin(cluster)
        assert cluster.create("u", 1, 3, through=2).error_code == 0
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        for broker in cluster.brokers.values():
            broker.crash()
            if broker.node.disk.exists(f"{DATA}/u-0"):
                broker.node.disk.rmtree(f"{DATA}/u-0")
        start_all(cluster)
        cluster.wait(lambda: decided(cluster).leader >= 0)


@pytest.mark.parametrize("stop", ["killed", "power"])
def test_a_new_cluster_ends_before_it_has_made_a_folder(stop: str) -> None:
    """Nothing on the disks says that its first topic was ever there, and no high watermark has been
    written since: all replicas are eligible, for they lack nothing.
    """
    with Cluster(3, log_flush_before_ack="true" if stop == "power" else "false") as cluster:
        assert cluster.create("t", 1, 3, through=2).error_code == 0
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        for broker in cluster.brokers.values():
            broker.crash(power=stop == "power")
            disk = broker.node.disk
            if disk.exists(f"{DATA}/t-0"):
                disk.rmtree(f"{DATA}/t-0")
            assert b"t 0" not in (read_if_there(disk, f"{DATA}/{HIGH_WATERMARKS}") or b"")
        start_all(cluster)
        cluster.wait(lambda: sorted(decided(cluster).isr) == [1, 2, 3])


def test_a_copied_directory_is_not_eligible() -> None:
    """It may be older than what the broker acknowledged after the copy was made.

    Its files name the same process and the same boot, and are sound.
    """
    with Cluster(3) as cluster:
        assert cluster.create("t", 1, 2, through=2, replicas=(2, 3)).error_code == 0
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        disk = cluster.brokers[3].node.disk
        paths = [f"{DATA}/{each.name}" for each in disk.entries(DATA) if not each.is_directory]
        copied = {path: disk.read(path) for path in paths}
        for value in SENT:
            produce(cluster, 2, value)
        for broker_id in (3, 2):
            cluster.brokers[broker_id].crash()
        cluster.wait(lambda: decided(cluster).leader == -1)
        for path, data in copied.items():
            disk.write_atomically(path, data, sync=True)
        disk.cut(f"{DATA}/t-0/00000000000000000000.log", 0)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert decided(cluster).leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(decided(cluster).isr) == [2, 3])
        assert decided(cluster).leader == 2
        assert read(cluster, 2) == SENT


def test_a_sync_that_failed_is_a_loss_at_the_next_start() -> None:
    """The kernel may have dropped what it could not write, and say nothing the next time."""
    with Cluster(3) as cluster:
        begin(cluster, (2, 3))
        broken = cluster.brokers[3]
        path = f"{DATA}/{PROCESS_CHECKPOINT}"
        assert broken.node.disk.exists(path)

        async def fail() -> None:
            partition = broken.broker.partitions.get("t", 0)
            assert partition is not None
            partition.log.fail_sync(OSError(5, "Input/output error"))

        cluster.run(broken.node, fail())
        cluster.wait(lambda: not broken.node.disk.exists(path))
        cluster.brokers[2].crash()
        broken.crash()
        cluster.wait(lambda: decided(cluster).leader == -1)
        broken.start()
        cluster.wait(lambda: broken.started)
        cluster.wait(lambda: cluster.controller.image.brokers[3].active)
        assert decided(cluster).leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: sorted(decided(cluster).isr) == [2, 3])
        assert read(cluster, 2) == SENT


def test_where_the_boot_has_no_name_every_kill_is_a_loss() -> None:
    """Unless all was synced before it was acknowledged."""
    assert Noted(("a",), "boot", synced=False).is_kept("boot")
    assert not Noted(("a",), "boot", synced=False).is_kept("another")
    assert not Noted(("a",), "", synced=False).is_kept("")
    assert Noted(("a",), "", synced=True).is_kept("")
