"""The controller dies after any single write about brokers: the next one finishes what was begun.

And histories of brokers, users and controllers that come and go, from a seed: image, tree and feed
agree after each step, and the image is always one that may be.
"""

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.cluster import elections, steps
from ottla.cluster.feed import Snapshot, follow_batches
from ottla.cluster.image import NO_LEADER, ClusterImage
from ottla.cluster.loading import read_cluster
from ottla.cluster.requests import ElectionType, NewTopic, Op, Resource, ResourceType
from ottla.cluster.state import NotController
from ottla.cluster.steps import StateValues
from ottla.metadata_store.tree import SessionExpired
from ottla.seams.chance import SeededChance
from tests import needs
from tests.cluster.harness import ControllerHarness, without_number
from tests.cluster.three_brokers import DISK, TWO, broker, epoch, fence, part, propose
from tests.simulated import run_simulated

Action = Callable[[ControllerHarness], Awaitable[object]]
PARTITIONS = 8


async def kill(harness: ControllerHarness) -> object:
    return await fence(harness, 2)


async def kill_and_return(harness: ControllerHarness) -> object:
    await fence(harness, 2)
    return await harness.catch_up(harness.controller.image.brokers[2])


async def restart_unnoticed(harness: ControllerHarness) -> object:
    return await harness.join(broker(2, 22, DISK))


async def restart_in_order(harness: ControllerHarness) -> object:
    await harness.controller.controlled_shutdown(2, epoch(harness, 2))
    return await harness.join(broker(2, 22, DISK), epoch(harness, 2))


async def all_die(harness: ControllerHarness) -> object:
    for broker_id in (3, 2, 1):
        await fence(harness, broker_id)
    return await harness.join(broker(1, 11, DISK))


async def unregister(harness: ControllerHarness) -> object:
    return await harness.controller.unregister_broker(3)


async def change_isrs(harness: ControllerHarness) -> object:
    indexes = [p.index for p in harness.controller.image.topics["t"].partitions]
    return await asyncio.gather(
        *(propose(harness, part(harness, index).leader, index=index) for index in indexes)
    )


async def change_min_isr(harness: ControllerHarness) -> object:
    await change_isrs(harness)
    cluster = Resource(ResourceType.BROKER, "")
    change = [(cluster, [("min.insync.replicas", int(Op.SET), "1")])]
    return await harness.controller.incremental_alter_configs(change)


async def prepared(path: Path) -> ControllerHarness:
    harness = ControllerHarness(path, options=TWO)
    harness.brokers = [broker(1, 1, DISK)]
    await harness.start()
    for broker_id in (2, 3):
        await harness.join(broker(broker_id, broker_id, DISK))
    ids = (1, 2, 3)
    assignments = [(i, ids[i % 3 :] + ids[: i % 3]) for i in range(PARTITIONS)]
    await harness.create(NewTopic("t", assignments=assignments))
    await harness.create(NewTopic("alone", assignments=[(0, [2])]))
    await harness.stop()
    return harness


@pytest.mark.parametrize(
    "action",
    [
        kill,
        kill_and_return,
        restart_unnoticed,
        restart_in_order,
        all_die,
        unregister,
        change_isrs,
        change_min_isr,
    ],
)
def test_crash_after_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    """Whatever was written, the next controller has leaders and ISRs that its brokers allow."""
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 400)

    async def main() -> int:
        harness = await prepared(tmp_path / "tree")
        begin = tmp_path / "begin"
        shutil.copy(harness.path, begin)
        writes = 0
        while True:
            shutil.copy(begin, harness.path)
            await harness.start(register=False)
            before = harness.controller.image
            harness.tree.writes_left = writes
            try:
                await action(harness)
            except (SessionExpired, NotController):
                assert harness.tree.writes_left == 0
            finished = harness.tree.writes_left != 0
            published = harness.controller.image
            await harness.crash()
            for repairs in (1, 2):  # and again while the first crash is being repaired
                try:
                    await harness.start(writes_left=repairs, register=False)
                except (SessionExpired, NotController):
                    pass
                await harness.crash()
            controller = await harness.start(register=False)
            for earlier in (before, published):
                check_later(earlier, controller.image)
            await check_whole(harness)
            await harness.stop()
            if finished:
                return writes
            writes += 1

    assert run_simulated(main(), seed=1) > 3


def check_later(before: ClusterImage, after: ClusterImage) -> None:
    """Nothing that was published is taken back."""
    for name, topic in before.topics.items():
        for old, new in zip(topic.partitions, after.topics[name].partitions, strict=True):
            assert new.partition_epoch >= old.partition_epoch
            assert new.leader_epoch >= old.leader_epoch
            if new.leader_epoch == old.leader_epoch:
                assert new.leader == old.leader
            if new.partition_epoch == old.partition_epoch:
                assert new == old
    for broker_id in before.brokers.keys() & after.brokers.keys():
        assert after.brokers[broker_id].epoch >= before.brokers[broker_id].epoch


