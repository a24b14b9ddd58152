"""Changes of ISRs and leaders that brokers, users and configs ask for."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.cluster import leadership, steps
from ottla.cluster.requests import (
    ElectionType,
    FeatureUpdate,
    IsrOutcome,
    NewTopic,
    Op,
    Resource,
    ResourceType,
    UpgradeType,
)
from ottla.metadata_store.tree import ConnectionLoss, Operation, Result
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.cluster.three_brokers import DISK, TWO, broker, epoch, fence, part, propose, shape, three
from tests.simulated import pass_time


def test_proposals_are_answered_as_kafka_does(tmp_path: Path) -> None:
    """Unknown topics and partitions, another broker epoch, a partition that moved on."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        alter = harness.controller.alter_partition
        topic_id, own = harness.controller.image.topics["t"].id, epoch(harness, 2)
        isr = [(2, own)]

        async def code(*arguments: object) -> int:
            return (await alter(*arguments)).error_code  # type: ignore[arg-type]

        assert await code(2, own + 9, topic_id, 1, 0, 0, isr) == ErrorCode.STALE_BROKER_EPOCH
        assert await code(9, 1, topic_id, 1, 0, 0, isr) == ErrorCode.STALE_BROKER_EPOCH
        assert await code(2, own, bytes(16), 1, 0, 0, isr) == ErrorCode.UNKNOWN_TOPIC_ID
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(2, own, topic_id, 2, 0, 0, isr) == unknown
        assert await alter(2, own, topic_id, 1, 0, 0, isr) == IsrOutcome(0, (2,), 1, 2, 0)
        assert await code(2, own, topic_id, 1, 0, 0, isr) == ErrorCode.INVALID_UPDATE_VERSION
        assert shape(harness) == (2, (2,), (3, 1))
        # The same again changes nothing.
        assert await alter(2, own, topic_id, 1, 0, 1, isr) == IsrOutcome(0, (2,), 1, 2, 0)

    run_scenario(tmp_path, scenario, TWO)


def test_many_proposals_are_one_write(tmp_path: Path) -> None:
    """All that wait are made at once, each with its own answer; of two for one, one."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.join(2)
        await harness.create(NewTopic("t", assignments=[(i, [2, 1]) for i in range(50)]))
        writes = harness.tree.writes
        asked = [propose(harness, 2, index=index) for index in reversed(range(50))]
        twice = propose(harness, 2, index=7)
        outcomes = await asyncio.gather(*asked, twice)
        assert harness.tree.writes <= writes + 2
        assert [each.error_code for each in outcomes[:50]] == [0] * 50
        assert outcomes[50].error_code == ErrorCode.INVALID_UPDATE_VERSION
        partitions = harness.controller.image.topics["t"].partitions
        assert [each.index for each in partitions] == list(range(50))
        assert {each.isr for each in partitions} == {(2,)}

    run_scenario(tmp_path, scenario)


def test_a_caller_that_goes_away_takes_no_other_answer_along(tmp_path: Path) -> None:
    """Proposals have one answer in common; it outlives each of them."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        first = asyncio.create_task(propose(harness, 1, index=0))
        second = asyncio.create_task(propose(harness, 2, 3))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).error_code == ErrorCode.NONE
        assert shape(harness, 0) == (1, (1,), ())

    run_scenario(tmp_path, scenario)


