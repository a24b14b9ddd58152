"""Reassignments that the controller begins, cancels and completes, and the tree beside them."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.cluster import steps
from ottla.cluster.image import PartitionImage
from ottla.cluster.loading import read_cluster
from ottla.cluster.requests import (
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    Reassignment,
    ReassignmentOutcome,
    TopicRef,
)
from ottla.cluster.state import NotController
from ottla.cluster.steps import StateValues
from ottla.metadata_store.tree import SessionExpired
from ottla.seams.chance import SeededChance
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario, without_number
from tests.cluster.three_brokers import DISK, TWO, broker, epoch, fence, part, propose
from tests.simulated import run_simulated

NONE = ErrorCode.NONE
Action = Callable[[ControllerHarness], Awaitable[object]]


async def five(harness: ControllerHarness) -> None:
    """Brokers 1 to 5, and a topic on the first three."""
    for broker_id in (2, 3, 4, 5):
        await harness.join(broker(broker_id, broker_id, DISK))
    await harness.create(NewTopic("t", assignments=[(0, [1, 2, 3]), (1, [2, 3, 1])]))


async def move(
    harness: ControllerHarness, *replicas: int, index: int = 1, factor: bool = True
) -> ReassignmentOutcome:
    """Ask for other replicas; none cancels."""
    wanted = Reassignment("t", index, replicas or None)
    outcomes = await harness.controller.alter_reassignments([wanted], factor)
    assert isinstance(outcomes, list)
    [outcome] = outcomes
    return outcome


def assigned(harness: ControllerHarness, index: int = 1) -> tuple[tuple[int, ...], ...]:
    found = part(harness, index)
    return found.replicas, found.adding_replicas, found.removing_replicas


async def topic_node(harness: ControllerHarness) -> dict[str, object]:
    value: dict[str, object] = json.loads((await harness.nodes())["/brokers/topics/t"][0])
    return value


def test_from_the_request_to_the_end(tmp_path: Path) -> None:
    """The topic's node has what moves, as Kafka writes it; the leader's ISR completes it."""

    async def scenario(harness: ControllerHarness) -> None:
        await five(harness)
        assert await move(harness, 4, 3, 5) == ReassignmentOutcome("t", 1)
        assert assigned(harness) == ((4, 3, 5, 1, 2), (4, 5), (1, 2))
        node = await topic_node(harness)
        assert node["partitions"] == {"0": [1, 2, 3], "1": [4, 3, 5, 1, 2]}
        assert node["adding_replicas"] == {"1": [4, 5]}
        assert node["removing_replicas"] == {"1": [1, 2]}
        assert node["version"] == 3
        listed = [OngoingReassignment("t", 1, (4, 3, 5, 1, 2), (4, 5), (1, 2))]
        assert await harness.controller.list_reassignments(None) == listed
        assert await harness.controller.list_reassignments([("t", [0, 1, 9]), ("u", [0])]) == listed
        assert await harness.controller.list_reassignments([("t", [0])]) == []

        assert (await propose(harness, 1, 2, 3, 4)).error_code == NONE
        assert assigned(harness)[1] == (4, 5)
        # The leader, 2, is one of those that go: the change is made, and it is no leader any more.
        outcome = await propose(harness, 1, 2, 3, 4, 5)
        assert outcome.error_code == ErrorCode.NEW_LEADER_ELECTED
        assert assigned(harness) == ((4, 3, 5), (), ())
        now = part(harness)
        assert (now.leader, set(now.isr), now.leader_epoch) == (4, {3, 4, 5}, 1)
        node = await topic_node(harness)
        assert node["partitions"] == {"0": [1, 2, 3], "1": [4, 3, 5]}
        assert node["adding_replicas"] == node["removing_replicas"] == {}
        assert await harness.controller.list_reassignments(None) == []

    run_scenario(tmp_path, scenario, TWO)


def test_each_partition_has_its_own_answer(tmp_path: Path) -> None:
    """Codes, words and their order as Kafka's: the topic before the replicas."""

    async def scenario(harness: ControllerHarness) -> None:
        await five(harness)
        invalid, unknown = (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        outcomes = await harness.controller.alter_reassignments(
            [
                Reassignment("u", 0, []),
                Reassignment("t", 2, [9]),
                Reassignment("t", 0, []),
                Reassignment("t", 0, [1, 9]),
                Reassignment("t", 0, [1, 1]),
                Reassignment("t", 0, None),
                Reassignment("t", 0, [1, 2]),
                Reassignment("t", 1, [3, 2, 1]),
            ],
            False,
        )
        assert isinstance(outcomes, list)
        manual = "The manual partition assignment includes"
        assert [tuple(each) for each in outcomes] == [
            ("u", 0, unknown, "Unable to find a topic named u."),
            ("t", 2, unknown, "Unable to find partition t:2."),
            ("t", 0, invalid, f"{manual} an empty replica list."),
            ("t", 0, invalid, f"{manual} broker 9, but no such broker is registered."),
            ("t", 0, invalid, f"{manual} the broker 1 more than once."),
            ("t", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
            (
                "t",
                0,
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "The replication factor is changed from 3 to 2",
            ),
            ("t", 1, NONE, None),
        ]
        assert assigned(harness) == ((3, 2, 1), (), ())
        assert (await move(harness, 1, 2, index=0)).error_code == NONE

    run_scenario(tmp_path, scenario, TWO)


def test_one_partition_twice_in_a_request(tmp_path: Path) -> None:
    """The second counts, as if it had come by itself."""

    async def scenario(harness: ControllerHarness) -> None:
        await five(harness)
        wanted = [Reassignment("t", 1, [4, 3, 1]), Reassignment("t", 1, [5, 3, 1])]
        outcomes = await harness.controller.alter_reassignments(wanted)
        assert [each.error_code for each in outcomes] == [NONE, NONE]  # type: ignore[union-attr]
        assert assigned(harness) == ((5, 3, 1, 2, 4), (5,), (2, 4))

    run_scenario(tmp_path, scenario, TWO)


def test_added_partitions_keep_what_moves(tmp_path: Path) -> None:
    """A topic that grows while a partition of it is reassigned goes on with both."""

    async def scenario(harness: ControllerHarness) -> None:
        await five(harness)
        await move(harness, 4, 3, 1)
        grown = await harness.controller.create_partitions([NewPartitions("t", 4)])
        assert grown[0].error_code == NONE
        node = await topic_node(harness)
        assert node["adding_replicas"] == {"1": [4]}
        assert len(node["partitions"]) == 4  # type: ignore[arg-type]
        assert (await propose(harness, 1, 2, 3, 4)).error_code == ErrorCode.NEW_LEADER_ELECTED
        node = await topic_node(harness)
        assert len(node["partitions"]) == 4  # type: ignore[arg-type]
        assert assigned(harness) == ((4, 3, 1), (), ())

    run_scenario(tmp_path, scenario, TWO)


def test_a_dead_target(tmp_path: Path) -> None:
    """It waits for the broker, also across its fencing and return; or it is cancelled."""

    async def scenario(harness: ControllerHarness) -> None:
        await five(harness)
        await fence(harness, 4)
        assert (await move(harness, 4, 3, 1)).error_code == NONE
        assert (await propose(harness, 1, 2, 3, 4)).error_code == ErrorCode.INELIGIBLE_REPLICA
        assert (await move(harness)).error_code == NONE
        assert assigned(harness) == ((3, 1, 2), (), ())
        assert part(harness).leader == 2
        await move(harness, 4, 3, 1)
        await harness.catch_up(harness.controller.image.brokers[4])
        assert assigned(harness)[1] == (4,)
        assert (await propose(harness, 1, 2, 3, 4)).error_code == ErrorCode.NEW_LEADER_ELECTED
        assert assigned(harness) == ((4, 3, 1), (), ())

    run_scenario(tmp_path, scenario, TWO)


def test_the_old_replicas_die_on_the_way(tmp_path: Path) -> None:
    """What is added and in sync leads; with all that is new it is done, also without the rest."""

    async def scenario(harness: ControllerHarness) -> None:
        await five(harness)
        await move(harness, 4, 5, 3)
        await propose(harness, 1, 2, 3, 4)
        for broker_id in (2, 3, 1):
            await fence(harness, broker_id)
        assert part(harness).leader == 4
        refused = await move(harness)
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        outcome = await propose(harness, 4, 5)
        assert (outcome.error_code, outcome.leader) == (NONE, 4)
        assert assigned(harness) == ((4, 5, 3), (), ())
        assert part(harness).isr == (4, 5)

    run_scenario(tmp_path, scenario, TWO)


async def begin(harness: ControllerHarness) -> object:
    wanted = [Reassignment("t", index, [4, 3, 5]) for index in range(6)]
    return await harness.controller.alter_reassignments(wanted)


async def complete(harness: ControllerHarness) -> object:
    await begin(harness)
    everybody = (1, 2, 3, 4, 5)
    return await asyncio.gather(*(propose(harness, *everybody, index=i) for i in range(6)))


async def begin_and_cancel(harness: ControllerHarness) -> object:
    await begin(harness)
    wanted = [Reassignment("t", index, None) for index in range(6)]
    return await harness.controller.alter_reassignments(wanted)


async def begin_and_override(harness: ControllerHarness) -> object:
    await begin(harness)
    wanted = [Reassignment("t", index, [1, 2, 5]) for index in range(6)]
    return await harness.controller.alter_reassignments(wanted)


async def begin_and_grow(harness: ControllerHarness) -> object:
    await begin(harness)
    return await harness.controller.create_partitions([NewPartitions("t", 9)])


async def begin_and_delete(harness: ControllerHarness) -> object:
    await begin(harness)
    return await harness.controller.delete_topics([TopicRef("t")])


async def prepared(path: Path) -> ControllerHarness:
    harness = ControllerHarness(path, options=TWO)
    harness.brokers = [broker(1, 1, DISK)]
    await harness.start()
    for broker_id in (2, 3, 4, 5):
        await harness.join(broker(broker_id, broker_id, DISK))
    await harness.create(NewTopic("t", assignments=[(i, [1, 2, 3]) for i in range(6)]))
    await harness.stop()
    return harness


@pytest.mark.parametrize(
    "action",
    [begin, complete, begin_and_cancel, begin_and_override, begin_and_grow, begin_and_delete],
)
def test_the_controller_dies_after_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    """Every partition is as before, on its way, or done; the next controller can go on with it."""
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 400)

    async def main() -> int:
        harness = await prepared(tmp_path / "tree")
        begin = tmp_path / "begin"
        shutil.copy(harness.path, begin)
        writes = 0
        while True:
            shutil.copy(begin, harness.path)
            await harness.start(register=False)
            harness.tree.writes_left = writes
            try:
                await action(harness)
            except (SessionExpired, NotController):
                assert harness.tree.writes_left == 0
            done = harness.tree.writes_left != 0
            await harness.crash()
            await harness.start(register=False)
            await check(harness)
            await finish(harness)
            await harness.stop()
            if done:
                return writes
            writes += 1

    assert run_simulated(main()) >= 2


async def check(harness: ControllerHarness) -> None:
    """The tree has the image, and all partitions are ones that may be."""
    image = harness.controller.image
    loaded = read_cluster(await harness.nodes(), StateValues(0), SeededChance(1).uuid)
    assert not loaded.repairs
    found = without_number(image)._replace(controller_id=-1)
    assert loaded.image._replace(number=0, controller_epoch=0, controller_id=-1) == found
    for each in image.topics["t"].partitions if "t" in image.topics else ():
        assert_sound(each)


def assert_sound(partition: PartitionImage) -> None:
    held = set(partition.replicas)
    assert {partition.leader, *partition.isr, *partition.elr} <= held
    assert {*partition.adding_replicas, *partition.removing_replicas} <= held
    settled = held - set(partition.removing_replicas)
    assert not settled <= set(partition.isr) or not partition.removing_replicas


async def finish(harness: ControllerHarness) -> None:
    """All replicas join their ISRs: nothing is on its way any more."""
    image = harness.controller.image
    for each in image.topics["t"].partitions if "t" in image.topics else ():
        everybody = sorted(each.replicas)
        assert all(epoch(harness, member) > 0 for member in everybody)
        await propose(harness, *everybody, index=each.index)
    assert await harness.controller.list_reassignments(None) == []
    await check(harness)
