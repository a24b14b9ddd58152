"""The group and the transaction coordinator of this broker, with the topics of their state.

A coordinator's topic is created when it is first needed. Which of its partitions this broker
coordinates follows from the cluster image: those that it leads. What they decide with is imported
for the first of them: a broker starts without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.context import Pending
from ottla.broker.group_metrics import watch_groups
from ottla.broker.markers import MarkerSender
from ottla.broker.verification import Verification
from ottla.cluster.requests import NewTopic
from ottla.coordinator.coordinator_partition import CoordinatorPartition, ShardT, WriteRules
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.runtime import RELOAD_DELAY_S, CoordinatorRuntime, partition_of
from ottla.coordinator.topics import TopicsView
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any

    from ottla.broker.broker import Broker
    from ottla.broker.shares.manager import ShareManager
    from ottla.cluster.image import ClusterImage
    from ottla.coordinator.group_shard import GroupShard
    from ottla.coordinator.share_state_shard import ShareStateShard
    from ottla.coordinator.transaction_shard import TransactionShard
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer
    from ottla.settings import Settings

log = logging.getLogger("ottla.broker")

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
TRANSACTION_VERSION = "transaction.version"

ResponseT = TypeVar("ResponseT")


class PendingReply:
    """A coordinator's `Reply` to a request; `failure` makes the response for an error."""

    __slots__ = ("_failure", "pending")

    def __init__(self, failure: Callable[[ErrorCode], Any]) -> None:
        self.pending = Pending()
        self._failure = failure

    def resolve(self, response: Any) -> None:
        self.pending.resolve(response)

    def fail(self, error: ErrorCode) -> None:
        self.pending.resolve(self._failure(error))


