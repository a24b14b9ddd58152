"""Partitions move between four broker processes, some of which are killed; real clients."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ottla.client.structs import TopicPartition
from ottla.testing import Cluster, cluster
from ottla.testing.history import History
from tests import needs
from tests.crash.test_cluster import OPTIONS, PARTITIONS, TOPIC, create_topic, load
from tests.waiting import eventually

BROKERS = 4
RECORDS_BETWEEN_FAULTS = 100


def described(running: Cluster) -> dict[int, tuple[list[int], list[int]]]:
    """The replicas of each partition, and those in sync."""
    with running.admin() as client:
        (topic,) = client.describe_topics([TOPIC])
    return {
        each["partition_index"]: (list(each["replica_nodes"]), sorted(each["isr_nodes"]))
        for each in topic["partitions"]
    }


def move(running: Cluster, targets: Mapping[int, Sequence[int]]) -> None:
    with running.admin() as client:
        client.alter_partition_reassignments(
            {TopicPartition(TOPIC, index): target for index, target in targets.items()}
        )


def wait_until_moved(running: Cluster, targets: Mapping[int, Sequence[int]]) -> None:
    """Until the partitions have these replicas, all in sync, and no other broker has a folder."""
    wanted = {index: (list(target), sorted(target)) for index, target in targets.items()}
    held = {index: sorted(target) for index, target in targets.items()}
    with running.admin() as client:
        eventually(lambda: described(running) == wanted, f"{TOPIC} has moved to {targets}")
        eventually(lambda: not client.list_partition_reassignments(), "nothing moves")
    eventually(lambda: holders(running) == held, "the other copies are gone")


def holders(running: Cluster) -> dict[int, list[int]]:
    """The brokers with a folder of each partition; one set aside or to be deleted is none."""
    return {
        index: [
            each
            for each in running.node_ids
            if (running.directory / f"broker-{each}" / f"{TOPIC}-{index}").exists()
        ]
        for index in range(PARTITIONS)
    }


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_is_lost_when_brokers_die_while_partitions_move() -> None:
    """SIGKILL of the controller, a leader, a broker that gets a replica, or one that loses one.

    Each reassignment comes to its end when the broker is back, another one that takes its place
    too. The replicas are those asked for, and all in sync; no other broker has a folder.
    """
    chance = random.Random(11)
    options: dict[str, Any] = dict(OPTIONS)
    with cluster(brokers=BROKERS, **options) as running:
        create_topic(running)
        with load(running, History()) as writer:
            for _ in range(needs.rounds(5, 20)):
                writer.write_more(chance.randint(1, RECORDS_BETWEEN_FAULTS))
                before = described(running)[0][0]
                targets = {each: drawn(running, chance) for each in range(PARTITIONS)}
                move(running, targets)
                leader, controller = running.leader(TOPIC), running.controller()
                victim = chance.choice((controller, leader, targets[0][-1], before[0]))
                running.kill(victim)
                if chance.random() < 0.5:
                    targets[1] = drawn(running, chance)
                    move(running, {1: targets[1]})
                running.restart(victim)
                wait_until_moved(running, targets)


def drawn(running: Cluster, chance: random.Random) -> list[int]:
    """Two to four replicas in any order: some stay, some come, some go."""
    return chance.sample(running.node_ids, chance.choice((2, 3, 3, 4)))
