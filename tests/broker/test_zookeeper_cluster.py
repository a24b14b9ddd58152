"""Brokers that share a tree with sessions: who is the controller, and what each loses when.

On the tree of the simulation, which `tests/metadata_store` holds to what ZooKeeper does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.broker import Broker
from ottla.broker.readiness import wait_unfenced
from ottla.broker.seen_tree import NOTE_EVERY_S
from ottla.cluster import nodes
from ottla.cluster.controller import Controller
from ottla.cluster.requests import NewTopic
from ottla.log.directories import DirectoryProblem
from ottla.log.helper import JOBS
from ottla.metadata_store.tree import (
    CHILDREN,
    ConnectionLoss,
    CorruptTree,
    Delete,
    Result,
    Watcher,
)
from ottla.metrics import Metrics
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.seams.simulated.simulation import Simulation
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.settings import Settings
from ottla.testing.simulation.tree import SimulatedEnsemble, SimulatedTree
from ottla.testing.simulation.tree_nodes import TreeNodes
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import INTERNAL_PORT, PORT, SETTINGS

SESSION_S = 6.0
# What is decided before it is over was not decided by a session.
BEFORE_A_SESSION_ENDS_S = 4.0


class Process:
    """One broker's machine, and the process on it."""

    def __init__(self, cluster: Brokers, number: int, name: str = "", advertised: str = "") -> None:
        self.number = number
        self.cluster = cluster
        name = name or f"broker{number}"
        self.advertised = advertised or name
        self.node = cluster.simulation.node(name, disk=SimulatedDisk(), jobs=JOBS)
        self.broker: Broker
        self.start()

    @property
    def name(self) -> str:
        return self.node.name

    def start(self) -> None:
        if not self.node.alive:
            self.node.start()
        self.starting = self.node.task(self._start())

    @property
    def started(self) -> bool:
        return self.starting.done()

    @property
    def controller(self) -> Controller | None:
        service = self.broker.controller_service
        return service.controller if self.node.alive and service is not None else None

    async def _start(self) -> None:
        node = self.node
        settings = {**SETTINGS, "node.id": self.number, "zookeeper.connect": "zookeeper:2181"}
        self.broker = Broker(
            Settings.from_properties(settings),
            clock=node.clock,
            disk=node.disk,
            chance=node.chance,
            background=node.background,
            metrics=Metrics(),
            network=node.network,
            connect_tree=lambda: self.cluster.ensemble.connect(node, SESSION_S),
        )
        endpoints = [
            Endpoint("PLAINTEXT", node.name, PORT),
            Endpoint("INTERNAL", node.name, INTERNAL_PORT),
        ]
        self.server = Server(
            node.network,
            node.clock,
            lambda *each: self.broker.dispatcher.handle(*each),
            endpoints,
            inter_broker_listener="INTERNAL",
        )
        self.server.open()
        await self.broker.start({each.name: (self.advertised, each.port) for each in endpoints})
        self.server.accept()
        await wait_unfenced(self.broker, lambda: False)

    async def stop(self) -> None:
        await self.broker.controlled_shutdown()
        await self.server.drain()
        await self.broker.stop()
        self.server.close()


class Brokers:
    """Three of them, started."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed, latency_s=0.0005)
        self.ensemble = SimulatedEnsemble(self.simulation)
        self.all = [Process(self, number) for number in (1, 2, 3)]
        self.wait(lambda: all(each.started for each in self.all))
        self.simulation.run_for(0.5)

    def wait(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        self.simulation.run_until(condition, limit_s=limit_s)

    @property
    def controllers(self) -> list[Process]:
        """Those that take themselves for the controller."""
        return [each for each in self.all if each.controller is not None]

    @property
    def controller(self) -> Process:
        (found,) = self.controllers
        return found

    def others(self, one: Process) -> list[Process]:
        return [each for each in self.all if each is not one]

    @property
    def epoch(self) -> int:
        return int(self.ensemble.nodes.get(nodes.CONTROLLER_EPOCH)[0])

    def owners(self) -> dict[str, int]:
        """The session of each broker's node."""
        tree = self.ensemble.nodes
        names = tree.children(nodes.BROKER_IDS)
        return {name: tree.get(f"{nodes.BROKER_IDS}/{name}")[1].ephemeral_owner for name in names}

    def create(self, through: Process, topic: str) -> int:
        async def ask() -> int:
            (outcome,) = await through.broker.controller.create_topics([NewTopic(topic, 1, 3)])
            return int(outcome.error_code)

        return through.node.run(ask(), limit_s=60)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_one_of_three_is_the_controller(brokers: Brokers) -> None:
    """Each has a node in a session of its own; the controller's is in the same session as that."""
    owners = brokers.owners()
    assert sorted(owners) == ["1", "2", "3"]
    assert len(set(owners.values())) == 3
    first = brokers.controller
    _, stat = brokers.ensemble.nodes.get(nodes.CONTROLLER)
    assert stat.ephemeral_owner == owners[str(first.number)]
    assert brokers.epoch == 1
    assert brokers.create(brokers.others(first)[0], "t") == ErrorCode.NONE
    brokers.simulation.run_for(60)
    assert brokers.controller is first
    assert brokers.owners() == owners
    brokers.simulation.close()


