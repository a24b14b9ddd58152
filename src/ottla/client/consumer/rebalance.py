"""The part of a rebalance in the caller's thread: partitions revoked and assigned, the listener.

`step` is called by every `poll`, in its thread, and does not wait for the group: it does what can
be done now and leaves the rest to the next step.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import Protocol

from ..network.cluster_client import ConsumerClient
from ..structs import TopicPartition
from .group_membership import Group
from .subscription import Subscription

log = logging.getLogger("ottla.client")


class Membership(Protocol):
    """What the caller's thread needs of a membership, of either protocol."""

    lost: bool
    rejoin: bool


class Handover:
    """Gives partitions up and takes them; `save` commits what was read before partitions go."""

    def __init__(
        self,
        client: ConsumerClient,
        group: Membership,
        subscription: Subscription,
        save: Callable[[], object],
        wake: Callable[[], object],
    ) -> None:
        self.client = client
        self.group = group
        self.subscription = subscription
        self.save = save
        self.wake = wake

    def _gone(
        self, have: list[TopicPartition], gone: list[TopicPartition], *, lost: bool = False
    ) -> None:
        """Tell the listener, while they are still there, then let go of them."""
        if not gone:
            return
        try:
            self._tell("on_partitions_lost" if lost else "on_partitions_revoked", gone)
        finally:
            left = set(have) - set(gone)
            self.subscription.replace([each for each in have if each in left])

    def _take(
        self, partitions: list[TopicPartition], added: list[TopicPartition], *, silent: bool = False
    ) -> None:
        """Have these partitions; the listener learns of those that were added."""
        self.subscription.replace(partitions, held=True)
        self.client.metadata.track({each.topic for each in partitions})
        try:
            if not silent:
                self._tell("on_partitions_assigned", added)
        finally:
            for state in self.subscription.states.values():
                state.held = False
            self.wake()

    def leave(self) -> None:
        """Give everything up and go, because the caller wants no more."""
        have = sorted(self.subscription.states)
        lost, self.group.lost = self.group.lost, False
        try:
            self._gone(have, have, lost=lost)
        finally:
            self.group.rejoin = False

    def _tell(self, method: str, partitions: list[TopicPartition]) -> None:
        listener = self.subscription.listener
        if listener is None:
            return
        callback = getattr(listener, method, None) or listener.on_partitions_revoked
        outcome = callback(list(partitions))
        if inspect.iscoroutine(outcome):
            import asyncio

            asyncio.run(outcome)


class Rebalance(Handover):
    """Acts on what a group of the classic protocol wants."""

    group: Group

    def step(self) -> None:
        """Whatever is due."""
        group = self.group
        group.polled_at = time.monotonic()
        if group.fenced is not None:
            if group.lost:
                self._prepare()
            raise group.fenced
        if group.problem is not None:
            problem, group.problem = group.problem, None
            raise problem
        if group.arrived is not None:
            self._complete()
        if group.rejoin and not group.joining and group.arrived is None:
            self._prepare()
            group.start()

    def _prepare(self) -> None:
        """Give up what must not be read on while the group divides anew."""
        have = sorted(self.subscription.states)
        if self.group.lost:
            self.group.lost = False
            self._gone(have, have, lost=True)
            return
        self.save()
        wanted = self.subscription.topics
        kept = [each for each in have if self.group.cooperative and each.topic in wanted]
        self._gone(have, [each for each in have if each not in kept])

    def _complete(self) -> None:
        """Take what the group has given."""
        group, arrived = self.group, self.group.arrived
        group.arrived = None
        if arrived is None or arrived.generation != group.generation:
            group.rejoin = True
            return
        if getattr(arrived.assignor, "on_assignment", None) is not None:
            arrived.assignor.on_assignment(arrived.partitions, arrived.generation)
        have = sorted(self.subscription.states)
        added = [each for each in arrived.partitions if each not in self.subscription.states]
        gone = [each for each in have if each not in set(arrived.partitions)]
        if gone:  # the next owner gets them in the next rebalance
            self.save()
            group.rejoin = True
            self._gone(have, gone)
        if not {each.topic for each in arrived.partitions} <= self.subscription.topics:
            group.rejoin = True  # the subscription has changed meanwhile
        self._take(arrived.partitions, added if group.cooperative else arrived.partitions)
