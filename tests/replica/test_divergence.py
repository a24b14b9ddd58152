"""Where the logs of replicas part, and what is cut then, on several brokers."""

from __future__ import annotations

import logging

import pytest

from ottla.replica.partition import Partition
from tests.replica.brokers import Brokers


def batches(partition: Partition) -> list[tuple[int, int, int]]:
    """Base offset, leader epoch and checksum of each batch."""
    return [
        (each.base_offset, each.leader_epoch, each.crc)
        for segment in partition.log.segments
        if segment.size_bytes
        for each in segment.batches()
    ]


def agree(brokers: Brokers) -> bool:
    """Whether all replicas have the same batches."""
    logs = [batches(brokers.at(each)) for each in brokers.brokers]
    return all(log == logs[0] for log in logs)


def set_aside(brokers: Brokers, broker_id: int) -> list[str]:
    """What was cut and kept beside a broker's log."""
    disk = brokers.nodes[broker_id].disk
    names = disk.listdir(brokers.at(broker_id).log.directory)
    return [name for name in names if name.endswith(".corrupt")]


def test_what_only_the_old_leader_has_is_cut() -> None:
    """The leader's answer says where the epochs part; nothing below the watermark goes."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"committed")
        brokers.run(1)
        brokers.cut(1)
        for number in range(3):
            brokers.produce(1, b"lost %d" % number, acks=1)
        brokers.lead(2, isr=(2, 3))
        brokers.produced(2, b"other")
        brokers.heal(1)
        brokers.run_until(lambda: agree(brokers))
        assert brokers.read(2) == [b"committed", b"other"]
        metrics = brokers.brokers[1].replication.metrics
        assert metrics.truncations_below_watermark.value == 0
        assert set_aside(brokers, 1) == []


def test_logs_of_many_short_epochs_are_brought_together() -> None:
    """KIP-279: each answer concerns one epoch, and the next fetch asks about the one before."""
    with Brokers(3) as brokers:
        for number in range(6):
            leader = number % 3 + 1
            brokers.lead(leader)
            brokers.produced(leader, b"all %d" % number)
            brokers.run(0.1)
            brokers.cut(leader)
            brokers.produce(leader, b"alone %d" % number, acks=1)
            brokers.lead(leader % 3 + 1)
            brokers.produce(leader % 3 + 1, b"other %d" % number, acks=1)
            brokers.heal(leader)
        brokers.run_until(lambda: agree(brokers))


@pytest.mark.parametrize("unclean", [False, True])
def test_committed_records_are_kept_unless_an_unclean_election_gave_them_up(
    unclean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that lacks what its follower knows committed: the follower cuts its log, keeps the
    bytes beside it, logs an error and counts it. After an unclean election it only cuts."""
    with Brokers(3) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.cut(3)
        for number in range(3):
            brokers.produced(1, b"%d" % number)
        brokers.run(1)
        assert brokers.at(2).high_watermark == 3
        brokers.heal(3)
        brokers.script.decide(0, leader=3, isr=(3,), recovering=unclean)
        with caplog.at_level(logging.WARNING, "ottla"):
            brokers.run_until(lambda: brokers.at(1).end_offset == brokers.at(2).end_offset == 0)
        metrics = brokers.brokers[2].replication.metrics
        assert metrics.truncations_below_watermark.value == (0 if unclean else 1)
        kept = [] if unclean else ["00000000000000000000.log.corrupt"]
        assert set_aside(brokers, 2) == kept
        assert brokers.at(2).high_watermark == 0
        levels = {each.levelname for each in caplog.records if "below its high" in each.message}
        assert levels == {"WARNING" if unclean else "ERROR"}
        brokers.produced(3, b"other")
        brokers.run_until(lambda: agree(brokers))


def test_a_follower_whose_disk_is_full_does_not_destroy_what_was_committed() -> None:
    """It goes offline instead: its log is as it was."""
    with Brokers(3) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.cut(3)
        brokers.produced(1, b"value")
        brokers.run(1)
        brokers.nodes[2].disk.fail("write", ".corrupt", 28)
        brokers.heal(3)
        brokers.script.decide(0, leader=3, isr=(3,))
        brokers.run_until(lambda: brokers.at(2).offline is not None)
        assert brokers.at(2).end_offset == 1
