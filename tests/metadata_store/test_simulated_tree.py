"""The tree of the simulation: the conformance suites, so that it can stand for ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.metadata_store.tree import SessionExpired, Tree
from ottla.seams.simulated.simulation import Simulation
from ottla.testing.simulation.tree import SimulatedEnsemble, SimulatedTree
from tests.metadata_store.conformance import Scene
from tests.metadata_store.lossy_conformance import LossyConformance


class TestSimulated(LossyConformance):
    """In simulated time: `play` runs the simulation instead of an event loop of its own."""

    @pytest.fixture
    def play(self, tmp_path: Path) -> Callable[[Scene], None]:
        def run(scene: Scene) -> None:
            with Simulation(seed=1) as simulation:
                self.ensemble = SimulatedEnsemble(simulation)
                self.one, self.two = simulation.node("one"), simulation.node("two")
                tree = self.one.run(self.ensemble.connect(self.one, 20))
                other = self.one.run(self.ensemble.connect(self.one, 20))
                other.machine = self.one
                self.first = tree
                self.one.run(scene(tree, other), limit_s=60)

        return run

    @asynccontextmanager
    async def sessions(self, directory: Path) -> AsyncIterator[tuple[Tree, Tree]]:
        raise AssertionError("see play")
        yield  # for the type

    async def withhold_answers(self, tree: Tree) -> None:
        assert isinstance(tree, SimulatedTree)
        tree.withholding = True

    async def cut(self, tree: Tree) -> None:
        assert isinstance(tree, SimulatedTree)
        tree.lose_connection()
        await asyncio.sleep(0)

    async def expire(self, tree: Tree) -> None:
        assert isinstance(tree, SimulatedTree)
        self.ensemble.expire(tree)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", ["paused", "cut off", "crashed"])
def test_the_session_of_a_silent_process_ends(fault: str) -> None:
    """Its node goes after the time-out; the process knows when it is back."""
    with Simulation(seed=1) as simulation:
        ensemble = SimulatedEnsemble(simulation)
        node = simulation.node("silent")
        tree = node.run(ensemble.connect(node, 6))
        node.run(tree.create("/controller", ephemeral=True))
        calls: list[str] = []
        tree.when_expired(lambda: calls.append("expired"))
        match fault:
            case "paused":
                node.pause()
            case "cut off":
                ensemble.cut("silent")
            case _:
                node.crash()
        simulation.run_for(5)
        assert ensemble.nodes.children("/") == ["controller"]
        simulation.run_for(5)
        assert ensemble.nodes.children("/") == []
        assert calls == []
        node.resume()
        ensemble.heal("silent")
        simulation.run_for(1)
        if node.alive:
            assert calls == ["expired"]
            with pytest.raises(SessionExpired):
                node.run(tree.get("/"))


def test_a_session_whose_member_is_behind_reads_what_was() -> None:
    """Until it syncs or writes; a watch fires before what it tells of can be read."""
    with Simulation(seed=1) as simulation:
        ensemble = SimulatedEnsemble(simulation)
        node = simulation.node("one")
        writer = node.run(ensemble.connect(node, 20))
        behind = node.run(ensemble.connect(node, 20))
        node.run(writer.create("/a", b"old"))
        seen: list[str] = []
        node.run(behind.get("/a", lambda event: seen.append(f"before: {event.kind}")))
        behind.fall_behind()
        node.run(writer.set("/a", b"new"))
        node.run(writer.create("/b"))
        assert node.run(behind.get("/a"))[0] == b"old"
        assert node.run(behind.exists("/b", lambda event: seen.append(event.kind))) is None
        assert seen == []
        node.run(behind.sync())
        assert seen == ["before: changed", "created"]
        assert node.run(behind.get("/a"))[0] == b"new"


def test_a_write_ends_that_a_session_is_behind() -> None:
    """What it reads after a write of its own is no older than that."""
    with Simulation(seed=1) as simulation:
        ensemble = SimulatedEnsemble(simulation)
        node = simulation.node("one")
        writer = node.run(ensemble.connect(node, 20))
        behind = node.run(ensemble.connect(node, 20))
        behind.fall_behind()
        node.run(writer.create("/a"))
        assert node.run(behind.children("/")) == []
        node.run(behind.create("/b"))
        assert node.run(behind.children("/")) == ["a", "b"]


def test_an_answer_that_came_before_the_connection_was_lost_counts() -> None:
    """To a process that is suspended meanwhile: it goes on with the answer (seed 308)."""
    with Simulation(seed=1) as simulation:
        ensemble = SimulatedEnsemble(simulation)
        node = simulation.node("one")
        tree = node.run(ensemble.connect(node, 20))
        asked = node.task(tree.exists("/"))
        simulation.run_for(0.5 * ensemble.latency_s)
        node.pause()
        simulation.run_for(1)
        tree.lose_connection()
        node.resume()
        simulation.run_until(asked.done, limit_s=10)
        assert asked.result() is not None
        simulation.check()
