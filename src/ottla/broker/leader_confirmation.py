"""Whether this broker still leads a partition, at a moment after the question.

A leader that was replaced and does not know it commits nothing, but it would answer reads of its
state with what was true before. A read that must not be older than the last commit therefore asks
all replicas one of which would lead now (`LeaderState.successors`) which leader epoch they are in,
after the read has arrived. While none is in a later epoch than this leader, nothing was committed
in a later one. That is one round trip to other brokers, shared by all reads that wait for it; a
partition without other replicas has nobody to ask. Kafka answers such reads at once.

A replica that does not answer holds these reads up, as it does commits, until the controller has
taken it out of the ISR; so each waits only for so long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.api.known_leader_epoch import KnownLeaderEpochRequest
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer

# How long a read waits at most: then its client looks for the leader again.
WAIT_S_MAX = 1.0
# Until a replica is asked again that could not be asked, and the ISR is looked at again.
ASK_AGAIN_S = 0.05

Then = Callable[[bool], object]


class Waiting(NamedTuple):
    """A read that waits: those that arrived before it have lower numbers."""

    number: int
    until_s: float
    then: Then


class Confirmation:
    """The reads of one partition, in one leader epoch, and what its replicas have answered."""

    def __init__(self, broker: Broker, partition: Partition) -> None:
        self._broker = broker
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._arrived = 0
        self._waiting: deque[Waiting] = deque()
        # The last read that had arrived when a replica was asked that has answered.
        self._confirmed: dict[int, int] = {}
        self._asked: set[int] = set()  # and have not answered yet
        self._timer: Timer | None = None

    @property
    def is_over(self) -> bool:
        """Whether the partition has had another leader since, or has one now."""
        partition = self._partition
        return not partition.is_leader or partition.leader_epoch != self._leader_epoch

    def add(self, then: Then) -> None:
        self._arrived += 1
        until_s = self._broker.clock.monotonic() + WAIT_S_MAX
        self._waiting.append(Waiting(self._arrived, until_s, then))
        self._look()

    def _look(self) -> None:
        """Call those that are due, and ask whom the others wait for."""
        waiting = self._waiting
        if self.is_over:
            self.end()
            return
        successors = self._partition.successors()
        confirmed = min(
            (self._confirmed.get(each, 0) for each in successors), default=self._arrived
        )
        while waiting and waiting[0].number <= confirmed:
            waiting.popleft().then(True)
        now_s = self._broker.clock.monotonic()
        while waiting and waiting[0].until_s <= now_s:
            waiting.popleft().then(False)
        if not waiting:
            return
        if self._timer is None:
            self._timer = self._broker.clock.call_later(ASK_AGAIN_S, self._look_again)
        last = waiting[-1].number
        for each in successors:
            if each not in self._asked and self._confirmed.get(each, 0) < last:
                self._ask(each)

    def _look_again(self) -> None:
        self._timer = None
        self._look()

    def _ask(self, broker_id: int) -> None:
        self._asked.add(broker_id)
        arrived = self._arrived

        def answered(response: Any) -> None:
            self._asked.discard(broker_id)
            if response is ErrorCode.UNSUPPORTED_VERSION:
                self._confirmed[broker_id] = arrived  # an earlier version of Ottla: as in Kafka
            elif isinstance(response, ErrorCode) or response.error_code:
                return  # asked again, unless it has left the ISR
            elif response.leader_epoch > self._leader_epoch:
                self.end()
                return
            else:
                self._confirmed[broker_id] = arrived
            self._look()

        partition = self._partition
        request = KnownLeaderEpochRequest(
            topic_id=partition.topic_id, partition_index=partition.index
        )
        self._broker.peers.send(broker_id, request, answered)

    def end(self) -> None:
        """It leads no longer, or is about to learn so, or the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._waiting.popleft().then(False)


class LeaderConfirmations:
    """The partitions that this broker leads and whose reads were to be confirmed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_partition: dict[Partition, Confirmation] = {}

    def confirm(self, partition: Partition, then: Then) -> None:
        """Call `then` once, maybe before this returns: True if nothing that was committed before
        this call is missing here; False if another broker leads, or if that cannot be excluded.
        """
        if partition.is_leader and partition.leading is None:
            then(True)
            return
        confirmation = self._by_partition.get(partition)
        if confirmation is None or confirmation.is_over:
            if confirmation is not None:
                confirmation.end()
            confirmation = self._by_partition[partition] = Confirmation(self._broker, partition)
        confirmation.add(then)

    def close(self) -> None:
        """Nothing is confirmed any more."""
        for confirmation in self._by_partition.values():
            confirmation.end()
