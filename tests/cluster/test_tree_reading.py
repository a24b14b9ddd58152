"""What a controller asks for when it starts on a tree that is not read at once: ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.cluster import token_nodes
from ottla.cluster.loading import read_cluster
from ottla.cluster.requests import NewTopic, TopicRef
from ottla.cluster.steps import StateValues
from ottla.cluster.tree_reading import read_nodes
from ottla.metadata_store.tree import Watcher
from ottla.security.principal import user
from ottla.security.tokens import Token
from tests.cluster.harness import ControllerHarness, FailingTree, run_scenario


class CountingTree(FailingTree):
    """Without a subtree in one read; counts the requests that one after the other wait."""

    reads_at_once = False

    def __init__(self, harness: ControllerHarness) -> None:
        super().__init__(harness.tree.tree, None)
        self.turns = 0
        self.walked: list[str] = []

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self.turns += 1
        return await super().children(path, watch)

    async def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        self.turns += 1
        return await super().get_many(paths)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        self.turns += 1
        self.walked.append(path)
        return await super().subtree(path)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 2_000), (300, 2)])
def test_all_states_are_read_at_a_time(tmp_path: Path, topics: int, partitions: int) -> None:
    """By what the topics' nodes say, without a walk, however many there are; the image is that of
    a whole tree."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(*(NewTopic(f"t{number}", partitions) for number in range(topics)))
        operator = await harness.tree.tree._engine.connect()
        token = Token("id", user("a"), user("b"), (), 1, 2, 3)
        await operator.create(token_nodes.path_of("id"), token_nodes.value_of(token))
        tree = CountingTree(harness)
        found = await read_nodes(tree)
        assert tree.turns == 11
        assert not [path for path in tree.walked if path.startswith("/brokers")]
        values = StateValues(1)
        image = read_cluster(found, values, harness.chance.uuid)
        whole = read_cluster(await read_nodes(harness.tree), values, harness.chance.uuid)
        assert image == whole
        assert image.image.tokens == {"id": token}
        assert not image.repairs
        assert sum(len(topic.partitions) for topic in image.image.topics.values()) == (
            topics * partitions
        )

    run_scenario(tmp_path, scenario)


def test_only_topics_that_are_not_whole_are_walked_through(tmp_path: Path) -> None:
    """One whose creation or deletion was cut short; what is missing is known then."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.create(*(NewTopic(f"t{number}", 3) for number in range(20)))
        operator = await harness.tree.tree._engine.connect()
        await operator.delete("/brokers/topics/t7/partitions/1/state")
        await operator.delete("/brokers/topics/t7/partitions/1")
        await harness.controller.delete_topics([TopicRef("t8")])
        tree = CountingTree(harness)
        found = await read_nodes(tree)
        below = [path for path in tree.walked if path.startswith("/brokers")]
        assert below == ["/brokers/topics/t7"]
        whole = await harness.tree.subtree("/")
        assert {path for path in whole if path.startswith("/brokers/topics/t7")} <= set(found)

    run_scenario(tmp_path, scenario)