async def settled(answer: ResponseT | Pending) -> ResponseT:
    """The response itself, once it is settled."""
    if not isinstance(answer, Pending):
        return answer
    future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()

    def take(response: Any, error: BaseException | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(response)

    answer.on_settled(take)
    return await future


class CoordinatorService(Generic[ShardT]):
    """One kind of coordinator: its topic, and the runtime of the partitions that are led here."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        make_shard: Callable[[], ShardT],
        new_topic: Callable[[Settings], NewTopic],
        rules: Callable[[], WriteRules] = WriteRules,
    ) -> None:
        self.topic = topic
        self.runtime = CoordinatorRuntime(topic, make_shard, broker.clock, rules)
        self._broker = broker
        self._new_topic = new_topic
        # The leader epochs of the partitions that are led here and could be opened.
        self._led: dict[int, int] = {}
        self._retry: Timer | None = None
        self._creation: asyncio.Future[None] | None = None
        self._problem: str | None = None  # of the last creation, as logged

    def coordinator_for(self, key: str) -> CoordinatorPartition[ShardT] | ErrorCode:
        """The active coordinator partition of `key`, or the error to answer instead."""
        index = self.partition_for(key)
        if index is None:
            return ErrorCode.NOT_COORDINATOR
        return self.runtime.coordinator(index)

    def leader_for(self, key: str) -> int | None:
        """The node id of the broker that coordinates `key`; None if there is none now."""
        index = self.partition_for(key)
        known = None if index is None else self._broker.image.partition(self.topic, index)
        return None if known is None or known.leader < 0 else known.leader

    def partition_for(self, key: str) -> int | None:
        """The partition of the coordinator's topic for `key`; None while there is no topic."""
        topic = self._broker.image.topics.get(self.topic)
        return None if topic is None else partition_of(key, len(topic.partitions))

    async def make_topic(self) -> None:
        """Create the coordinator's topic, unless it exists; one creation for all who wait.

        With fewer brokers than replicas it cannot be created, and every client asks again.
        """
        if self._creation is None:
            self._creation = asyncio.ensure_future(self._make_topic())
        await asyncio.shield(self._creation)

    async def _make_topic(self) -> None:
        broker = self._broker
        try:
            if self.topic in broker.image.topics:
                return
            new = self._new_topic(broker.settings)
            if not broker.in_cluster:
                # A broker that is a cluster of its own has one replica of everything.
                new = new._replace(replication_factor=1)
            [outcome] = await broker.controller.create_topics([new])
            problem = None
            if outcome.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                problem = outcome.error_message or outcome.error_code.name
                if problem != self._problem:
                    log.error("%s cannot be created: %s", self.topic, problem)
            self._problem = problem
        finally:
            self._creation = None

    def follow(self, image: ClusterImage) -> None:
        """Load the partitions that this broker now leads, unload the others."""
        topic = image.topics.get(self.topic)
        led = {
            each.index: each.leader_epoch
            for each in (topic.partitions if topic is not None else ())
            if each.leader == self._broker.node_id
        }
        if led == self._led:
            return
        for index in self._led.keys() - led.keys():
            self.runtime.resign(index)
            del self._led[index]
        for index, epoch in led.items():
            if self._led.get(index) != epoch:
                partition = self._broker.partitions.get(self.topic, index)
                if partition is not None:
                    self.runtime.lead(partition)
                    self._led[index] = epoch
        if led != self._led and self._retry is None:
            # Some could not be opened, for want of a descriptor maybe.
            self._retry = self._broker.clock.call_later(RELOAD_DELAY_S, self._follow_again)

    def _follow_again(self) -> None:
        self._retry = None
        self.follow(self._broker.image)

    def close(self) -> None:
        """Append what is decided, then unload every partition."""
        if self._retry is not None:
            self._retry.cancel()
        self.runtime.close()


class Coordinators:
    """All coordinators of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.topics = TopicsView()
        self._options = GroupOptions(lambda: broker.settings, self.topics)
        self.groups = CoordinatorService(
            broker,
            GROUP_TOPIC,
            self._group_shard,
            offsets_topic,
            lambda: group_write_rules(broker.settings),
        )
        watch_groups(broker.metrics, self.groups.runtime)
        self.marker_sender = MarkerSender(broker)
        self.verification = Verification(broker)
        self.transactions = CoordinatorService(
            broker, TRANSACTION_TOPIC, self._transaction_shard, transactions_topic
        )
        self.shares = CoordinatorService(
            broker,
            SHARE_TOPIC,
            self._share_state_shard,
            share_state_topic,
            lambda: share_write_rules(broker.settings),
        )
        self._by_topic: dict[str, CoordinatorService[Any]] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
            SHARE_TOPIC: self.shares,
        }

    @cached_property
    def share_manager(self) -> ShareManager:
        """Made when it is first asked for."""
        from ottla.broker.shares.manager import ShareManager

        return ShareManager(self._broker, self._options, self.topics)

    @property
    def _share_manager(self) -> ShareManager | None:
        """The one that is made already."""
        return self.__dict__.get("share_manager")

    def _group_shard(self) -> GroupShard:
        from ottla.broker.coordinator_shards import group_shard

        persister = self.share_manager.persister
        return group_shard(self._broker.settings, self._options, self.topics, persister)

    def _transaction_shard(self) -> TransactionShard:
        from ottla.broker.coordinator_shards import transaction_shard

        return transaction_shard(
            self._broker.settings,
            self.marker_sender.send,
            self._broker.producer_ids.take,
            transaction_version(self._broker.image),
        )

    def _share_state_shard(self) -> ShareStateShard:
        from ottla.broker.coordinator_shards import share_state_shard

        settings = self._broker.settings
        return share_state_shard(settings, self._knows_partition, self._prune_share_state)

    def follow(self, image: ClusterImage) -> None:
        """The cluster image has changed."""
        self.topics.image = image
        for service in self._by_topic.values():
            service.follow(image)
        for coordinator in self.transactions.runtime.all_active():
            coordinator.shard.version = transaction_version(image)
        self.marker_sender.follow(image)
        if self._share_manager is not None:
            self._share_manager.follow(image)

    def topics_deleted(self, names: Collection[str], topic_ids: Collection[bytes]) -> None:
        """Delete the committed offsets, and the share groups' state, of deleted topics."""
        for coordinator in list(self.groups.runtime.all_active()):
            coordinator.run(partial(coordinator.shard.topics_deleted, names))
            coordinator.run(partial(self._share_topics_deleted, coordinator.shard, topic_ids))
        for shares in list(self.shares.runtime.all_active()):
            shares.run(partial(shares.shard.topics_deleted, topic_ids))

    def _share_topics_deleted(
        self, shard: GroupShard, topic_ids: Collection[bytes], effects: Effects, now_ms: int
    ) -> None:
        shard.shares.topics_deleted(topic_ids, effects)

    def _knows_partition(self, topic_id: bytes, index: int) -> bool:
        image = self._broker.image
        name = image.topic_name(topic_id)
        return name is not None and image.partition(name, index) is not None

    def _prune_share_state(self, shard: ShareStateShard) -> None:
        """Delete what no share partition's state needs any more from the log."""
        for coordinator in self.shares.runtime.all_active():
            partition = coordinator.partition
            if coordinator.shard is not shard or coordinator.is_deposed:
                continue
            offset = shard.redundant_before(partition.high_watermark)
            if offset > partition.log_start_offset:
                try:
                    partition.delete_records_before(offset)
                except OSError as error:
                    log.warning("%s: cannot be pruned: %s", coordinator, error)

    def committed(self, partition: Partition) -> None:
        """A partition's high watermark has moved."""
        service = self._by_topic.get(partition.topic)
        if service is not None:
            service.runtime.committed(partition.index)

    def close(self) -> None:
        self.marker_sender.close()
        if self._share_manager is not None:
            self._share_manager.close()
        for service in self._by_topic.values():
            service.close()


def offsets_topic(settings: Settings) -> NewTopic:
    return NewTopic(
        GROUP_TOPIC,
        settings.integer("offsets.topic.num.partitions"),
        settings.integer("offsets.topic.replication.factor"),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(settings.integer("offsets.topic.segment.bytes"))),
        ),
    )


