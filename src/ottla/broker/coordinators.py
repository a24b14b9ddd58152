"""The coordinators of this broker: the topic each keeps its state in, how a key finds its seat.

A coordinator's topic is made when it is first needed. The seats follow the cluster's picture: this
broker coordinates what it leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.context import Pending
from ottla.broker.group_metrics import watch_groups
from ottla.broker.markers import Outbox
from ottla.broker.verification import Verification
from ottla.cluster.requests import NewTopic
from ottla.coordinator.coordinator import Coordinator, partition_of
from ottla.coordinator.groups import GroupShard, OffsetRules
from ottla.coordinator.rebalance import GroupRules
from ottla.coordinator.runtime import Seat, ShardT
from ottla.coordinator.transaction_steps import NeedsProducerId
from ottla.coordinator.transactions import TransactionRules, TransactionShard
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any

    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.replica.partition import Partition
    from ottla.settings import Settings

log = logging.getLogger("ottla.broker")

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
TRANSACTION_VERSION = "transaction.version"

ResponseT = TypeVar("ResponseT")


class Reply:
    """Whoever waits for a coordinator's answer, with the way to say that there will be none."""

    __slots__ = ("_failure", "pending")

    def __init__(self, failure: Callable[[ErrorCode], Any]) -> None:
        self.pending = Pending()
        self._failure = failure

    def resolve(self, response: Any) -> None:
        self.pending.resolve(response)

    def refuse(self, error: ErrorCode) -> None:
        self.pending.resolve(self._failure(error))


async def settled(answer: ResponseT | Pending) -> ResponseT:
    """The response itself, once it is there."""
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


class Office(Generic[ShardT]):
    """One coordinator with its topic."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        make_shard: Callable[[], ShardT],
        new_topic: Callable[[Settings], NewTopic],
    ) -> None:
        self.topic = topic
        self.coordinator = Coordinator(topic, make_shard, broker.clock, broker.purgatory.wake)
        self._broker = broker
        self._new_topic = new_topic
        self._led: dict[int, int] = {}

    def seat_for(self, key: str) -> Seat[ShardT] | ErrorCode:
        """The seat that looks after `key`, or what to answer instead."""
        index = self.partition_for(key)
        if index is None:
            return ErrorCode.NOT_COORDINATOR
        return self.coordinator.seat(index)

    def partition_for(self, key: str) -> int | None:
        """The partition of the coordinator's topic for `key`; None while there is no topic."""
        topic = self._broker.image.topics.get(self.topic)
        return None if topic is None else partition_of(key, len(topic.partitions))

    async def make_topic(self) -> None:
        """Make the coordinator's topic, unless it is there."""
        if self.topic not in self._broker.image.topics:
            new = self._new_topic(self._broker.settings)
            [outcome] = await self._broker.controller.create_topics([new])
            if outcome.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.error("%s cannot be made: %s", self.topic, outcome.error_message)

    def follow(self, image: ClusterImage) -> None:
        """Take the seats that this broker now leads, give up the others."""
        topic = image.topics.get(self.topic)
        led = {
            each.index: each.leader_epoch
            for each in (topic.partitions if topic is not None else ())
            if each.leader == self._broker.node_id
        }
        if led == self._led:
            return
        for index in self._led.keys() - led.keys():
            self.coordinator.resign(index)
        for index, epoch in led.items():
            if self._led.get(index) != epoch:
                partition = self._broker.partitions.get(self.topic, index)
                if partition is not None:
                    self.coordinator.lead(partition)
        self._led = led


class Coordinators:
    """All of them."""

    def __init__(self, broker: Broker) -> None:
        settings = broker.settings
        self.groups = Office(
            broker,
            GROUP_TOPIC,
            lambda: GroupShard(group_rules(settings), offset_rules(settings)),
            offsets_topic,
        )
        watch_groups(broker.metrics, self.groups.coordinator)
        self.outbox = Outbox(broker)
        self.verification = Verification(broker)

        def take_producer_id() -> int:
            producer_id = broker.producer_ids.take()
            if producer_id is None:
                raise NeedsProducerId
            return producer_id

        self.transactions = Office(
            broker,
            TRANSACTION_TOPIC,
            lambda: TransactionShard(
                transaction_rules(settings),
                self.outbox,
                take_producer_id,
                transaction_version(broker.image),
            ),
            transactions_topic,
        )
        self._by_topic: dict[str, Office[Any]] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
        }

    def follow(self, image: ClusterImage) -> None:
        """The picture has changed."""
        for office in self._by_topic.values():
            office.follow(image)
        for seat in self.transactions.coordinator.active_seats():
            seat.shard.version = transaction_version(image)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Offsets of topics that are gone are forgotten."""
        for seat in list(self.groups.coordinator.active_seats()):
            seat.run(partial(seat.shard.forget_topics, names))

    def committed(self, partition: Partition) -> None:
        """A partition's high watermark has moved."""
        office = self._by_topic.get(partition.topic)
        if office is not None:
            office.coordinator.committed(partition.index)
        self.outbox.committed(partition)

    def close(self) -> None:
        self.outbox.close()
        for office in self._by_topic.values():
            office.coordinator.close()


def group_rules(settings: Settings) -> GroupRules:
    return GroupRules(
        initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        max_size=settings.integer("group.max.size"),
    )


def offset_rules(settings: Settings) -> OffsetRules:
    return OffsetRules(
        retention_ms=settings.integer("offsets.retention.minutes") * 60_000,
        retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        metadata_bytes_max=settings.integer("offset.metadata.max.bytes"),
    )


def offsets_topic(settings: Settings) -> NewTopic:
    return NewTopic(
        GROUP_TOPIC,
        settings.integer("offsets.topic.num.partitions"),
        # One broker can hold one replica, whatever the option's default says.
        1,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(settings.integer("offsets.topic.segment.bytes"))),
        ),
    )


def transaction_rules(settings: Settings) -> TransactionRules:
    return TransactionRules(
        timeout_check_interval_ms=settings.integer(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        expiration_ms=settings.integer("transactional.id.expiration.ms"),
        expiry_check_interval_ms=settings.integer(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )


def transaction_version(image: ClusterImage) -> int:
    """Which generation of transactions the cluster has agreed on (KIP-890)."""
    return image.features.levels.get(TRANSACTION_VERSION, 0)


def transactions_topic(settings: Settings) -> NewTopic:
    return NewTopic(
        TRANSACTION_TOPIC,
        settings.integer("transaction.state.log.num.partitions"),
        # One broker can hold one replica, whatever the option's default says.
        1,
        configs=(
            ("unclean.leader.election.enable", "false"),
            ("compression.type", "uncompressed"),
            ("cleanup.policy", "compact"),
            ("min.insync.replicas", str(settings.integer("transaction.state.log.min.isr"))),
            ("segment.bytes", str(settings.integer("transaction.state.log.segment.bytes"))),
        ),
    )