def test_a_failed_write_is_not_an_isr(tmp_path: Path) -> None:
    """What came of it is not known: the leader gets an error and asks again."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        multi = harness.tree.multi

        async def fail(operations: object) -> object:
            harness.tree.multi = multi  # type: ignore[method-assign]
            raise ConnectionLoss("/", "no answer")

        harness.tree.multi = fail  # type: ignore[assignment, method-assign]
        assert (await propose(harness, 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert shape(harness) == (2, (2, 3, 1), ())
        assert (await propose(harness, 2)).error_code == ErrorCode.NONE
        assert not harness.controller.image.brokers[3].fenced

    run_scenario(tmp_path, scenario)


def test_proposals_are_made_after_a_tree_that_could_not_be_read(tmp_path: Path) -> None:
    """Those that waited for the reading are answered with its error, and no later ones."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        multi, subtree = harness.tree.multi, harness.tree.subtree

        async def fail(asked: object) -> object:
            raise ConnectionLoss("/", "no answer")

        harness.tree.multi = fail  # type: ignore[assignment, method-assign]
        assert (await propose(harness, 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        harness.tree.multi = multi  # type: ignore[method-assign]
        harness.tree.subtree = fail  # type: ignore[assignment, method-assign]
        assert (await propose(harness, 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        harness.tree.subtree = subtree  # type: ignore[method-assign]
        assert (await propose(harness, 2)).error_code == ErrorCode.NONE
        assert shape(harness) == (2, (2,), ())

    run_scenario(tmp_path, scenario)


def test_elections_overtake_creations(tmp_path: Path) -> None:
    """A broker that dies while many topics wait to be created is replaced before they are."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        order: list[str] = []

        async def create(number: int) -> None:
            await harness.create(NewTopic(f"u{number}", 1, 1))
            order.append(f"u{number}")

        creations = [asyncio.create_task(create(number)) for number in range(20)]
        await asyncio.sleep(0)
        await fence(harness, 2)
        order.append("fenced")
        assert shape(harness) == (3, (3, 1), ())
        await asyncio.gather(*creations)
        assert order.index("fenced") <= 1
        assert order[-1] == "u19"

    run_scenario(tmp_path, scenario)


def test_another_min_insync_replicas_ends_eligibility(tmp_path: Path) -> None:
    """Where there is a leader: it may commit without them. Without one the ELR stays."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        await propose(harness, 2)
        assert shape(harness) == (2, (2,), (3, 1))
        topic, cluster = Resource(ResourceType.TOPIC, "t"), Resource(ResourceType.BROKER, "")
        alter = harness.controller.incremental_alter_configs
        await alter([(topic, [("retention.ms", Op.SET, "1")])])
        assert shape(harness) == (2, (2,), (3, 1))
        await alter([(topic, [("min.insync.replicas", Op.SET, "3")])])
        assert shape(harness) == (2, (2,), ())
        await propose(harness, 2, 3, 1)
        await propose(harness, 2, 3)
        assert shape(harness) == (2, (2, 3), (1,))
        await alter([(cluster, [("min.insync.replicas", Op.SET, "1")])])
        assert shape(harness) == (2, (2, 3), ())
        await alter([(topic, [("min.insync.replicas", Op.DELETE, None)])])
        for broker_id in (2, 3):
            await fence(harness, broker_id)
        assert shape(harness) == (-1, (), (3,))
        await alter([(topic, [("min.insync.replicas", Op.SET, "2")])])
        assert shape(harness) == (-1, (), (3,))

    run_scenario(tmp_path, scenario, TWO)


def test_unclean_elections_when_allowed(tmp_path: Path) -> None:
    """As soon as the config says so; the others stay offline."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        await propose(harness, 2)
        await fence(harness, 2)
        await harness.join(broker(2, 22, DISK))
        await fence(harness, 2)
        await propose(harness, 1, index=0)
        topic = Resource(ResourceType.TOPIC, "t")
        assert shape(harness)[0] == 3  # of the ELR
        await propose(harness, 3)
        await fence(harness, 3)
        assert shape(harness) == (1, (1,), (3,))
        await fence(harness, 1)
        await harness.join(broker(2, 23, DISK))
        assert shape(harness) == (-1, (), (3, 1))
        await harness.controller.incremental_alter_configs(
            [(topic, [("unclean.leader.election.enable", Op.SET, "true")])]
        )
        assert shape(harness) == (2, (2,), ())
        assert part(harness).recovering

    run_scenario(tmp_path, scenario, TWO)


def test_leaders_that_are_asked_for(tmp_path: Path) -> None:
    """Of some partitions or of all, each with its own outcome."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        await fence(harness, 2)
        await harness.catch_up(harness.controller.image.brokers[2])
        await propose(harness, 3, 1, 2)
        elect = harness.controller.elect_leaders
        named = [("t", 0), ("t", 1), ("t", 2), ("x", 0)]
        assert await elect(ElectionType.PREFERRED, named) == [
            (
                "t",
                0,
                ErrorCode.ELECTION_NOT_NEEDED,
                "Leader election not needed for topic partition.",
            ),
            ("t", 1, ErrorCode.NONE, None),
            ("t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-2"),
            ("x", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as x"),
        ]
        assert shape(harness) == (2, (3, 1, 2), ())
        assert await elect(ElectionType.PREFERRED, None) == []
        assert await elect(ElectionType.UNCLEAN, None) == []

    run_scenario(tmp_path, scenario, TWO)


def test_elections_come_between_the_steps_of_a_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that dies while a large topic is being created; the topic has other leaders too."""
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 600)

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        assignments = [(index, [2, 3]) for index in range(100)]
        creation = asyncio.create_task(harness.create(NewTopic("u", assignments=assignments)))
        while "/brokers/topics/u" not in await harness.nodes():
            await asyncio.sleep(0)
        await fence(harness, 2)
        assert shape(harness) == (3, (3, 1), ())
        assert "u" not in harness.controller.image.topics
        assert "/brokers/topics/u/partitions/99" not in await harness.nodes()
        assert (await creation)[0].error_code == ErrorCode.NONE
        partitions = harness.controller.image.topics["u"].partitions
        assert {(each.leader, each.isr) for each in partitions} == {(3, (3,))}

    run_scenario(tmp_path, scenario, TWO)


def test_an_election_that_was_cut_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write in the middle of it fails: the tree is read again without anybody asking."""
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 100)

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        multi = harness.tree.multi
        left = 1

        async def fail(operations: Sequence[Operation]) -> list[Result]:
            nonlocal left
            left -= 1
            if left < 0:
                harness.tree.multi = multi  # type: ignore[method-assign]
                raise ConnectionLoss("/", "no answer")
            return await multi(operations)

        harness.tree.multi = fail  # type: ignore[method-assign]
        assert await fence(harness, 2) == ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.controller.image.brokers[2].fenced
        assert shape(harness) == (2, (2, 3, 1), ())
        await pass_time(1000)
        assert shape(harness) == (3, (3, 1), ())

    run_scenario(tmp_path, scenario)


def test_preferred_leaders_lead_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, where they are in the ISR and active; in several passes if there are many."""
    monkeypatch.setattr(leadership, "ELECTIONS_PER_REBALANCE", 3)
    options = TWO._replace(leader_rebalance_s=300)

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        assignments = [(index, [2, 3]) for index in range(10)]
        await harness.create(NewTopic("u", assignments=assignments))
        await fence(harness, 2)
        await harness.catch_up(harness.controller.image.brokers[2])
        await propose(harness, 3, 1, 2)

        def leaders() -> list[int]:
            return [each.leader for each in harness.controller.image.topics["u"].partitions]

        assert (part(harness).leader, leaders()) == (3, [3] * 10)
        await pass_time(299_000)
        assert part(harness).leader == 3
        await pass_time(2_000)
        assert (part(harness).leader, leaders()) == (2, [3] * 10)
        topic = harness.controller.image.topics["u"]
        for index, each in enumerate(topic.partitions[:8]):
            members = [(3, epoch(harness, 3)), (2, epoch(harness, 2))]
            outcome = await harness.controller.alter_partition(
                3, epoch(harness, 3), topic.id, index, each.leader_epoch, 1, members
            )
            assert outcome.error_code == ErrorCode.NONE
        await pass_time(300_000)
        assert leaders() == [2] * 8 + [3] * 2
        number = harness.controller.image.number
        await pass_time(900_000)
        assert harness.controller.image.number == number

    run_scenario(tmp_path, scenario, options)


def test_a_cluster_without_eligible_replicas(tmp_path: Path) -> None:
    """Who was eligible is in the ISR then and may lead; and the other way round."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        for broker_id in (3, 1, 2):
            await fence(harness, broker_id)
        assert shape(harness) == (-1, (), (1, 2))
        feature = "eligible.leader.replicas.version"
        update = harness.controller.update_features
        await update([FeatureUpdate(feature, 0, UpgradeType.SAFE_DOWNGRADE)])
        assert (shape(harness), part(harness).last_known_leader) == ((-1, (1, 2), ()), -1)
        await harness.catch_up(harness.controller.image.brokers[1])
        assert shape(harness) == (1, (1,), ())
        await fence(harness, 1)
        assert shape(harness) == (-1, (1,), ())
        await update([FeatureUpdate(feature, 1)])
        assert (shape(harness), part(harness).last_known_leader) == ((-1, (), (1,)), 1)
        await harness.catch_up(harness.controller.image.brokers[1])
        assert shape(harness) == (1, (1,), ())

    run_scenario(tmp_path, scenario, TWO)
