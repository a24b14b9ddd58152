"""Thousands of partitions: what a controller does for each, and how long it holds the event loop.

Counted in calls of functions, so that the figures are the same on a busy machine; seconds are in
`benchmarks/`.
"""

import asyncio
from pathlib import Path

import pytest

from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerInfo, ClusterImage, TopicCreated
from ottla.cluster.requests import ElectionType, NewTopic, TopicRef
from ottla.cluster.state import Options
from ottla.metadata_store.local import LocalTree
from ottla.seams.background import InlineBackground, RealBackground
from ottla.seams.chance import SeededChance
from ottla.seams.clock import RealClock
from ottla.seams.disk import RealDisk
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import BROKER
from tests.cluster.test_image import topic
from tests.work import counted_calls, counted_turns

# Calls on the event loop for one partition; what SQLite's thread does is not among them.
CREATE_CALLS_MAX = 60
START_CALLS_MAX = 60
DELETE_CALLS_MAX = 45
FENCE_CALLS_MAX = 70
ISR_CALLS_MAX = 220  # with a task of its own for each
ELECT_CALLS_MAX = 60
# Calls of one callback of the loop: about 10 ms of a slow core.
TURN_CALLS_MAX = 50_000
PARTITIONS = 4_000  # more than one slice of each operation
OPEN_CALLS_MAX = 400


@pytest.mark.parametrize("count", [1, 400])
def test_thousands_of_partitions(tmp_path: Path, count: int) -> None:
    """In one topic or in many: created, started with and deleted in bounded steps of the loop."""
    new = [NewTopic(f"t{i}", PARTITIONS // count, 1) for i in range(count)]

    async def main() -> None:
        background = RealBackground(asyncio.get_running_loop())

        async def start() -> tuple[LocalTree, Controller]:
            tree = await LocalTree.open(RealDisk(), str(tmp_path / "tree"), background)
            options = Options(records_per_operation_max=20_000)
            clock = RealClock(asyncio.get_running_loop())
            controller = Controller(tree, clock, SeededChance(1), options)
            await controller.start()
            await controller.register_broker(BROKER)
            return tree, controller

        tree, controller = await start()
        with counted_turns() as turns:
            outcomes = await controller.create_topics(new)
        assert {outcome.error_code for outcome in outcomes} == {ErrorCode.NONE}
        assert controller.image.partition_count() == PARTITIONS
        assert sum(turns) < CREATE_CALLS_MAX * PARTITIONS
        assert max(turns) < TURN_CALLS_MAX
        await controller.stop()
        await tree.close()

        with counted_turns() as turns:
            tree, controller = await start()
        epochs = {p.leader_epoch for t in controller.image.topics.values() for p in t.partitions}
        assert epochs == {1}
        assert sum(turns) < START_CALLS_MAX * PARTITIONS

        with counted_turns() as turns:
            await controller.delete_topics([TopicRef(topic.name) for topic in new])
            await controller.confirm_deletions(1, list(controller.image.deletions))
        assert sum(turns) < DELETE_CALLS_MAX * PARTITIONS
        assert max(turns) < TURN_CALLS_MAX
        assert not controller.image.topics
        await controller.stop()
        await tree.close()
        background.close()

    asyncio.run(main())


def test_the_cost_of_a_new_topic_does_not_follow_their_number() -> None:
    """The next image takes as many calls among ten thousand topics as among ten."""

    def cost(topics: int) -> int:
        image = ClusterImage().apply(
            1, [TopicCreated(topic(f"t{i}", 1), {}) for i in range(topics)]
        )
        change = TopicCreated(topic("another", 1), {})
        with counted_calls() as calls:
            image.apply(2, [change])
        return calls.count

    assert cost(10_000) == cost(10)


def test_opening_a_tree_takes_few_steps(tmp_path: Path) -> None:
    """The file, a new session and an empty start: a few hundred calls, SQLite's included."""

    async def main() -> None:
        for _ in range(2):
            with counted_calls() as calls:
                tree = await LocalTree.open(RealDisk(), str(tmp_path / "tree"), InlineBackground())
            assert calls.count < OPEN_CALLS_MAX
            await tree.close()

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 400])
def test_a_broker_that_leads_thousands_of_partitions(tmp_path: Path, count: int) -> None:
    """Fenced, back in all ISRs, asked to lead again: in bounded steps of the loop."""
    new = [NewTopic(f"t{i}", PARTITIONS // count, 3) for i in range(count)]

    async def main() -> None:
        background = RealBackground(asyncio.get_running_loop())
        tree = await LocalTree.open(RealDisk(), str(tmp_path / "tree"), background)
        clock = RealClock(asyncio.get_running_loop())
        controller = Controller(tree, clock, SeededChance(1), Options(min_insync_replicas=2))
        await controller.start()
        for broker_id in (1, 2, 3):
            registered = await controller.register_broker(BrokerInfo(broker_id, {}))
            controller.caught_up(broker_id, registered.epoch, controller.image.number)
        await controller.create_topics(new)
        epochs = {each.id: each.epoch for each in controller.image.brokers.values()}

        def leaders(broker_id: int) -> int:
            topics = controller.image.topics.values()
            return sum(p.leader == broker_id for t in topics for p in t.partitions)

        assert leaders(2) > PARTITIONS / 4
        with counted_turns() as turns:
            assert await controller.fence_broker(2, epochs[2]) == ErrorCode.NONE
        assert leaders(2) == leaders(-1) == 0
        assert sum(turns) < FENCE_CALLS_MAX * PARTITIONS
        assert max(turns) < TURN_CALLS_MAX
        controller.caught_up(2, epochs[2], controller.image.number)
        await controller.skip_producer_ids(1, 0)  # the queue is worked off
        with counted_turns() as turns:
            outcomes = await asyncio.gather(
                *(
                    controller.alter_partition(
                        each.leader,
                        epochs[each.leader],
                        topic.id,
                        each.index,
                        each.leader_epoch,
                        each.partition_epoch,
                        [(member, epochs[member]) for member in (*each.isr, 2)],
                    )
                    for topic in controller.image.topics.values()
                    for each in topic.partitions
                )
            )
        assert {each.error_code for each in outcomes} == {ErrorCode.NONE}
        assert sum(turns) < ISR_CALLS_MAX * PARTITIONS
        with counted_turns() as turns:
            await controller.elect_leaders(ElectionType.PREFERRED, None)
        assert leaders(2) > PARTITIONS / 4
        assert sum(turns) < ELECT_CALLS_MAX * PARTITIONS
        assert max(turns) < TURN_CALLS_MAX
        await controller.stop()
        await tree.close()
        background.close()

    asyncio.run(main())
