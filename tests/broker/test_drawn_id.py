"""Broker ids that are drawn from /brokers/seqid, as Kafka 3 did."""

from __future__ import annotations

import asyncio

from ottla.broker.drawn_id import draw, with_broker_id
from ottla.cluster import nodes
from ottla.log.checkpoints import MetaProperties, write_meta_properties
from ottla.metadata_store.tree import Tree
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.settings import Settings
from ottla.testing.simulation.tree import SimulatedEnsemble

PROPERTIES = {"zookeeper.connect": "zookeeper:2181", "log.dirs": "/a,/b"}


def test_a_directory_keeps_the_id_that_was_drawn_for_it() -> None:
    """Another empty one gets the next id; one of a broker that had an id keeps that."""
    simulation = Simulation(1)
    ensemble = SimulatedEnsemble(simulation)
    node = simulation.node("broker", disk=SimulatedDisk())
    settings = Settings.from_properties(PROPERTIES)

    async def connect() -> Tree:
        return await ensemble.connect(node, 6.0)

    async def found(disk: SimulatedDisk) -> int:
        return (await with_broker_id(settings, disk, connect)).node_id

    used = SimulatedDisk()
    used.mkdir("/b")
    write_meta_properties(used, "/b", MetaProperties("cluster", 7, "directory"))
    assert [node.run(found(disk)) for disk in (SimulatedDisk(), used, SimulatedDisk())] == [
        1001,
        7,
        1002,
    ]
    assert not ensemble.sessions


def test_two_that_draw_at_once_have_different_ids() -> None:
    """On a tree that has no node for it yet."""
    simulation = Simulation(1)
    ensemble = SimulatedEnsemble(simulation)
    node = simulation.node("broker")

    async def both() -> list[int]:
        trees = [await ensemble.connect(node, 6.0) for _ in range(3)]
        return await asyncio.gather(*(draw(tree, 100) for tree in trees))

    assert sorted(node.run(both())) == [101, 102, 103]
    assert ensemble.nodes.get(nodes.BROKER_SEQUENCE)[1].version == 3
