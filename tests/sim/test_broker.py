"""A whole broker on a simulated machine and network: crashes, cut links and power cuts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from ottla.seams.simulated.simulation import Node, Simulation
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.records import Record, write_batch
from tests import needs
from tests.broker.harness import fetch_request, produce_request, values
from tests.sim.harness import SimulatedBroker

SEEDS = needs.rounds(6, 500)
TOPIC = "t"
CLIENTS = 3
RECORDS = 120  # of each client
CRASHES = 6
RETRY_S = 0.05
LONG_POLL_MS = 10_000


@dataclass
class Producer:
    """Sends numbered records one at a time, each again until it is acknowledged."""

    node: Node
    acknowledged: list[bytes] = field(default_factory=list)

    async def run(self) -> None:
        connection: Connection | None = None
        for number in range(RECORDS):
            value = b"%s %d" % (self.node.name.encode(), number)
            while True:
                try:
                    connection = connection or await Connection.open(self.node, "broker")
                    record = Record(value, timestamp=self.node.clock.now_ms())
                    request = produce_request(TOPIC, 0, write_batch([record]))
                    answer = await connection.ask(request, 9)
                    if answer.responses[0].partition_responses[0].error_code == 0:
                        break
                except (OSError, TimeoutError):
                    connection = None
                await asyncio.sleep(RETRY_S)
            self.acknowledged.append(value)


async def create_topic(node: Node) -> None:
    connection = await Connection.open(node, "broker")
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    answer = await connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert answer.topics[0].error_code == 0
    connection.close()


async def read_all(node: Node) -> list[bytes]:
    """Everything until a long poll ends with nothing."""
    connection = await Connection.open(node, "broker")
    found: list[bytes] = []
    while True:
        request = fetch_request((TOPIC, 0, len(found)), max_wait_ms=LONG_POLL_MS)
        answer = await connection.ask(request, 11)
        batch = values(answer)[TOPIC, 0]
        if not batch:
            return found
        found += [value for value in batch if value is not None]


def trouble(simulation: Simulation, broker: SimulatedBroker, rng: random.Random) -> None:
    """One crash of the broker, by signal or by power, or a link that is cut for a while."""
    simulation.run_for(rng.uniform(0.001, 0.6))
    client = f"client {rng.randrange(CLIENTS)}"
    if rng.random() < 0.3:
        simulation.network.cut(client, "broker", both_ways=rng.random() < 0.5)
        simulation.run_for(rng.uniform(0.1, 60))
        simulation.network.heal(client, "broker")
        return
    broker.crash(power=rng.random() < 0.5)
    simulation.run_for(rng.uniform(0, 5))
    broker.start()


def run(seed: int) -> str:
    """One history from a seed, checked; its fingerprint."""
    rng = random.Random(seed)
    with Simulation(seed, latency_s=0.0005, jitter_s=0.002) as simulation:
        broker = SimulatedBroker(simulation, "broker", log_flush_before_ack="true")
        broker.start()
        nodes = [simulation.node(f"client {number}") for number in range(CLIENTS)]
        simulation.run_for(1)
        nodes[0].run(create_topic(nodes[0]))
        producers = [Producer(node) for node in nodes]
        tasks = [each.node.task(each.run()) for each in producers]
        for _ in range(CRASHES):
            trouble(simulation, broker, rng)
        simulation.run_until(lambda: all(task.done() for task in tasks), limit_s=3600)
        found = nodes[0].run(read_all(nodes[0]), limit_s=60)
        for producer in producers:
            name = producer.node.name.encode()
            own = [value for value in found if value.startswith(name)]
            unique = list(dict.fromkeys(own))
            assert unique == producer.acknowledged, f"seed {seed}: lost, reordered or made up"
        return simulation.digest


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_acknowledged_survives_crashes_and_cuts(seed: int) -> None:
    """Every acknowledged record is there, in its producer's order, whatever failed meanwhile."""
    run(seed)


def test_a_whole_history_can_be_repeated() -> None:
    """The same seed gives the same steps of broker, clients and network."""
    first = run(1)
    assert run(1) == first
    assert run(2) != first