def group_write_rules(settings: Settings) -> WriteRules:
    return WriteRules(
        settings.integer("offsets.commit.timeout.ms"),
        max(0, settings.integer("group.coordinator.append.linger.ms")),
        settings.integer("offsets.topic.compression.codec"),
    )


def share_write_rules(settings: Settings) -> WriteRules:
    return WriteRules(
        settings.integer("share.coordinator.write.timeout.ms"),
        max(0, settings.integer("share.coordinator.append.linger.ms")),
        settings.integer("share.coordinator.state.topic.compression.codec"),
    )


def transaction_version(image: ClusterImage) -> int:
    """The finalized level of the feature `transaction.version` (KIP-890)."""
    return image.features.levels.get(TRANSACTION_VERSION, 0)


def transactions_topic(settings: Settings) -> NewTopic:
    return NewTopic(
        TRANSACTION_TOPIC,
        settings.integer("transaction.state.log.num.partitions"),
        settings.integer("transaction.state.log.replication.factor"),
        configs=(
            ("unclean.leader.election.enable", "false"),
            ("compression.type", "uncompressed"),
            ("cleanup.policy", "compact"),
            ("min.insync.replicas", str(settings.integer("transaction.state.log.min.isr"))),
            ("segment.bytes", str(settings.integer("transaction.state.log.segment.bytes"))),
        ),
    )


def share_state_topic(settings: Settings) -> NewTopic:
    return NewTopic(
        SHARE_TOPIC,
        settings.integer("share.coordinator.state.topic.num.partitions"),
        settings.integer("share.coordinator.state.topic.replication.factor"),
        configs=(
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("segment.bytes", str(settings.integer("share.coordinator.state.topic.segment.bytes"))),
            ("min.insync.replicas", str(settings.integer("share.coordinator.state.topic.min.isr"))),
            ("retention.ms", "-1"),
        ),
    )
