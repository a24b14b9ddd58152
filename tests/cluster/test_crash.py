"""A crash after every single write: nothing is half-done after the restart."""

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.cluster import steps
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import (
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    Op,
    Resource,
    ResourceType,
    TopicRef,
    UpgradeType,
)
from ottla.cluster.state import NotController
from ottla.metadata_store.tree import SessionExpired
from ottla.seams.simulated.background import Durations
from tests.cluster.harness import ControllerHarness
from tests.simulated import run_simulated

Action = Callable[[ControllerHarness], Awaitable[object]]

DURATIONS = Durations(thread_s=0.01)  # of one write of the tree
PREPARED = (NewTopic("old", 12, 1, configs=[("a", "1")]), NewTopic("other", 1, 1))


async def create(harness: ControllerHarness) -> object:
    return await harness.create(
        NewTopic("new", 12, 1, configs=[("b", "2")]), NewTopic("new2", 12, 1), NewTopic("x", 1, 1)
    )


async def grow(harness: ControllerHarness) -> object:
    return await harness.controller.create_partitions([NewPartitions("old", 40)])


async def delete(harness: ControllerHarness) -> object:
    return await harness.controller.delete_topics([TopicRef("old"), TopicRef("other")])


async def delete_and_confirm(harness: ControllerHarness) -> object:
    await delete(harness)
    return await harness.controller.confirm_deletions(1, list(harness.controller.image.deletions))


async def delete_and_create(harness: ControllerHarness) -> object:
    await delete(harness)
    await harness.create(NewTopic("old", 5, 1))
    return await harness.controller.delete_topics([TopicRef("old")])


async def configure(harness: ControllerHarness) -> object:
    topic = Resource(ResourceType.TOPIC, "old")
    await harness.controller.incremental_alter_configs([(topic, [("a", Op.DELETE, None)])])
    return await harness.controller.update_features(
        [FeatureUpdate("share.version", 0, UpgradeType.SAFE_DOWNGRADE)]
    )


async def restart(harness: ControllerHarness) -> object:
    """Nothing but the writes of the start itself: epochs of all partitions."""
    return None


def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 600)


async def prepared(path: Path) -> ControllerHarness:
    harness = ControllerHarness(path)
    await harness.start()
    await harness.create(*PREPARED)
    await harness.stop()
    return harness


@pytest.mark.parametrize(
    "action", [create, grow, delete, delete_and_confirm, delete_and_create, configure, restart]
)
def test_a_crash_after_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    """For every n: crash after the nth write, restart, and all topics are whole, all nodes used.

    Writes are made very small, so that there are many moments between two of them.
    """
    small_steps(monkeypatch)

    async def main() -> int:
        writes = 0
        begin = tmp_path / "begin"
        await prepared(begin)
        while True:
            writes += 1
            harness = ControllerHarness(tmp_path / f"tree{writes}")
            shutil.copy(begin, harness.path)
            try:
                await harness.start(writes_left=writes)
                await action(harness)
            except (SessionExpired, NotController):  # the start itself was cut short
                assert harness.tree.writes_left == 0
            finished = harness.tree.writes_left != 0
            await harness.crash()
            for repairs in (1, 2):  # and again while the first crash is being repaired
                try:
                    await harness.start(writes_left=repairs)
                except (SessionExpired, NotController):
                    pass
                await harness.crash()
            await harness.start()
            check_whole(harness.controller.image, await harness.nodes())
            await finish_deletions(harness)
            await harness.stop()
            if finished:
                return writes

    writes = run_simulated(main(), seed=1, durations=DURATIONS)
    assert writes > 5


async def finish_deletions(harness: ControllerHarness) -> None:
    """Once the broker has confirmed, nothing at all is left of what was deleted."""
    deletions = list(harness.controller.image.deletions)
    await harness.controller.confirm_deletions(1, deletions)
    assert not harness.controller.image.deletions
    nodes = await harness.nodes()
    assert not [path for path in nodes if path.startswith("/admin/delete_topics/")]
    check_whole(harness.controller.image, nodes)


def check_whole(image: ClusterImage, nodes: dict[str, tuple[bytes, int]]) -> None:
    """The nodes are exactly those that the topics of the image need."""
    expected = set()
    for topic in image.topics.values():
        base = f"/brokers/topics/{topic.name}"
        expected |= {base, f"{base}/partitions"}
        value = json.loads(nodes[base][0])
        assert len(value["partitions"]) == len(topic.partitions)
        for partition in topic.partitions:
            path = f"{base}/partitions/{partition.index}"
            expected |= {path, f"{path}/state"}
            state, version = nodes[f"{path}/state"]
            assert version == partition.partition_epoch
            assert json.loads(state)["leader_epoch"] == partition.leader_epoch >= 1
    found = {path for path in nodes if path.startswith("/brokers/topics/")}
    assert found == expected
    configs = {p.rpartition("/")[2] for p in nodes if p.startswith("/config/topics/")}
    assert configs == set(image.topic_configs)
    # A topic has the configs it was created with, or has none because they were taken away.
    assert set(image.topic_configs) <= set(image.topics)
    for name, config in (("new", {"b": "2"}),):
        if name in image.topics:
            assert image.topic_configs[name] == config
    for name, counts in {"old": {12, 40, 5}, "new": {12}, "new2": {12}}.items():
        if name in image.topics:
            assert len(image.topics[name].partitions) in counts


def test_a_deletion_once_begun_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the first write of a deletion the topic is gone for good."""
    small_steps(monkeypatch)

    async def main() -> None:
        harness = await prepared(tmp_path / "tree")
        await harness.start()
        topic_id = harness.controller.image.topics["old"].id
        harness.tree.writes_left = 1
        await delete(harness)
        await harness.crash()
        await harness.start()
        assert set(harness.controller.image.topics) == {"other"}
        assert harness.controller.image.deletions == {topic_id: "old"}
        await harness.stop()

    run_simulated(main(), seed=1, durations=DURATIONS)
