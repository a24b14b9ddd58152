"""Two brokers that take over at the same time from a controller that has died."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cluster import tree_reading
from ottla.cluster.controller import Controller
from ottla.cluster.state import Options
from ottla.metadata_store.tree import BadVersion, Tree
from ottla.seams.chance import SeededChance
from tests.cluster.harness import ControllerHarness, run_scenario

Nodes = dict[str, tuple[bytes, int]]


def test_writes_of_the_next_controller_are_not_counted_as_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is replaced while it reads the tree answers nobody. Brokers that saw its count took
    the tree for an earlier copy, and could not start again (seed 601361 with ZooKeeper).
    """
    read_nodes = tree_reading.read_nodes

    async def scenario(harness: ControllerHarness) -> None:
        async def controller() -> Controller:
            tree = await harness.tree.tree._engine.connect()
            return Controller(tree, harness.clock, SeededChance(2), harness.options, harness.rules)

        replaced, elected = await controller(), await controller()

        async def read_late(tree: Tree) -> Nodes:
            monkeypatch.setattr(tree_reading, "read_nodes", read_nodes)
            await elected.start(replace=True)
            return await read_nodes(tree)

        monkeypatch.setattr(tree_reading, "read_nodes", read_late)
        with pytest.raises(BadVersion):
            await replaced.start(replace=True)
        assert not replaced.active
        assert replaced.tree_writes() <= elected.tree_opened_at
        assert elected.active
        await elected.stop()

    run_scenario(tmp_path, scenario, Options(others_write=True))