def test_a_dead_controller_is_replaced_before_its_session_ends(brokers: Brokers) -> None:
    """Dialling it proves its death: the others need not wait. It comes back as a follower, whose
    node is in its new session while the old one has not ended."""
    first = brokers.controller
    before = set(brokers.owners().values())
    brokers.create(first, "t")
    first.node.crash()
    brokers.wait(lambda: len(brokers.controllers) == 1, BEFORE_A_SESSION_ENDS_S)
    second = brokers.controller
    assert brokers.epoch == 2
    assert brokers.create(second, "u") == ErrorCode.NONE
    first.start()
    brokers.wait(lambda: first.started)
    brokers.simulation.run_for(0.5)
    assert brokers.controller is second
    assert before <= brokers.ensemble.sessions.keys()
    assert brokers.owners()[str(first.number)] not in before
    brokers.simulation.close()


def test_a_controller_that_dies_a_moment_after_its_connections_is_replaced_soon(
    brokers: Brokers,
) -> None:
    """A process that is killed may answer once more: it is dialled again within milliseconds, not
    when its next requests fail."""
    first = brokers.controller
    brokers.create(first, "t")

    async def end_connections() -> None:
        for connection in list(first.server.connections):
            connection.close("a test closes it")

    first.node.run(end_connections())
    brokers.simulation.run_for(0.005)
    assert brokers.controllers == [first]
    first.node.crash()
    brokers.wait(lambda: len(brokers.controllers) == 1, limit_s=0.08)
    brokers.simulation.close()


@pytest.mark.parametrize("seed", range(3))
def test_who_takes_over_with_an_old_tree_knows_what_was_decided(seed: int) -> None:
    """The sessions of all but the controller are with a member of the ensemble that is behind."""
    brokers = Brokers(seed)
    first = brokers.controller
    for tree in brokers.ensemble.sessions.values():
        if tree.machine is not first.node:
            tree.fall_behind()
    assert brokers.create(first, "t") == ErrorCode.NONE
    first.node.crash()
    brokers.wait(lambda: len(brokers.controllers) == 1)
    second = brokers.controller.controller
    assert second is not None
    assert "t" in second.image.topics
    assert brokers.epoch == 2
    brokers.simulation.close()


def test_a_controller_that_stops_cleanly_is_followed_at_once(brokers: Brokers) -> None:
    """It ends its session: its nodes are gone, and the watches of the others fire."""
    first = brokers.controller
    first.node.run(first.stop(), limit_s=30)
    first.node.crash()
    brokers.wait(lambda: len(brokers.controllers) == 1, BEFORE_A_SESSION_ENDS_S)
    assert str(first.number) not in brokers.owners()
    assert brokers.epoch == 2
    brokers.simulation.close()


def test_a_suspended_controller_is_replaced_when_its_session_ends(brokers: Brokers) -> None:
    """Not before: it may go on. When it does later, it resigns and follows the next one."""
    first = brokers.controller
    brokers.create(first, "t")
    first.node.pause()
    brokers.simulation.run_for(BEFORE_A_SESSION_ENDS_S)
    assert brokers.controllers == [first]
    brokers.wait(lambda: len(brokers.controllers) == 2, 30)
    (second,) = [each for each in brokers.controllers if each is not first]
    assert brokers.epoch == 2
    assert brokers.create(second, "u") == ErrorCode.NONE
    first.node.resume()
    brokers.wait(lambda: brokers.controllers == [second], 30)
    brokers.wait(lambda: "u" in first.broker.image.topics, 30)
    brokers.wait(lambda: len(set(brokers.owners().values())) == 3, 30)
    brokers.simulation.close()


