"""A cluster of real brokers on simulated machines, with its controller in one of them.

    with Cluster(3) as cluster:
        cluster.create("t", 1, 3, through=2)
        cluster.ask(3, request, version)

Broker 1 hosts the controller unless `host` moves it. Time passes only while a test waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.broker import TREE_FILE, Broker
from ottla.broker.tokens import token_options
from ottla.cluster.controller import Controller
from ottla.cluster.image import PartitionImage
from ottla.cluster.state import Options
from ottla.log.helper import JOBS
from ottla.metadata_store.local import LocalTree
from ottla.metrics import Metrics
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Node, Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import ConfigRules, Settings
from ottla.testing.simulation.connection import PORT, Connection
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.harness import DATA, fetch_request, produce_request, values

SHARED = "/shared"
INTERNAL_PORT = 9093
PATIENCE_S = 60.0  # virtual
SETTINGS: dict[str, object] = {
    "log.dirs": DATA,
    "min.insync.replicas": 2,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 1000,
    "controller.socket.timeout.ms": 1000,
    "listeners": f"PLAINTEXT://:{PORT},INTERNAL://:{INTERNAL_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


class SlowFeed:
    """Delays what a broker's polls return; `delayed` counts the changes."""

    def __init__(self, broker: Broker, delay_s: float) -> None:
        self.delayed = 0
        self._delay_s = delay_s
        channel: Any = broker.controller
        self._poll = channel.poll
        channel.poll = self.poll

    async def poll(self, *position: int) -> Any:
        update = await self._poll(*position)
        if update:
            self.delayed += 1
            await asyncio.sleep(self._delay_s)
        return update


class ClusterBroker:
    """One broker: its machine, and its process while it is alive."""

    def __init__(self, cluster: Cluster, broker_id: int, name: str = "") -> None:
        self.id = broker_id
        self.cluster = cluster
        name = name or f"broker{broker_id}"
        self.node = cluster.simulation.node(name, disk=SimulatedDisk(), jobs=JOBS)
        self.broker: Broker
        self.server: Server
        self.controller: Controller | None = None
        self.starting: asyncio.Task[None] | None = None
        self.settings: dict[str, object] = {}  # besides those of the cluster, from its next start

    @property
    def name(self) -> str:
        return self.node.name

    def start(self) -> None:
        if not self.node.alive:
            self.node.start()
        self.starting = self.node.task(self._start())

    def crash(self, *, power: bool = False) -> None:
        self.node.crash(power=power)
        self.controller = None

    @property
    def started(self) -> bool:
        return self.starting is not None and self.starting.done() and self.node.alive

    async def _start(self) -> None:
        node = self.node
        settings = Settings.from_properties(
            {**SETTINGS, **self.cluster.settings, **self.settings, "node.id": self.id}
        )
        self.broker = Broker(
            settings,
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
            network=node.network,
            controller_at=self.cluster.controller_at,
        )
        endpoints = [
            Endpoint("PLAINTEXT", node.name, PORT),
            Endpoint("INTERNAL", node.name, INTERNAL_PORT),
        ]
        self.server = server = Server(
            node.network,
            node.clock,
            lambda *each: self.broker.dispatcher.handle(*each),
            endpoints,
            inter_broker_listener="INTERNAL",
        )
        server.open()
        if self.cluster.controller_id == self.id:
            await self.host()
        await self.broker.start({each.name: (node.name, each.port) for each in endpoints})
        server.accept()

    def close_connections(self, host: str) -> None:
        """Lose all connections that a host has opened to this broker."""

        async def close() -> None:
            for connection in list(self.server.connections):
                if connection.peer_host == host:
                    connection.close("a test closes it")

        self.node.run(close())

    async def stop(self) -> None:
        """As `ottla server` stops."""
        await self.broker.controlled_shutdown()
        await self.server.drain()
        await self.broker.stop()
        self.server.close()

    async def host(self) -> None:
        """Start the controller in this process, on the tree that all machines share."""
        node = self.node
        tree = await LocalTree.open(self.cluster.shared, f"{SHARED}/{TREE_FILE}", node.background)
        controller = Controller(
            tree,
            node.clock,
            node.chance,
            Options(
                node_id=self.id,
                min_insync_replicas=2,
                default_replication_factor=3,
                supported_features=self.broker.features,
                tokens=token_options(self.broker.settings),
            ),
            ConfigRules(lambda: self.broker.settings),
            self.broker.election_metrics,
        )
        await controller.start(replace=True)
        self.controller = controller
        self.broker.host_controller(controller)


