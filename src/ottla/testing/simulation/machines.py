"""The brokers of a simulated cluster: each a machine, and the process on it while it is alive.

A process is what `ottla server` composes: for a cluster on one host, whose machines share the
directory with the metadata tree and the controller's lock, and nothing else; or for one whose tree
is in a simulated ZooKeeper ensemble.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.broker import Broker
from ottla.broker.readiness import wait_unfenced
from ottla.cluster.state import NotController, RegistrationRefused
from ottla.log.checkpoints import CorruptCheckpoint, read_partition_metadata
from ottla.log.helper import JOBS
from ottla.metadata_store.tree import TreeError
from ottla.metrics import Metrics
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.shared_disk import SharingDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import Settings
from ottla.testing.simulation.clients import Place
from ottla.testing.simulation.connection import PORT

if TYPE_CHECKING:
    from ottla.cluster.controller import Controller
    from ottla.replica.partition import Partition
    from ottla.testing.simulation.tree import SimulatedEnsemble, SimulatedTree

DATA = "/data"
SHARED = "/cluster"
INTERNAL_PORT = 9093
LENGTH_COUNTS_FROM = 12  # in a record batch
CRC_COVERS_FROM = 21
RESTART_S = 0.3  # until a supervisor starts a process again that has ended by itself
SETTINGS: Mapping[str, object] = {
    "log.dirs": DATA,
    "listeners": f"PLAINTEXT://:{PORT},INTERNAL://:{INTERNAL_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
SHARED_DIRECTORY = {"ottla.cluster.directory": SHARED}
ZOOKEEPER = {"zookeeper.connect": "zookeeper:2181", "zookeeper.session.timeout.ms": 2000}
CANNOT_START = (OSError, TreeError, NotController, RegistrationRefused)

Changed = Callable[[int, "Partition"], object]
Note = Callable[[str], object]


def covered_by_crc(written: bytes) -> list[int]:
    """Where the batches of a write have bytes that their CRC covers.

    Base offset and leader epoch are outside of it: nobody can see that they are damaged.
    """
    found: list[int] = []
    at = 0
    while at + CRC_COVERS_FROM < len(written):
        end = at + LENGTH_COUNTS_FROM + int.from_bytes(written[at + 8 : at + 12], "big")
        found += range(at + CRC_COVERS_FROM, min(end, len(written)))
        at = end
    return found


class WatchedBroker(Broker):
    """A broker that reports each change of a replica before anything is answered because of it."""

    def __init__(self, settings: Settings, changed: Changed, **seams: Any) -> None:
        super().__init__(settings, **seams)
        self._changed = changed

    def _partition_changed(self, partition: Partition) -> None:
        self._changed(self.node_id, partition)
        super()._partition_changed(partition)


class Machine:
    """One broker's machine. `broker` is None while its process is not there, or is starting."""

    def __init__(
        self,
        simulation: Simulation,
        broker_id: int,
        settings: Mapping[str, object],
        shared: SimulatedDisk,
        *,
        changed: Changed,
        note: Note,
        ensemble: SimulatedEnsemble | None = None,
    ) -> None:
        """`ensemble`: where the tree is, instead of in the shared directory."""
        self.id = broker_id
        self._disk = SharingDisk(shared, SHARED)
        self.node = simulation.node(f"broker{broker_id}", disk=self._disk, jobs=JOBS)
        self.broker: Broker | None = None
        self.stopping = False
        tree = SHARED_DIRECTORY if ensemble is None else ZOOKEEPER
        self._settings = Settings.from_properties(
            {**SETTINGS, **tree, **settings, "node.id": broker_id}
        )
        self._ensemble = ensemble
        self._changed = changed
        self._note = note
        self._composed: Broker | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def alive(self) -> bool:
        return self.node.alive

    @property
    def ready(self) -> bool:
        """Whether its broker has started and is not being stopped."""
        return self.node.alive and self.broker is not None and not self.stopping

    @property
    def controller(self) -> Controller | None:
        """The controller, while it runs in this process."""
        service = self._composed.controller_service if self._composed is not None else None
        return service.controller if service is not None else None

    def start(self) -> None:
        """Begin to start the process; nothing happens if there is one."""
        if not self.node.alive:
            self.node.start()
            self.node.task(self._start())

    def first_start(self) -> None:
        """Begin to start the process that the node was made with."""
        self.node.task(self._start())

    def crash(self, *, power: bool = False) -> None:
        """End the process, or the machine with it; nothing happens if there is none."""
        if self.node.alive:
            self.node.crash(power=power)
        self.broker = self._composed = None
        self.stopping = False

    def wipe(self) -> None:
        """Replace the disk of a machine that is down by an empty one."""
        assert not self.node.alive
        self._disk = self.node.disk = self._disk.replacement()

    def flip_bits(self, rng: random.Random) -> None:
        """Damage un-synced bytes of each log of a machine that is down."""
        assert not self.node.alive
        disk = self._disk
        for folder in self.folders():
            for entry in disk.entries(f"{DATA}/{folder}"):
                if entry.name.endswith(".log"):
                    path = f"{DATA}/{folder}/{entry.name}"
                    disk.flip_unsynced_bit(path, rng, covered_by_crc)

    def folders(self) -> list[str]:
        """The names of the folders in its data directory."""
        return [each.name for each in self._disk.entries(DATA) if each.is_directory]

    def topic_id(self, folder: str) -> bytes | None:
        """The topic's id that a partition's folder has; None if it has none."""
        try:
            return read_partition_metadata(self._disk, f"{DATA}/{folder}")[0]
        except CorruptCheckpoint:
            return None

    def lose_lock(self, path: str) -> None:
        """Let another machine take a lock that this one believes to have."""
        self._disk.lose_lock(path)

    def stop(self) -> None:
        """Begin to stop cleanly; the process ends by itself."""
        if self.ready:
            self.stopping = True
            self.node.task(self._stop())

    def partition(self, place: Place) -> Partition | None:
        """The replica, if the broker has it opened."""
        if self.broker is None:
            return None
        return self.broker.partitions.by_name.get(place.topic, {}).get(place.number)

    @property
    def failure(self) -> str | None:
        """Why the broker has to be started again: a replica has failed, deleted since or not."""
        if self.broker is None:
            return None
        for partition in self.broker.partitions.all_opened():
            if partition.offline is not None:
                return partition.offline
        return "a replica has failed" if self.broker.replication.gave_up else None

    async def _start(self) -> None:
        node = self.node
        self._composed = broker = WatchedBroker(
            self._settings,
            self._changed,
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
            network=node.network,
            connect_tree=None if self._ensemble is None else self._connect,
        )
        endpoints = [
            Endpoint("PLAINTEXT", node.name, PORT),
            Endpoint("INTERNAL", node.name, INTERNAL_PORT),
        ]
        self._server = server = Server(
            node.network,
            node.clock,
            lambda *each: broker.dispatcher.handle(*each),
            endpoints,
            inter_broker_listener="INTERNAL",
        )
        server.open()
        try:
            await broker.start({each.name: (node.name, each.port) for each in endpoints})
            server.accept()
            self.broker = broker
            await wait_unfenced(broker, unless=lambda: self.stopping)
        except CANNOT_START as error:
            # As a supervisor does it: again, after a while.
            self._note(f"broker {self.id} cannot start: {error}")
            self.crash()
            self.node.simulation.nodes["operator"].clock.call_later(RESTART_S, self.start)

    async def _connect(self) -> SimulatedTree:
        assert self._ensemble is not None
        session_ms = self._settings.integer("zookeeper.session.timeout.ms")
        return await self._ensemble.connect(self.node, session_ms / 1000)

    async def _stop(self) -> None:
        """As `ottla server` stops."""
        broker, server = self.broker, self._server
        assert broker is not None
        try:
            await broker.controlled_shutdown()
            await server.drain()
            await broker.stop()
        except OSError as error:
            self._note(f"broker {self.id} cannot stop cleanly: {error}")
        server.close()
        self.crash()
