"""How long a killed broker holds up a client that asks for leaders as librdkafka does.

In simulated time, in which code costs nothing: what is left is what the network and the brokers'
own pauses take. Real processes take the time of their processors as well (benchmarks).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.testing.simulation.connection import Connection
from ottla.testing.simulation.machines import SHARED, Machine
from ottla.testing.simulation.tree import SimulatedEnsemble
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests import needs
from tests.broker.harness import produce_request

PARTITIONS = 3
LATENCY_S = 0.0005
PRODUCE_VERSION = 9
SETTINGS = {"min.insync.replicas": 2, "default.replication.factor": 3}
# Of librdkafka: the pause before it asks for a leader again, twice as long each time, and the one
# before it sends a refused batch again.
ASK_AGAIN_S, ASK_AGAIN_S_MAX = 0.1, 1.0
SEND_AGAIN_S = 0.1
START_S_MAX = 60.0
# A few round trips and the pauses between dials. On one host the next controller opens the tree,
# each step of which is a thread's work of some simulated milliseconds.
HELD_UP_S_MAX = {
    ("shared directory", "leader"): 0.08,
    ("shared directory", "controller"): 0.19,
    ("zookeeper", "leader"): 0.04,
    ("zookeeper", "controller"): 0.06,
}


class Cluster:
    """Three brokers with a topic; its `index` partition is led by the broker that will die."""

    def __init__(self, engine: str, victim: str, seed: int) -> None:
        self.simulation = Simulation(seed, latency_s=LATENCY_S)
        self.simulation.node("operator")
        shared = SimulatedDisk()
        shared.mkdir(SHARED)
        ensemble = SimulatedEnsemble(self.simulation) if engine == "zookeeper" else None
        self.machines = {
            each: Machine(
                self.simulation, each, SETTINGS, shared,
                changed=lambda *change: None, note=logging.info, ensemble=ensemble,
            )
            for each in (1, 2, 3)
        }  # fmt: skip
        self.client = self.simulation.node("client")
        for machine in self.machines.values():
            machine.first_start()
        everybody = self.machines.values()
        self.simulation.run_until(
            lambda: all(each.ready for each in everybody), limit_s=START_S_MAX
        )
        self.simulation.run_for(1)
        self.client.run(self._create(), limit_s=START_S_MAX)
        self.simulation.run_for(1)
        (controller,) = (each.id for each in everybody if each.controller is not None)
        broker = self.machines[1].broker
        assert broker is not None
        leaders = {index: broker.image.partition("t", index) for index in range(PARTITIONS)}
        self.index, self.before = next(
            (index, found)
            for index, found in leaders.items()
            if found is not None and (found.leader == controller) == (victim == "controller")
        )
        self.batch = write_batch([Record(b"value", timestamp=0)])

    async def _create(self) -> None:
        connection = await Connection.open(self.client, "broker1")
        topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=3)
        answer = await connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE
        connection.close()

    async def held_up_s(self, asked: int) -> float:
        """Kill the leader; the time until the next one has acknowledged a record.

        `asked`: the broker that is asked for leaders, over a connection that is open before.
        """
        clock, leader = self.client.clock, self.before.leader
        producing = await Connection.open(self.client, f"broker{leader}")
        assert await self._produce(producing) == ErrorCode.NONE
        asking = await Connection.open(self.client, f"broker{asked}")
        await asking.ask(self._question(), 12)
        began_s = clock.monotonic()
        self.machines[leader].crash()
        await asyncio.sleep(2 * LATENCY_S)  # until it is noticed
        while True:
            producing = await Connection.open(self.client, f"broker{await self._next(asking)}")
            if await self._produce(producing) == ErrorCode.NONE:
                return clock.monotonic() - began_s
            await asyncio.sleep(SEND_AGAIN_S)

    async def _produce(self, connection: Connection) -> int:
        request = produce_request("t", self.index, self.batch)
        answer = await connection.ask(request, PRODUCE_VERSION)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def _next(self, asking: Connection) -> int:
        """The leader that an answer names first; questions do not wait for each other's answers."""
        named: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def answered(answer: asyncio.Future[Any]) -> None:
            (found,) = (
                each
                for each in answer.result().topics[0].partitions
                if each.partition_index == self.index
            )
            another = found.leader_id >= 0 and found.leader_epoch > self.before.leader_epoch
            if another and not named.done():
                named.set_result(found.leader_id)

        pause_s = ASK_AGAIN_S
        while not named.done():
            asking.post(self._question(), 12).add_done_callback(answered)
            await asyncio.wait([named], timeout=pause_s)
            pause_s = min(2 * pause_s, ASK_AGAIN_S_MAX)
        return named.result()

    def _question(self) -> MetadataRequest:
        topic = MetadataRequestTopic(name="t")
        return MetadataRequest(topics=[topic], allow_auto_topic_creation=False)


@pytest.mark.parametrize("victim", ["leader", "controller"])
@pytest.mark.parametrize("engine", ["shared directory", "zookeeper"])
def test_a_killed_broker_holds_up_its_clients_for_a_moment(engine: str, victim: str) -> None:
    """Whether it was the controller as well or not: no pause of tenths of a second lies between its
    death and the first record that the next leader acknowledges."""
    for seed in range(needs.rounds(4, 40)):
        cluster = Cluster(engine, victim, seed)
        others = [each for each in cluster.machines if each != cluster.before.leader]
        work = cluster.held_up_s(others[seed % 2])
        held_up_s = cluster.client.run(work, limit_s=30)
        cluster.simulation.close()
        assert held_up_s < HELD_UP_S_MAX[engine, victim], f"seed {seed}: {held_up_s:.3f} s"