def test_a_second_process_that_is_the_controller_waits_for_the_session_of_the_first(
    brokers: Brokers,
) -> None:
    """The machine of the controller is silent; another one with its id is the next controller."""
    first = brokers.controller
    for other in brokers.others(first):
        other.node.crash()
    first.node.pause()
    second = Process(brokers, first.number, "elsewhere")
    brokers.wait(lambda: second.started)
    assert second.starting.exception() is None
    assert second.controller is not None
    known = second.controller.image.brokers[first.number]
    assert known.active
    assert known.incarnation == second.broker.incarnation
    brokers.simulation.close()


def test_a_controller_that_loses_only_the_tree_is_replaced(brokers: Brokers) -> None:
    """Brokers still reach it, but its session ends: it can write nothing, and gives up when it
    reaches the tree again."""
    first = brokers.controller
    brokers.create(first, "t")
    brokers.ensemble.cut(first.name)
    brokers.wait(lambda: len(brokers.controllers) == 2, 30)
    (second,) = [each for each in brokers.controllers if each is not first]
    assert brokers.create(brokers.others(first)[0], "u") == ErrorCode.NONE
    brokers.ensemble.heal(first.name)
    brokers.wait(lambda: brokers.controllers == [second], 30)
    brokers.wait(lambda: "u" in first.broker.image.topics, 30)
    brokers.simulation.close()


def test_the_tree_is_away_and_data_goes_on(brokers: Brokers) -> None:
    """While no machine reaches the ensemble, nothing changes; afterwards the same one leads, or
    another, and changes that waited are made."""
    first = brokers.controller
    brokers.create(first, "t")
    for each in brokers.all:
        brokers.ensemble.cut(each.name)
    asked = first.node.task(first.broker.controller.create_topics([NewTopic("u", 1, 3)]))
    brokers.simulation.run_for(3)
    assert not asked.done()
    assert all(len(each.broker.image.topics["t"].partitions[0].isr) == 3 for each in brokers.all)
    for each in brokers.all:
        brokers.ensemble.heal(each.name)
    brokers.wait(lambda: all("u" in each.broker.image.topics for each in brokers.all), 30)
    assert brokers.controller is first
    brokers.simulation.close()


def test_brokers_stop_while_the_tree_is_away(brokers: Brokers) -> None:
    """The controller too, though nothing can be written: within the time that processes are given
    before they are killed."""
    brokers.create(brokers.controller, "t")
    for each in brokers.all:
        brokers.ensemble.cut(each.name)
    for each in brokers.all:
        each.node.run(each.stop(), limit_s=9)
        each.node.crash()
    brokers.simulation.close()


def test_a_broker_whose_session_ends_shows_itself_again(brokers: Brokers) -> None:
    """In a new session; it keeps its rights, and no leader moves."""
    first = brokers.controller
    brokers.create(first, "t")
    (one, _) = brokers.others(first)
    before = brokers.owners()
    epoch = one.broker.epoch
    session = before[str(one.number)]
    brokers.ensemble.expire(brokers.ensemble.sessions[session])
    brokers.wait(lambda: brokers.owners().get(str(one.number), session) != session, 10)
    assert one.broker.image.brokers[one.number].epoch == epoch
    assert not one.broker.image.brokers[one.number].fenced
    brokers.simulation.close()


@pytest.mark.parametrize("seed", range(5))
def test_connections_lost_during_an_election_leave_one_controller(seed: int) -> None:
    """Whether the election took place is not known then; the next look at the tree tells."""
    brokers = Brokers(seed)
    rng = brokers.simulation.stream("cuts")
    for _ in range(4):
        first = brokers.controller
        first.node.crash()
        for _ in range(6):
            brokers.simulation.run_for(rng.random() * 0.05)
            for tree in list(brokers.ensemble.sessions.values()):
                tree.lose_connection()
        brokers.wait(lambda: len(brokers.controllers) == 1, BEFORE_A_SESSION_ENDS_S + SESSION_S)
        brokers.simulation.run_for(1)
        assert len(brokers.controllers) == 1
        first.start()
        brokers.wait(lambda first=first: first.started)  # type: ignore[misc]
    brokers.simulation.close()


