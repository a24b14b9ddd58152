"""A controller of a simulated cluster with one replicated partition, outside of all its brokers.

It never fails; the links to it may be cut. It decides as Kafka's does: leaders come from the ISR,
then from the ELR (KIP-966), then the last known leader returns; a broker that comes back after a
crash is in neither before it has caught up; an ISR change must name the epochs that are known here,
and brokers by the epoch of their registration (KIP-903).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla.cluster.feed import Batch, Snapshot
from ottla.cluster.image import (
    NO_LEADER,
    BrokerInfo,
    BrokerRegistered,
    Change,
    ClusterImage,
    ControllerChanged,
    PartitionImage,
    PartitionsChanged,
    TopicCreated,
    TopicImage,
)
from ottla.cluster.requests import IsrOutcome
from ottla.seams.simulated.simulation import Node
from ottla.wire.errors import ErrorCode

TOPIC = "t"
TOPIC_ID = b"replicated topic"
MIN_ISR = 2
LATENCY_S = 0.002
ANSWER_S_MAX = 1.0  # then the broker does not know what came of its request
POLL_S_MAX = 0.5


class FixedController:
    """The state of the cluster, and what the brokers have been told of it."""

    def __init__(self, replicas: tuple[int, ...], configs: dict[str, str]) -> None:
        self.unreachable: set[int] = set()
        self.batches: list[Batch] = []
        self.image = ClusterImage(cluster_id="simulated")
        self.alive: set[int] = set()
        self.elr: set[int] = set()
        self.last_known_leader = NO_LEADER
        self.leaders: dict[int, int] = {}  # by leader epoch
        self.isr_changes = self.elections = 0
        partition = PartitionImage(0, NO_LEADER, 0, 0, replicas, replicas)
        topic = TopicImage(TOPIC, TOPIC_ID, (partition,))
        self._publish(ControllerChanged(99, 1), TopicCreated(topic, configs))

    def _publish(self, *changes: Change) -> None:
        number = self.image.number + 1
        self.image = self.image.apply(number, changes)
        self.batches.append(Batch(number, self.image.controller_epoch, changes))

    @property
    def partition(self) -> PartitionImage:
        """The partition as it is decided."""
        return self.image.topics[TOPIC].partitions[0]

    # Decisions

    def register(self, info: BrokerInfo) -> BrokerInfo:
        """A broker has started: with nothing, at first, and after a crash from then on."""
        before = self.image.brokers.get(info.id)
        info = info._replace(epoch=self.image.number + 1)
        self._publish(BrokerRegistered(info))
        self.alive.add(info.id)
        if before is not None:
            self.elr.discard(info.id)
            self._decide(set(self.partition.isr) - {info.id}, restarted=info.id)
        else:
            self._decide(set(self.partition.isr))
        return info

    def fence(self, broker_id: int) -> None:
        """A broker is known to be dead."""
        self.alive.discard(broker_id)
        isr = set(self.partition.isr)
        if broker_id in isr:
            self._decide(isr - {broker_id})

    def move(self, leader: int) -> None:
        """Leadership goes to another member of the ISR, as a preferred leader election does it."""
        old = self.partition
        if leader in old.isr and leader in self.alive and old.leader not in (leader, NO_LEADER):
            self.elections += 1
            self.leaders[old.leader_epoch + 1] = self.last_known_leader = leader
            self._change(old._replace(leader=leader, leader_epoch=old.leader_epoch + 1))

    def _decide(self, isr: set[int], restarted: int = NO_LEADER) -> None:
        """Write an ISR, the ELR that follows from it, and a leader if there must be another."""
        old = self.partition
        left = set(old.isr) - isr - {restarted}
        self.elr = set() if len(isr) >= MIN_ISR else (self.elr | left) - isr
        leader = old.leader
        if leader not in isr or leader not in self.alive or leader == restarted:
            leader = self._elect(isr)
        if leader != NO_LEADER:
            isr.add(leader)
            self.elr.discard(leader)
        if (leader, isr) == (old.leader, set(old.isr)) and leader != restarted:
            return
        epoch = old.leader_epoch
        if leader != old.leader or leader == restarted:
            epoch += 1
            self.elections += 1
            if leader != NO_LEADER:
                self.leaders[epoch] = self.last_known_leader = leader
        self._change(old._replace(leader=leader, leader_epoch=epoch, isr=tuple(sorted(isr))))

    def _elect(self, isr: set[int]) -> int:
        for candidates in (isr, self.elr):
            found = sorted(candidates & self.alive)
            if found:
                return found[(self.partition.leader_epoch + 1) % len(found)]
        if not isr and not self.elr and self.last_known_leader in self.alive:
            return self.last_known_leader
        return NO_LEADER

    def _change(self, partition: PartitionImage) -> None:
        partition = partition._replace(partition_epoch=partition.partition_epoch + 1)
        self._publish(PartitionsChanged(TOPIC, TOPIC_ID, (partition,)))

    def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[tuple[int, int]],
    ) -> IsrOutcome:
        """A leader proposes an ISR."""
        now = self.partition
        if leader_epoch != now.leader_epoch or broker_id != now.leader:
            return IsrOutcome(ErrorCode.FENCED_LEADER_EPOCH)
        if self.image.brokers[broker_id].epoch != broker_epoch:
            return IsrOutcome(ErrorCode.STALE_BROKER_EPOCH)
        if partition_epoch != now.partition_epoch:
            return IsrOutcome(ErrorCode.INVALID_UPDATE_VERSION)
        for member, epoch in isr:
            if member not in now.isr and (
                member not in self.alive or self.image.brokers[member].epoch != epoch
            ):
                return IsrOutcome(ErrorCode.INELIGIBLE_REPLICA)
        self.isr_changes += 1
        members = {member for member, _ in isr}
        left = set(now.isr) - members
        self.elr = set() if len(members) >= MIN_ISR else (self.elr | left) - members
        self._change(now._replace(isr=tuple(sorted(members))))
        return IsrOutcome(0, self.partition.isr, self.partition.partition_epoch)


class Channel:
    """How one broker process reaches the controller: each way takes time, and may be cut."""

    def __init__(self, controller: FixedController, node: Node, broker_id: int) -> None:
        self._controller = controller
        self._node = node
        self._broker_id = broker_id

    async def _travel(self) -> None:
        await asyncio.sleep(LATENCY_S)
        while self._broker_id in self._controller.unreachable:
            await asyncio.sleep(0.05)

    async def poll(
        self, broker_id: int, number: int, controller_epoch: int, broker_epoch: int = -1
    ) -> Sequence[Batch] | Snapshot:
        controller = self._controller
        await self._travel()
        waited = 0.0
        while controller.image.number <= number and waited < POLL_S_MAX:
            await asyncio.sleep(0.02)
            waited += 0.02
        image, batches = controller.image, list(controller.batches[number:])
        await self._travel()
        return Snapshot(image) if controller_epoch != image.controller_epoch else batches

    def leave(self, broker_id: int) -> None:
        pass

    async def register_broker(self, broker: BrokerInfo, previous_epoch: int = -1) -> BrokerInfo:
        await self._travel()
        registered = self._controller.register(broker)
        await self._travel()
        return registered

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[tuple[int, int]],
    ) -> IsrOutcome:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._travel()
                outcome = self._controller.alter_partition(
                    broker_id, broker_epoch, leader_epoch, partition_epoch, isr
                )
                await self._travel()
                return outcome
        except TimeoutError:
            return IsrOutcome(ErrorCode.REQUEST_TIMED_OUT)

    async def confirm_deletions(self, broker_id: int, topic_ids: Sequence[bytes]) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"the fixed controller does not do {name}")
