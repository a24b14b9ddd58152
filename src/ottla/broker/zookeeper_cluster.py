"""A broker of a cluster whose metadata tree is in ZooKeeper (`zookeeper.connect`).

cluster id    /cluster/id, made by the first broker that starts
session       one for this process; another one when it has expired
controller    whoever wrote /controller, which says where it is reached
presence      /brokers/ids/N, in this broker's own session

A broker campaigns when /controller is gone, or when the controller does not answer and dialling it
proves that its process is dead: it is replaced then, without waiting for its session. Two that try
at once check the same version of /controller_epoch, so one of them fails. A controller that is
only silent stays one until its session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.broker.broker_sessions import Dialled
from ottla.broker.dialling import dial
from ottla.broker.seen_tree import SeenTree
from ottla.broker.shared_cluster import controller_epoch
from ottla.cluster import nodes
from ottla.cluster.nodes import ControllerAddress
from ottla.cluster.state import NotController
from ottla.log.checkpoints import uuid_text
from ottla.metadata_store.tree import (
    ConnectionLoss,
    CorruptTree,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    TreeError,
)
from ottla.seams.waiting import pause, within

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import BrokerInfo
    from ottla.metadata_store.tree import Event, Tree
    from ottla.seams.network import Network

log = logging.getLogger("ottla.broker")

# Between two looks while there is no controller to follow, and while there is one. Watches tell
# of changes in between.
RETRY_S = 0.05
LOOK_EVERY_S = 5.0
# After another broker was faster; and after a controller that does not answer was found unchanged,
# twice as long each time: a process that is killed may take a connection before its port is closed.
LOOK_AGAIN_S = 0.01
# A request that is under way when the controller ends has so long; then the session is closed.
STOP_S_MAX = 1.0
COMPLAIN_EVERY = 100  # attempts


class ZooKeeperCluster:
    """What one broker does in the tree beside its controller, from its start to its stop."""

    def __init__(
        self,
        broker: Broker,
        network: Network,
        where: str,
        connect: Callable[[], Awaitable[Tree]],
        new_controller: Callable[[Tree, ControllerAddress], Controller],
    ) -> None:
        """`connect` opens a session. `new_controller` makes a controller and does not start it."""
        self.option = f"zookeeper.connect={broker.settings.zookeeper_connect}"
        self._broker = broker
        self._network = network
        self._where = where
        self._connect = connect
        self._new_controller = new_controller
        self.seen = SeenTree(broker.disk, broker.settings.data_directory, broker.clock, where)
        self._own = ControllerAddress("", 0, "")
        self._tree: Tree | None = None
        self._controller: Controller | None = None
        self._address: ControllerAddress | None = None
        self._info: BrokerInfo | None = None
        self._wanted = asyncio.Event()
        self._suspected = False  # the controller does not answer
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._problem: Exception | None = None  # why the last attempt came to nothing

    def controller_at(self) -> tuple[str, int] | None:
        """Where the controller is, as far as is known."""
        return None if self._address is None else (self._address.host, self._address.port)

    def look(self) -> None:
        """The controller does not answer: there may be another one, or it may be dead."""
        self._suspected = True
        self._wanted.set()

    async def cluster_id(self) -> str:
        """The cluster's id, drawn by its first broker. Raises TreeError."""
        tree = await self._session()
        drawn = uuid_text(self._broker.chance.uuid())
        while True:
            try:
                value, _ = await tree.get(nodes.CLUSTER_ID)
                return nodes.read_cluster_id(nodes.CLUSTER_ID, value)
            except NoNode:
                pass
            parent = nodes.CLUSTER_ID.rpartition("/")[0]
            operations: list[Operation] = [Create(nodes.CLUSTER_ID, nodes.cluster_id_value(drawn))]
            if await tree.exists(parent) is None:
                operations.insert(0, Create(parent))
            try:
                await tree.multi(operations)
            except NodeExists:
                pass  # another broker was first
            await tree.sync()

    async def start(self, endpoint: tuple[str, int]) -> None:
        """Return when there is a controller; this broker is reached by others at `endpoint`."""
        self._own = ControllerAddress(*endpoint, self._broker.incarnation.hex())
        self.seen.read()
        clock = self._broker.clock
        timeout_ms = self._broker.settings.integer("initial.broker.registration.timeout.ms")
        end_s = clock.monotonic() + timeout_ms / 1000
        while True:
            await self._attempt()
            if self._address is not None:
                break
            if clock.monotonic() >= end_s:
                reason = self._problem or "look at the logs of the other brokers"
                raise ConnectionLoss(
                    self._where, f"no controller within {timeout_ms / 1000:g} s; {reason}"
                )
            await pause(clock, RETRY_S)
        self._task = asyncio.create_task(self._keep_looking(), name="campaign")

    def registered(self, info: BrokerInfo) -> None:
        """The controller has accepted this broker: its node is this session's from now on."""
        self._info = info
        self._wanted.set()

    @property
    def is_new(self) -> bool:
        """Whether this broker's directory has followed no controller yet: its tree may be new."""
        return not self.seen.epoch

    async def close(self) -> None:
        """Be the controller no longer, and end the session: the others know at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._resign()
        await self._close_session()
        self.seen.close()

    # The session

    async def _session(self) -> Tree:
        if self._tree is None:
            tree = await self._connect()
            tree.when_expired(lambda: self._session_ended(tree))
            self._tree = tree
        return self._tree

    def _session_ended(self, tree: Tree) -> None:
        if self._tree is tree:
            self._tree = None
            self._wanted.set()

    async def _close_session(self) -> None:
        tree, self._tree = self._tree, None
        if tree is not None:
            await tree.close()

    # The campaign

    async def _keep_looking(self) -> None:
        clock = self._broker.clock
        pause_s = LOOK_EVERY_S
        while True:
            timer = clock.call_later(pause_s, self._wanted.set)
            await self._wanted.wait()
            timer.cancel()
            self._wanted.clear()
            before, asked = self._address, self._suspected
            self._suspected |= pause_s < LOOK_EVERY_S
            pause_s = LOOK_AGAIN_S if asked else min(2 * pause_s, LOOK_EVERY_S)
            try:
                await self._attempt()
            except CorruptTree as error:
                self._complain(error)
            except Exception:
                # Another broker may do better; this one goes on as a follower.
                log.exception("this broker cannot become the controller")
            if self._address != before:
                pause_s = LOOK_EVERY_S
            if self._address is None or self._tree is None:
                timer = clock.call_later(RETRY_S, self._wanted.set)

    async def _attempt(self) -> None:
        """Be the controller, or know the address of whoever is; and show this broker's presence."""
        suspected, self._suspected = self._suspected, False
        self._problem = None
        try:
            tree = await self._session()
            await self._find_controller(tree, suspected)
            await self._show_presence(tree)
        except CorruptTree:
            await self._resign()
            await self._close_session()  # /controller must not stay this broker's
            raise
        except (TreeError, NotController) as error:
            self._problem = error
            self._complain(error)
            if isinstance(error, SessionExpired):
                await self._close_session()
            self._wanted.set()
            another = isinstance(error, NotController)
            await pause(self._broker.clock, LOOK_AGAIN_S if another else RETRY_S)

    def _complain(self, error: Exception) -> None:
        if self._failures % COMPLAIN_EVERY == 0:
            log.error("the metadata tree at %s cannot be used for now: %s", self._where, error)
        self._failures += 1

    async def _find_controller(self, tree: Tree, suspected: bool) -> None:
        try:
            value, stat = await tree.get(nodes.CONTROLLER, watch=self._changed)
        except NoNode:
            if self._controller is not None:
                await self._resign()
            await self._become(tree, replace=False)
            return
        broker_id, address = nodes.read_controller(nodes.CONTROLLER, value)
        if self._controller is not None:
            if self._controller.active and stat.ephemeral_owner == tree.session:
                return
            await self._resign()
        if await self._is_gone(broker_id, address, suspected):
            await self._become(tree, replace=True)
        elif address is not None and address != self._address:
            log.info("broker %d is the controller", broker_id)
            self._address = address
            self._broker.end_controller()

    async def _is_gone(
        self, broker_id: int, address: ControllerAddress | None, suspected: bool
    ) -> bool:
        """Whether the process that wrote /controller is known to be dead, or to be this one."""
        if address is None:
            raise CorruptTree(
                nodes.CONTROLLER,
                f"broker {broker_id} is the controller and not one of Ottla's; use another path "
                "behind the hosts of zookeeper.connect",
            )
        if address.incarnation == self._own.incarnation:
            return True  # elected, without knowing: the answer was lost
        if address[:2] == self._own[:2]:
            if broker_id == self._broker.node_id:
                return True  # the address is this process's now
            # Dialled, this process would answer: only the session of the other one can tell.
            raise ConnectionLoss(
                nodes.CONTROLLER,
                f"broker {broker_id} is the controller, and has the address of this broker, "
                f"{address.host}:{address.port}; give each broker its own with listeners or "
                "advertised.listeners, unless that one is gone: then its session ends soon",
            )
        if not suspected:
            return False
        outcome = await dial(
            self._broker, self._network, address[:2], broker_id, bytes.fromhex(address.incarnation)
        )
        if outcome in (Dialled.REFUSED, Dialled.OTHER_INCARNATION):
            log.warning("the controller, broker %d, is dead (%s)", broker_id, outcome.name)
            return True
        return False

    async def _become(self, tree: Tree, *, replace: bool) -> None:
        await tree.sync()  # a server that lags behind would look like an earlier copy
        self.seen.check(await controller_epoch(tree), await controller_writes(tree))
        controller = self._new_controller(tree, self._own)
        await controller.start(replace)
        self._controller = controller
        controller.on_resigned.append(self._wanted.set)
        self._address = self._own
        self._failures = 0
        log.info("this broker is the controller, with epoch %d", controller.image.controller_epoch)
        self._broker.host_controller(controller)
        # Last: it may fail, and nobody would host a controller that is elected.
        await tree.exists(nodes.CONTROLLER, watch=self._changed)

    async def _resign(self) -> None:
        controller, self._controller = self._controller, None
        if controller is None:
            return
        self._address = None
        self._broker.end_controller()
        stopping = asyncio.ensure_future(controller.stop())
        if not await within(self._broker.clock, STOP_S_MAX, asyncio.shield(stopping)):
            await self._close_session()  # ZooKeeper does not answer: the request fails now
        await stopping

    def _changed(self, event: Event) -> None:
        self._wanted.set()

    # Presence

    async def _show_presence(self, tree: Tree) -> None:
        info = self._info
        if info is None:
            return
        path = nodes.broker_path(info.id)
        there = await tree.exists(path, watch=self._changed)
        if there is not None and there.ephemeral_owner == tree.session:
            return
        # Of a session of this process that has expired, or of a process before: the controller has
        # made sure that there is no other one.
        operations: list[Operation] = [] if there is None else [Delete(path)]
        value = nodes.broker_value(info, self._broker.clock.now_ms())
        await tree.multi([*operations, Create(path, value, ephemeral=True)])


async def controller_writes(tree: Tree) -> int:
    """How many writes controllers have made in a tree; 0 if it is new."""
    found = await tree.exists(nodes.OURS)
    return 0 if found is None else found.version