class Cluster:
    """So many brokers, numbered from 1, started."""

    def __init__(self, brokers: int = 3, *, seed: int = 1, **settings: object) -> None:
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.simulation = Simulation(seed, latency_s=0.0005)
        self.shared = SimulatedDisk()
        self.shared.mkdir(SHARED)
        self.controller_id = 1
        self.brokers = {each: ClusterBroker(self, each) for each in range(1, brokers + 1)}
        self.client = self.simulation.node("client")
        for broker in self.brokers.values():
            broker.start()
        self.wait(lambda: all(each.started for each in self.brokers.values()))
        self.wait(lambda: not any(each.fenced for each in self.image(1).brokers.values()))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.simulation.close()

    def controller_at(self) -> tuple[str, int] | None:
        return f"broker{self.controller_id}", INTERNAL_PORT

    @property
    def controller(self) -> Controller:
        found = self.brokers[self.controller_id].controller
        assert found is not None
        return found

    def image(self, broker_id: int) -> Any:
        return self.brokers[broker_id].broker.image

    def partition(self, topic: str, index: int = 0, seen_by: int = 1) -> PartitionImage:
        found: PartitionImage = self.image(seen_by).partition(topic, index)
        return found

    def wait(self, condition: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
        """Let time pass until it is so."""
        self.simulation.run_until(condition, limit_s=limit_s)

    def run(self, node: Node, coroutine: Any, limit_s: float = PATIENCE_S) -> Any:
        return node.run(coroutine, limit_s=limit_s)

    def ask(self, broker_id: int, request: Any, version: int, port: int = PORT) -> Any:
        """A client's request on a connection of its own."""

        async def asked() -> Any:
            connection = await Connection.open(self.client, f"broker{broker_id}", port)
            try:
                return await connection.ask(request, version)
            finally:
                connection.close()

        return self.run(self.client, asked())

    def create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        *,
        through: int,
        replicas: Sequence[int] = (),
    ) -> Any:
        """Create a topic; `replicas` are those of its only partition."""
        assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else replication_factor,
            assignments=assignments if replicas else [],
        )
        [result] = self.ask(through, CreateTopicsRequest(topics=[wanted]), 7).topics
        return result

    async def create_task(self, topic: str, through: int) -> Any:
        """The same in the background, with the defaults of the cluster."""
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=2)
        connection = await Connection.open(self.client, f"broker{through}")
        return await connection.ask(CreateTopicsRequest(topics=[wanted]), 7)

    def host(self, broker_id: int) -> None:
        """Start the controller on another broker; the one before must be dead."""
        self.controller_id = broker_id
        self.run(self.brokers[broker_id].node, self.brokers[broker_id].host())

    def slow_feed(self, broker_id: int, delay_s: float) -> SlowFeed:
        """From now on a broker gets the controller's changes so much later."""
        return SlowFeed(self.brokers[broker_id].broker, delay_s)

    def images_agree(self, broker_ids: Sequence[int]) -> bool:
        return len({self.image(each).number for each in broker_ids}) == 1


def produce(cluster: Cluster, leader: int, value: str) -> int:
    """Produce a record with acks=all; its offset."""
    batch = write_batch([Record(value.encode(), timestamp=cluster.client.clock.now_ms())])
    answer = cluster.ask(leader, produce_request("t", 0, batch), 9)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code).name
    return int(result.base_offset)


def read(cluster: Cluster, leader: int) -> list[str]:
    """All records of the partition."""
    answer = cluster.ask(leader, fetch_request(("t", 0, 0)), 11)
    return [(value or b"").decode() for value in values(answer)["t", 0]]


def led_by(cluster: Cluster, broker_id: int, seen_by: int) -> bool:
    found = cluster.image(seen_by).partition("t", 0)
    return found is not None and bool(found.leader == broker_id)