async def check_whole(harness: ControllerHarness) -> None:
    """Tree and image agree, and nothing is left to decide."""
    image = harness.controller.image
    read = read_cluster(await harness.nodes(), StateValues(1), SeededChance(1).uuid)
    assert read.repairs == []
    assert without_number(read.image) == without_number(image)._replace(controller_id=-1)
    state = harness.controller._state
    assert read.broker_epoch == state.last_broker_epoch
    assert max((each.epoch for each in image.brokers.values()), default=0) <= read.broker_epoch
    for topic in image.topics.values():
        rules = state.rules_of(topic)
        for partition in topic.partitions:
            assert elections.settled(partition, image.brokers, rules, state.stopped) is None
            assert not set(partition.isr) & set(partition.elr)
            for member in partition.isr:
                assert image.brokers[member].active
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr
            assert state.stopped.unclean.isdisjoint((*partition.isr, *partition.elr))
    live = {path for path in await harness.nodes() if path.startswith("/brokers/ids/")}
    unfenced = {each.id for each in image.brokers.values() if not each.fenced}
    others = unfenced - {harness.options.node_id}
    assert {f"/brokers/ids/{each}" for each in others} <= live
    assert live <= {f"/brokers/ids/{each}" for each in unfenced}


class History:
    """Random requests to a controller that is replaced now and then."""

    def __init__(self, harness: ControllerHarness, seed: int) -> None:
        self.harness = harness
        self.rng = random.Random(seed)
        self.incarnation = 100
        self.followed = ClusterImage()

    async def step(self) -> None:
        choices = (self.fence, self.join, self.join, self.catch_up, self.propose, self.propose)
        others = (self.shut_down, self.elect, self.configure, self.controller, self.unregister)
        broker_id = self.rng.choice((1, 2, 3))
        before = self.harness.controller.image
        await self.rng.choice((*choices, *choices, *others))(broker_id)
        check_later(before, self.harness.controller.image)
        await self.follow()
        await check_whole(self.harness)

    async def follow(self) -> None:
        feed = self.harness.controller.feed
        if (self.followed.number, self.followed.controller_epoch) != (
            feed.image.number,
            feed.image.controller_epoch,
        ):
            news = await feed.after(self.followed.number, self.followed.controller_epoch)
            if isinstance(news, Snapshot):
                self.followed = news.image
            else:
                self.followed = follow_batches(self.followed, news)
        assert self.followed == feed.image

    async def fence(self, broker_id: int) -> None:
        if broker_id in self.harness.controller.image.brokers:
            await fence(self.harness, broker_id)

    async def join(self, broker_id: int) -> None:
        self.incarnation += 1
        known = self.harness.controller.image.brokers.get(broker_id)
        clean = known is not None and self.rng.random() < 0.5
        directory = DISK if self.rng.random() < 0.9 else bytes([self.incarnation % 256]) * 16
        new = broker(broker_id, self.incarnation % 256, directory)
        previous = known.epoch if known is not None and clean else -1
        registered = await self.harness.controller.register_broker(new, previous)
        if self.rng.random() < 0.8:
            await self.harness.catch_up(registered)

    async def catch_up(self, broker_id: int) -> None:
        known = self.harness.controller.image.brokers.get(broker_id)
        if known is not None:
            await self.harness.catch_up(known)

    async def propose(self, _: int) -> None:
        index = self.rng.randrange(PARTITIONS)
        partition = part(self.harness, index)
        brokers = self.harness.controller.image.brokers
        if partition.leader in brokers:
            others = [each for each in partition.replicas if each != partition.leader]
            isr = [each for each in others if each in brokers and self.rng.random() < 0.5]
            await propose(self.harness, partition.leader, *isr, index=index)

    async def shut_down(self, broker_id: int) -> None:
        if broker_id in self.harness.controller.image.brokers:
            await self.harness.controller.controlled_shutdown(
                broker_id, epoch(self.harness, broker_id)
            )

    async def elect(self, _: int) -> None:
        await self.harness.controller.elect_leaders(self.rng.choice(list(ElectionType)), None)

    async def configure(self, _: int) -> None:
        topic = Resource(ResourceType.TOPIC, "t")
        value = str(self.rng.choice((1, 2, 3)))
        await self.harness.controller.incremental_alter_configs(
            [(topic, [("min.insync.replicas", Op.SET, value)])]
        )

    async def controller(self, _: int) -> None:
        await self.harness.crash()
        await self.harness.start(register=False)

    async def unregister(self, broker_id: int) -> None:
        if self.rng.random() < 0.3:
            await self.harness.controller.unregister_broker(broker_id)


@pytest.mark.parametrize("seed", range(needs.rounds(6, 200)))
def test_histories(tmp_path: Path, seed: int) -> None:
    """Image, feed and tree agree; leaders are in their ISRs, and these are of active brokers."""

    async def main() -> None:
        harness = await prepared(tmp_path / "tree")
        await harness.start(register=False)
        history = History(harness, seed)
        for _ in range(40):
            await history.step()
        await harness.stop()

    run_simulated(main())
