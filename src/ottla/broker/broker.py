"""The broker: its parts put together, started and stopped.

    start   lock and load the data directory, open the metadata tree, become the controller,
            register, adopt unknown topics, apply the cluster's image
    stop    answer waiting requests, stop following the controller, sync and close the logs, mark
            the stop clean

The outside world (clock, disk, chance, background work) is handed in; the network stays outside
altogether: the server calls `dispatcher.handle` with each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ottla.broker import controller_metrics
from ottla.broker.adoption import adopt_topics
from ottla.broker.authorization.choice import rules_of
from ottla.broker.client_quotas import Quotas
from ottla.broker.controller_options import controller_options
from ottla.broker.coordinators import Coordinators
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fenced_lately import FencedLately
from ottla.broker.found_folders import finish_deletions, keep_configs, miss_partitions
from ottla.broker.image_waits import ImageWaits
from ottla.broker.leader_confirmation import LeaderConfirmations
from ottla.broker.lost_brokers import LostBrokers
from ottla.broker.metadata_answers import MetadataAnswers
from ottla.broker.metadata_applier import MetadataApplier, first_image
from ottla.broker.metadata_checkpoint import (
    METADATA_CHECKPOINT,
    MetadataCheckpoint,
    TreeState,
    read_metadata_checkpoint,
    write_metadata_checkpoint,
)
from ottla.broker.network_peers import NetworkPeers
from ottla.broker.partitions import Partitions
from ottla.broker.peers import LocalPeers, Peers
from ottla.broker.process_checkpoint import ProcessCheckpoint
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.repairs import Repairs
from ottla.broker.replica_selection import RACK_AWARE
from ottla.broker.replication import Replication
from ottla.broker.sessions import FetchSessionCache
from ottla.broker.used_producer_ids import skip_used_ids
from ottla.cluster.controller import Controller
from ottla.cluster.election_metrics import ElectionMetrics
from ottla.cluster.features import supported_up_to, understood
from ottla.cluster.image import ZERO_ID, BrokerInfo, ClusterImage, Endpoint, PartitionImage
from ottla.cluster.nodes import uuid_bytes
from ottla.cluster.requests import Refusal
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.metadata_store.local import LocalTree
from ottla.replica.group_commit import GroupCommit
from ottla.replica.partition import Partition
from ottla.replica.purgatory import Purgatory
from ottla.settings import ConfigRules
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.controller_service import ControllerService
    from ottla.broker.remote_controller import RemoteController
    from ottla.broker.shared_cluster import SharedCluster
    from ottla.broker.zookeeper_cluster import ZooKeeperCluster
    from ottla.cluster.channel import ControllerChannel
    from ottla.cluster.nodes import ControllerAddress
    from ottla.metadata_store.tree import Tree
    from ottla.metrics import Metrics
    from ottla.seams.background import Background
    from ottla.seams.chance import Chance
    from ottla.seams.clock import Clock
    from ottla.seams.disk import Disk
    from ottla.seams.network import Network
    from ottla.settings import LogConfig, Settings

log = logging.getLogger("ottla.broker")

TREE_FILE = "coordination.db"


class Broker:
    """One broker. Nothing outside it is touched before `start`."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        disk: Disk,
        chance: Chance,
        background: Background,
        metrics: Metrics,
        network: Network | None = None,
        channel: ControllerChannel | None = None,
        controller_at: Callable[[], tuple[str, int] | None] | None = None,
        connect_tree: Callable[[], Awaitable[Tree]] | None = None,
    ) -> None:
        """`network` and `controller_at`: the other brokers of a cluster of several, and where their
        controller is, as far as is known; or `channel`, another way to it. `connect_tree` opens a
        session with the tree of `zookeeper.connect`.

        Without them the broker is a cluster of its own, with the controller in this process.
        """
        self._base_settings = settings
        self.settings = settings
        self.node_id = settings.node_id
        # What this process supports, and the levels of our own feature among it.
        self.features = supported_up_to(settings.integer("ottla.metadata.version.max"))
        self.levels = understood(self.features)
        # How many bytes of records one fetch may be answered with; not a dynamic config.
        self.fetch_bytes_max = settings.integer("fetch.max.bytes")
        # Whether consumers that name their rack are sent to a replica there.
        self.selects_replicas = settings.values["replica.selector.class"] == RACK_AWARE
        self.clock = clock
        self.disk = disk
        self.chance = chance
        self.background = background
        self.metrics = metrics
        self.election_metrics = ElectionMetrics(metrics)
        controller_metrics.watch(self)
        # Called with the settings in force whenever dynamic configs may have changed.
        self.on_configured: list[Callable[[Settings], object]] = []
        # What is wrong with settings that an operator wants for this broker; None: nothing.
        self.config_checks: list[Callable[[Settings], str | None]] = []
        # The image that requests are answered from, and the one being applied, if any.
        self.image = ClusterImage()
        self.next_image = self.image
        self.purgatory = Purgatory(clock)
        self.group_commit: GroupCommit | None = None
        if settings.flag("log.flush.before.ack"):
            self.group_commit = GroupCommit(clock, background)
        self.partitions = Partitions(self._open_partition)
        self.sessions = FetchSessionCache(
            clock, chance, settings.integer("max.incremental.fetch.session.cache.slots")
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.coordinators = Coordinators(self)
        self.fenced_lately = FencedLately(clock.monotonic)
        self.metadata_answers = MetadataAnswers(self.fenced_lately.ids)
        self.lost_brokers = LostBrokers(clock.monotonic)
        self.image_waits = ImageWaits(self)
        self.rules = rules_of(self)
        self.quotas = Quotas(settings, clock, metrics)
        self.dispatcher = Dispatcher(self)
        self.local_peers = LocalPeers(self)
        self.peers: Peers = self.local_peers
        # The part of this broker in a cluster that shares a directory, or ZooKeeper.
        self.shared = self._join(network, connect_tree)
        if self.shared is not None:
            controller_at = self.shared.controller_at
        self._remote_controller: RemoteController | None = None
        if network is not None:
            self.peers = NetworkPeers(self, network, self.peers)
            if controller_at is not None:
                from ottla.broker.remote_controller import RemoteController

                channel = self._remote_controller = RemoteController(self, network, controller_at)
        self._network = network
        self.in_cluster = network is not None
        # The controller of the cluster, while it runs in this process: see `host_controller`.
        self.controller_service: ControllerService | None = None
        self._channel = channel
        self.replication = Replication(self, channel)
        self.repairs = Repairs(self)
        self.leader_confirmations = LeaderConfirmations(self)
        self.logs: LogManager
        # Cleared while the logs are loaded: a load that is given up looks like a crash to the next
        # start. At other times a start may be cancelled, for it may wait for other processes.
        self.start_may_end = asyncio.Event()
        self.start_may_end.set()
        self.controller: ControllerChannel
        self._tree: LocalTree
        self._tree_identity = 0
        self._directories: dict[str, str] = {}  # path by directory id
        # Partitions, by topic id, that may lie in a data directory which is missing.
        self.missing: set[tuple[bytes, int]] = set()
        self.applier: MetadataApplier | None = None  # from its start on
        self.epoch = -1  # rises with each registration
        self.incarnation = ZERO_ID  # of this process, drawn at the start
        self.processes = ProcessCheckpoint(self)
        # What must be closed again, in reverse order, however far a start has come.
        self._opened = AsyncExitStack()

    def _join(
        self, network: Network | None, connect_tree: Callable[[], Awaitable[Tree]] | None
    ) -> SharedCluster | ZooKeeperCluster | None:
        settings = self.settings
        if not settings.in_cluster:
            return None
        assert network is not None, "the brokers of a cluster need a network"
        # Imported here: a broker by itself needs none of it.
        if settings.cluster_directory is not None:
            from ottla.broker.shared_cluster import SharedCluster

            return SharedCluster(self, settings.cluster_directory, self._new_controller)
        from ottla.broker.zookeeper_cluster import ZooKeeperCluster

        assert connect_tree is not None, "the brokers of a cluster need a tree"
        where = f"ZooKeeper {settings.zookeeper_connect}"
        return ZooKeeperCluster(self, network, where, connect_tree, self._new_controller)

    async def start(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Start all parts; `endpoints` are the advertised address of each listener."""
        try:
            await self._start(endpoints)
        except BaseException:
            await self._opened.aclose()
            raise

    async def _start(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        settings = self.settings
        self.incarnation = self.chance.uuid()
        self.logs = LogManager(
            settings.data_directories,
            disk=self.disk,
            clock=self.clock,
            background=self.background,
            chance=self.chance,
            settings=settings,
            config_of=self.log_config,
            node_id=self.node_id,
        )
        self.logs.high_watermark_of = self._high_watermark_of
        self.logs.replicated = lambda: self.replication.has_partitions
        self.logs.moves.on_replaced = self.partitions.log_replaced
        self.logs.moves.on_released = self.partitions.log_released
        self.logs.topic_configs_of = lambda topic: self.next_image.configs_of(topic)
        self.metrics.gauge(
            "ottla_log_SetAsideBytes",
            lambda: self.logs.set_aside_bytes,
            "Bytes that recovery cut from logs at this start and kept in .corrupt files.",
        )
        cluster_id, option = None, ""
        if self.shared is not None:
            self._opened.push_async_callback(self.shared.close)
            cluster_id, option = await self.shared.cluster_id(), self.shared.option
        self.start_may_end.clear()
        await self.logs.start(cluster_id, option)
        self._opened.push_async_callback(self._close_logs)
        self.start_may_end.set()
        noted, behind = None, False
        if self._channel is not None:
            self.controller = self._channel
            if self._remote_controller is not None:
                self._opened.callback(self._remote_controller.close)
            if self.shared is not None:
                self._opened.push_async_callback(self.shared.close)
                await self.shared.start(endpoints[settings.inter_broker_listener])
        else:
            noted, behind = await self._start_controller(settings)
        image = await self._whole_image()
        if self.shared is not None:
            self.shared.seen.check_controller(image.controller_epoch)
        await finish_deletions(self, image)
        info = BrokerInfo(
            id=self.node_id,
            endpoints={name: Endpoint(*endpoint) for name, endpoint in endpoints.items()},
            rack=settings.rack,
            incarnation=self.incarnation if self.in_cluster else ZERO_ID,
            directories=tuple(sorted(map(uuid_bytes, self.logs.directory_ids()))),
            levels=self.levels,
        )
        if self._channel is not None and (self.shared is None or self.shared.is_new):
            await skip_used_ids(self)
        previous_epoch = await self.processes.begin(image)
        registered = await self.controller.register_broker(info, previous_epoch)
        self.epoch = registered.epoch
        if self.shared is not None:
            self.shared.registered(info)
        if self._channel is None:
            await self._adopt(image, noted, behind)
        self.repairs.begin(self._opened)
        applier = MetadataApplier(self, self.controller)
        await applier.start()
        self.applier = applier
        self._opened.push_async_callback(applier.stop)
        keep_configs(self)
        self.logs.begin_upkeep()

    async def _close_logs(self) -> None:
        # A start that came to no registration has changed nothing since the last stop.
        await self.logs.close(self.epoch if self.epoch >= 0 else self.logs.last_broker_epoch)

    async def _start_controller(self, settings: Settings) -> tuple[MetadataCheckpoint | None, bool]:
        """Start the controller of a cluster of one broker.

        Returns the state of its tree that this directory was last used with, and whether the tree
        is behind that.
        """
        path = f"{settings.data_directory}/{TREE_FILE}"
        tree = await LocalTree.open(self.disk, path, self.background)
        self._opened.push_async_callback(tree.close)
        self._tree = tree
        noted = read_metadata_checkpoint(self.disk, settings.data_directory)
        self._tree_identity = await tree.identity(self.chance.integer(1, 2**63 - 1))
        behind = noted is not None and not self._tree_state().includes(noted.tree)
        if behind:
            log.warning(
                "%s is not as this directory was last used with: all partitions are looked at for "
                "what it lacks",
                path,
            )
        controller = self._new_controller(tree)
        await controller.start()
        self._opened.push_async_callback(controller.stop)
        self.controller = controller
        return noted, behind

    def _new_controller(self, tree: Tree, address: ControllerAddress | None = None) -> Controller:
        """`address`: for those who find the controller in the tree, where each broker has a session
        of its own."""
        options = controller_options(self.settings, self.logs.cluster_id)._replace(
            address=address, others_write=address is not None
        )
        rules = ConfigRules(lambda: self.settings)
        return Controller(tree, self.clock, self.chance, options, rules, self.election_metrics)

    async def _adopt(
        self, image: ClusterImage, noted: MetadataCheckpoint | None, behind: bool
    ) -> None:
        """Create topics whose folders the tree does not know, and note the tree's state."""
        look_at_all = noted is None or behind or self.logs.from_kafka
        await adopt_topics(self, image, look_at_all=look_at_all, behind=behind)
        await self._tree.continue_after(noted.tree.writes if noted is not None else 0)
        self._directories = self.logs.directory_ids()
        if noted is not None:
            image = await self._whole_image()
            self._directories |= miss_partitions(self, image, noted.directories)
        try:
            await self._note_tree()
        except OSError as error:
            # What was noted before still holds; a full disk must not prevent deleting topics.
            log.warning("%s cannot be written: %s", METADATA_CHECKPOINT, error)

    async def controlled_shutdown(self) -> None:
        """Have others lead what this broker leads; before the server stops to take requests."""
        if self._channel is not None and self.settings.flag("controlled.shutdown.enable"):
            from ottla.broker.controlled_shutdown import move_leaders_away

            await move_leaders_away(self, self._channel)

    async def stop(self) -> None:
        """Answer waiting requests, then close everything; the next start has nothing to repair."""
        self.dispatcher.close()
        self.replication.close()
        self.leader_confirmations.close()
        self.coordinators.close()
        if self.group_commit is not None:
            await self.group_commit.drain()
        self.purgatory.close()
        await self._opened.aclose()

    def host_controller(self, controller: Controller) -> None:
        """Serve a controller that was started in this process to the brokers of the cluster."""
        self.end_controller()
        assert self._network is not None
        from ottla.broker.controller_service import ControllerService

        self.controller_service = ControllerService(self, controller, self._network)
        self._controller_moved()

    def end_controller(self) -> None:
        """The controller in this process is one no longer."""
        service, self.controller_service = self.controller_service, None
        if service is not None:
            service.close()
        self._controller_moved()

    def _controller_moved(self) -> None:
        if self._remote_controller is not None:
            self._remote_controller.moved()
        if self.applier is not None:
            self.applier.controller_moved()

    def look_for_controller(self) -> None:
        """The controller does not answer."""
        if self.shared is not None:
            self.shared.look()

    # Used by the parts

    def log_config(self, topic: str) -> LogConfig:
        """The configs of a topic's logs, as they are to be now."""
        return self.settings.log_config(self.next_image.configs_of(topic))

    def configure_topic(self, topic: str) -> None:
        """A topic's configs have changed: they take effect at once."""
        self.logs.configure(topic, self.log_config(topic))
        self.logs.keep_configs(topic)
        self.replication.topic_configured()

    def settings_with(self, default: Mapping[str, str], own: Mapping[str, str]) -> Settings:
        """What the settings would be with these dynamic configs."""
        return self._base_settings.with_dynamic(default, own)

    def configure(self) -> None:
        """The broker's dynamic configs may have changed, and with them every topic's defaults."""
        configs = self.next_image.broker_configs
        default, own = configs.get("", {}), configs.get(str(self.node_id), {})
        self.settings = self._base_settings.with_dynamic(default, own)
        self.logs.configure_all()
        self.logs.reconfigure(self.settings)
        for callback in self.on_configured:
            callback(self.settings)

    def assign(self, partition: Partition, image: PartitionImage) -> None:
        """Give a partition its leader, epoch and replicas from the image."""
        partition.assign(
            self.node_id,
            image.leader,
            image.leader_epoch,
            image.replicas,
            image.isr,
            image.partition_epoch,
            self.clock.monotonic(),
            image.recovering,
        )
        if len(image.replicas) > 1:
            self.replication.assigned(partition)
        else:
            self.replication.removed(partition)

    def _open_partition(self, topic: str, index: int) -> Partition | None:
        image = self.image.partition(topic, index)
        if image is None or self.node_id not in image.replicas:
            return None
        if self.logs.topic_id(topic, index) != self.image.topics[topic].id:
            return None  # it could not be created: see MetadataApplier
        try:
            opened = self.logs.get(topic, index)
            if opened is None:
                return None
            partition = Partition(
                opened,
                self.metrics.topic(topic),
                self.group_commit,
                high_watermark=self.logs.checkpointed_high_watermark(topic, index),
                on_append=self.purgatory.wake_soon,
                on_change=self._partition_changed,
                on_isr_change=self.replication.propose_isr,
                on_offline=self.replication.log_failed,
            )
            self.assign(partition, image)
            self.repairs.opened(partition)
        except OSError as error:
            # The request's other partitions are served; for this one clients try again.
            log.warning("%s-%d: cannot be opened: %s", topic, index, error)
            return None
        return partition

    def _partition_changed(self, partition: Partition) -> None:
        self.purgatory.wake(partition)
        if len(partition.replicas) > 1:
            self.replication.changed(partition)
        self.coordinators.committed(partition)

    def _high_watermark_of(self, log: Log) -> int:
        opened = self.partitions.by_name.get(log.topic, {}).get(log.partition)
        if opened is not None:
            return opened.high_watermark
        image = self.image.partition(log.topic, log.partition)
        checkpointed = self.logs.checkpointed_high_watermark(log.topic, log.partition)
        if image is None or image.leader != self.node_id or image.replicas != (self.node_id,):
            return min(checkpointed, log.end_offset)
        # Not opened since the start, and nobody else decides: as `Partition.assign` would have it.
        return log.end_offset if self.group_commit is None else log.recovery_point

    async def _allocate_producer_ids(self) -> range | Refusal:
        block = await self.controller.allocate_producer_ids(self.node_id)
        if self._channel is not None:
            return block
        try:
            await self._note_tree()  # before an id is used
        except OSError as error:
            log.warning("producer ids cannot be allocated for now: %s", error)
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return block

    async def _note_tree(self) -> None:
        """Note in the data directory which state of the tree it is used with."""
        await self.background.thread(
            write_metadata_checkpoint,
            self.disk,
            self.settings.data_directory,
            MetadataCheckpoint(self._tree_state(), self._directories),
        )

    def _tree_state(self) -> TreeState:
        return TreeState(self._tree_identity, self._tree.writes)

    async def _whole_image(self) -> ClusterImage:
        """The image as the controller has it, before it is applied here."""
        update = await first_image(self, self.controller)
        return update.image