def test_an_elected_controller_is_hosted_though_it_cannot_be_watched(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost right after the election: the others must find a controller there."""
    exists, lost = SimulatedTree.exists, []

    async def lose_once(tree: SimulatedTree, path: str, watch: Watcher | None = None) -> object:
        if path == nodes.CONTROLLER and not lost:
            lost.append(path)
            raise ConnectionLoss(path, "the connection was lost")
        return await exists(tree, path, watch)

    monkeypatch.setattr(SimulatedTree, "exists", lose_once)
    brokers.controller.node.crash()
    brokers.wait(lambda: bool(brokers.controllers), BEFORE_A_SESSION_ENDS_S)
    assert lost


def test_lost_connections_do_not_add_up_watches(brokers: Brokers) -> None:
    """All watches fire each time; the controller looks at what operators ask for once."""
    (tree,) = brokers.ensemble.sessions_of(brokers.controller.node)
    counts = []
    for _ in range(4):
        tree.lose_connection()
        brokers.simulation.run_for(2)
        watches = brokers.ensemble.take_watches(tree)
        counts.append(len(watches))
        for watch, event in watches:
            brokers.ensemble.watch(tree, event.path, watch, event.kind == CHILDREN)
    assert counts == counts[:1] * 4
    brokers.simulation.close()


def test_after_a_write_without_an_answer_the_controller_reads_what_is_there(
    brokers: Brokers,
) -> None:
    """Also from a member of the ensemble that has not got the write yet: it is in the image."""
    first = brokers.controller
    (tree,) = brokers.ensemble.sessions_of(first.node)

    def lost(write: Callable[[], list[Result]]) -> list[Result]:
        tree.on_write = None
        before = brokers.ensemble.nodes.copy()
        write()
        tree.lose_connection()
        tree.fall_behind(before)
        raise ConnectionLoss("/")

    tree.on_write = lost
    assert brokers.create(first, "t") == ErrorCode.KAFKA_STORAGE_ERROR
    brokers.simulation.run_for(2)
    assert "t" in first.broker.image.topics
    brokers.simulation.close()


def test_after_zookeepers_data_is_lost_the_option_is_named() -> None:
    """A new tree draws another cluster id, which no directory of the old one belongs to."""
    cluster = Brokers()
    one = cluster.all[0]
    for each in cluster.all:
        each.node.crash()
    cluster.simulation.run_for(2 * SESSION_S)
    cluster.ensemble.nodes = TreeNodes()
    one.start()
    cluster.wait(lambda: one.starting.done())
    error = one.starting.exception()
    assert isinstance(error, DirectoryProblem)
    assert ", which is that of zookeeper.connect=zookeeper:2181; " in str(error)
    assert "is it the right directory, and is zookeeper.connect right?" in str(error)


def test_an_earlier_copy_of_the_tree_is_refused_though_the_controller_was_the_same() -> None:
    """ZooKeeper's data from before a change, put back: leader epochs and ISRs in it are too old.

    A broker that has seen more does not become its controller, nor follow one that became it.
    """
    cluster = Brokers()
    before = cluster.ensemble.nodes.copy()
    assert cluster.create(cluster.all[0], "t") == ErrorCode.NONE
    epoch = cluster.epoch
    cluster.simulation.run_for(2 * NOTE_EVERY_S)
    assert cluster.epoch == epoch
    for each in cluster.all:
        each.node.crash()
    cluster.simulation.run_for(2 * SESSION_S)
    before.write([Delete(nodes.CONTROLLER)], 0)
    cluster.ensemble.nodes = before
    one = cluster.all[0]
    one.start()
    cluster.wait(lambda: one.starting.done())
    with pytest.raises(CorruptTree, match=r"older than this broker's data \(write .* seen "):
        one.starting.result()
    # One whose directory is new has seen nothing.
    new = Process(cluster, 4)
    cluster.wait(lambda: new.started)
    other = cluster.all[1]
    other.start()
    cluster.wait(lambda: other.starting.done())
    with pytest.raises(CorruptTree, match=r"older than this broker's data \(write .* seen "):
        other.starting.result()
    cluster.simulation.close()


def test_brokers_with_one_address_do_not_replace_each_other() -> None:
    """127.0.0.1, say, on two machines: the second says so, and the first is left alone."""
    brokers = Brokers()
    first = brokers.controller
    epoch = brokers.epoch
    second = Process(brokers, 4, advertised=first.name)
    brokers.wait(lambda: second.started, limit_s=120.0)
    with pytest.raises(ConnectionLoss, match=f"has the address of this broker, {first.name}:9093"):
        second.starting.result()
    assert brokers.controller is first
    assert brokers.epoch == epoch
    brokers.simulation.close()


def test_another_broker_at_the_address_of_a_dead_one_waits_for_its_session() -> None:
    """The machine of a controller that nobody has replaced is used for another broker."""
    brokers = Brokers()
    dead = brokers.controller
    for each in brokers.all:
        each.node.crash()
    replacement = Process(brokers, 4, name="another", advertised=dead.name)
    brokers.all = [replacement]
    brokers.simulation.run_for(BEFORE_A_SESSION_ENDS_S)
    assert not brokers.controllers
    brokers.wait(lambda: bool(brokers.controllers))
    brokers.simulation.close()
