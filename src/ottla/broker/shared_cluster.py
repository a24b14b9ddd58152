"""A broker of a cluster on one host: its part in the shared directory (`ottla.cluster.directory`).

cluster id    from the directory, before the broker's own directories are used
controller    this broker while it has the directory's lock (`campaign.py`), else another
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.campaign import RETRY_S, Campaign, Leadership
from ottla.broker.seen_tree import SeenTree
from ottla.cluster import nodes
from ottla.log.checkpoints import uuid_text
from ottla.metadata_store.local import LocalTree
from ottla.metadata_store.shared import ControllerAddress, SharedDirectory
from ottla.metadata_store.tree import NoNode
from ottla.seams.waiting import pause

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import BrokerInfo
    from ottla.metadata_store.tree import Tree


class SharedCluster:
    """What one broker does in the shared directory, from its start to its stop."""

    def __init__(
        self, broker: Broker, path: str, new_controller: Callable[[Tree], Controller]
    ) -> None:
        """`new_controller` makes a controller of this broker on a tree, and does not start it."""
        self.option = f"ottla.cluster.directory={path}"  # where the cluster's id is
        self._broker = broker
        self._new_controller = new_controller
        self._shared = SharedDirectory(broker.disk, path)
        self.seen = SeenTree(
            broker.disk, broker.settings.data_directory, broker.clock, self._shared.tree_path
        )
        self._endpoint = ("", 0)
        self._campaign = Campaign(
            self._shared,
            broker.clock,
            lead=self._lead,
            own_address=self._own_address,
            on_change=self._changed,
            session_timeout_s=broker.settings.integer("broker.session.timeout.ms") / 1000,
        )

    def controller_at(self) -> tuple[str, int] | None:
        """Where the controller is, as far as is known."""
        return self._campaign.address

    def look(self) -> None:
        """The controller does not answer: there may be another one, or it may be this broker."""
        self._campaign.look()

    async def cluster_id(self) -> str:
        """The cluster's id, drawn by its first broker. Raises TreeError."""
        self._shared.prepare()
        drawn = uuid_text(self._broker.chance.uuid())
        while (found := self._shared.cluster_id(drawn)) is None:
            await pause(self._broker.clock, RETRY_S)
        return found

    async def start(self, endpoint: tuple[str, int]) -> None:
        """Return when there is a controller; this broker is reached by others at `endpoint`."""
        self._endpoint = endpoint
        self.seen.read()
        timeout_ms = self._broker.settings.integer("initial.broker.registration.timeout.ms")
        await self._campaign.start(timeout_ms / 1000)

    def registered(self, info: BrokerInfo) -> None:
        """The controller has accepted this broker, and shows in the tree that it is there."""

    @property
    def is_new(self) -> bool:
        """Whether this broker's directory has followed no controller yet: its tree may be new."""
        return not self.seen.epoch

    async def close(self) -> None:
        """Be the controller no longer."""
        await self._campaign.close()
        self.seen.close()

    async def _lead(self, path: str) -> Leadership:
        broker = self._broker
        tree = await LocalTree.open(broker.disk, path, broker.background)
        controller = self._new_controller(tree)
        try:
            controller.tree_writes = lambda: tree.writes
            self.seen.check(await controller_epoch(tree), tree.writes)
            await controller.start()
            controller.tree_opened_at = await writes_before_election(tree)
        except BaseException:
            await controller.stop()
            await tree.close()
            raise
        return Leadership(controller, tree)

    def _own_address(self, epoch: int) -> ControllerAddress:
        incarnation = self._broker.incarnation.hex()
        return ControllerAddress(self._broker.node_id, *self._endpoint, incarnation, epoch)

    def _changed(self, controller: Controller | None) -> None:
        if controller is not None:
            self._broker.host_controller(controller)
        else:
            self._broker.end_controller()


async def controller_epoch(tree: Tree) -> int:
    """The epoch of the last controller of a tree; 0 if it is new."""
    try:
        value, _ = await tree.get(nodes.CONTROLLER_EPOCH)
    except NoNode:
        return 0
    return nodes.read_controller_epoch(value)


async def writes_before_election(tree: Tree) -> int:
    """How many writes a tree had had when its controller was elected. Raises NoNode without one.

    More than when it was opened, if the controller before went on until then: others may have seen
    those writes, and would take the tree for an earlier copy.
    """
    _, stat = await tree.get(nodes.CONTROLLER)
    return stat.created - 1
