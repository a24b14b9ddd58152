"""Replication on this broker: a follower's fetch loops, and the ISR changes of a leader.

For every leader broker that this one follows there is one loop with one fetch under way; what to
ask and what an answer means is decided in `replica/follower.py`. As a leader, this broker looks at
its followers from time to time, and asks the controller for the ISR changes that its partitions
propose (`replica/leader.py`), until there is an answer that settles them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.replica.follower import Fetcher, Limits, Truncation
from ottla.replica.leader import IsrChange
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.channel import ControllerChannel
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer

# Until the controller is asked again for an ISR change, when it did not decide on it.
PROPOSAL_RETRY_S = 0.1
# The controller did not decide: it may do so when asked again.
UNDECIDED = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
)
# The controller has decided against it. After any other error the proposal may have been accepted
# by an earlier request, so it stays until the feed brings the partition's next epoch.
REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)


class FetchLoop:
    """Fetches from one leader broker, as long as there are partitions that follow it."""

    def __init__(self, replication: Replication, leader_id: int) -> None:
        self._replication = replication
        self._broker = replication.broker
        self.fetcher = Fetcher(self._broker.node_id, leader_id)
        self._under_way = False
        self._paused: Timer | None = None

    def wake(self) -> None:
        """Send the next request, unless one is under way or the leader could not be reached."""
        if self._under_way or self._paused is not None or self._replication.closed:
            return
        request = self.fetcher.request(self._replication.limits, self._broker.epoch)
        if request is not None:
            self._under_way = True
            self._broker.peers.send(self.fetcher.leader_id, request, self._answered)

    def close(self) -> None:
        if self._paused is not None:
            self._paused.cancel()

    def _answered(self, response: Any) -> None:
        self._under_way = False
        clock = self._broker.clock
        if isinstance(response, ErrorCode):
            self._paused = clock.call_later(self._replication.backoff_s, self._resume)
            return
        truncations, failed = self.fetcher.answered(response, clock.now_ms())
        for truncation in truncations:
            self._truncate(truncation)
        for asked in failed:
            self._delay(asked.partition)
        clock.call_later(0.0, self.wake)

    def _resume(self) -> None:
        self._paused = None
        self.wake()

    def _delay(self, partition: Partition) -> None:
        self.fetcher.delayed.add(partition)
        self._broker.clock.call_later(
            self._replication.backoff_s, lambda: self._end_delay(partition)
        )

    def _end_delay(self, partition: Partition) -> None:
        self.fetcher.delayed.discard(partition)
        self.wake()

    def _truncate(self, truncation: Truncation) -> None:
        partition = truncation.asked.partition
        if partition.synced_offset <= truncation.offset and not truncation.restart:
            truncation.carry_out(self._broker.clock.now_ms())
            return
        self.fetcher.delayed.add(partition)
        self._replication.spawn(self._truncate_synced(truncation))

    async def _truncate_synced(self, truncation: Truncation) -> None:
        partition = truncation.asked.partition
        offset = 0 if truncation.restart else truncation.offset
        await self._broker.logs.prepare_truncation(partition.topic, partition.index, offset)
        truncation.carry_out(self._broker.clock.now_ms())
        self._end_delay(partition)


class Replication:
    """The replicas of one broker that have others on other brokers."""

    def __init__(self, broker: Broker, channel: ControllerChannel | None) -> None:
        """Without a channel no ISR ever changes: a cluster of one broker has none to change."""
        self.broker = broker
        self.closed = False
        self._channel = channel
        self._loops: dict[int, FetchLoop] = {}
        self._following: dict[Partition, FetchLoop] = {}
        self._leading: dict[Partition, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._check: Timer | None = None

    @property
    def limits(self) -> Limits:
        """What a fetch may ask for."""
        settings = self.broker.settings
        return Limits(
            wait_ms=settings.integer("replica.fetch.wait.max.ms"),
            bytes_min=settings.integer("replica.fetch.min.bytes"),
            partition_bytes_max=settings.integer("replica.fetch.max.bytes"),
            response_bytes_max=settings.integer("replica.fetch.response.max.bytes"),
        )

    @property
    def backoff_s(self) -> float:
        """The pause after an error."""
        return self.broker.settings.integer("replica.fetch.backoff.ms") / 1000

    @property
    def lag_max_s(self) -> float:
        """How long a follower may lag and stay in the ISR."""
        return self.broker.settings.integer("replica.lag.time.max.ms") / 1000

    def assigned(self, partition: Partition) -> None:
        """The partition has a leader, or another epoch: follow it, or watch its followers."""
        if partition.is_leader:
            self._leading[partition] = None
            if self._check is None and not self.closed:
                self._check = self.broker.clock.call_later(self.lag_max_s / 2, self._check_lags)
        else:
            self._leading.pop(partition, None)
        follows = not partition.is_leader and partition.leader_id >= 0
        loop = self._loop(partition.leader_id) if follows else None
        self._unfollow(partition)
        if loop is not None:
            self._following[partition] = loop
            loop.fetcher.partitions[partition] = None
            # Not at once: the image that has the leader's address is not in use yet.
            self.broker.clock.call_later(0.0, loop.wake)

    def removed(self, partition: Partition) -> None:
        """The partition's topic was deleted."""
        self._leading.pop(partition, None)
        self._unfollow(partition)

    def _unfollow(self, partition: Partition) -> None:
        loop = self._following.pop(partition, None)
        if loop is not None:
            loop.fetcher.partitions.pop(partition, None)
            loop.fetcher.delayed.discard(partition)

    def changed(self, partition: Partition) -> None:
        """A follower's records may have been synced, which its next fetch waits for."""
        loop = self._following.get(partition)
        if loop is not None and partition.group_commit is not None:
            loop.wake()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background until it is done or the broker stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop all loops."""
        self.closed = True
        for loop in self._loops.values():
            loop.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._check is not None:
            self._check.cancel()
        self.broker.peers.close()

    def _loop(self, leader_id: int) -> FetchLoop:
        loop = self._loops.get(leader_id)
        if loop is None:
            loop = self._loops[leader_id] = FetchLoop(self, leader_id)
        return loop

    # The leader's side

    def _check_lags(self) -> None:
        now_s = self.broker.clock.monotonic()
        self._check = None
        for partition in self._leading:
            partition.shrink_isr(now_s, self.lag_max_s)
        if self._leading and not self.closed:
            self._check = self.broker.clock.call_later(self.lag_max_s / 2, self._check_lags)

    def propose_isr(self, partition: Partition, change: IsrChange) -> None:
        """Ask the controller for a change that a partition proposes."""
        if self._channel is not None and not self.closed:
            self.spawn(self._propose(self._channel, partition, change))

    async def _propose(
        self, channel: ControllerChannel, partition: Partition, change: IsrChange
    ) -> None:
        while partition.leading is not None and partition.leading.proposed == change:
            outcome = await channel.alter_partition(
                self.broker.node_id,
                self.broker.epoch,
                partition.topic_id,
                partition.index,
                change.leader_epoch,
                change.partition_epoch,
                [(each, self._broker_epoch(partition, each)) for each in change.isr],
            )
            if not outcome.error_code:
                partition.isr_changed(change, outcome.isr, outcome.partition_epoch)
            elif outcome.error_code in REFUSED:
                partition.isr_refused(change)
            elif outcome.error_code not in UNDECIDED:
                return
            else:
                await self._pause(PROPOSAL_RETRY_S)

    def _broker_epoch(self, partition: Partition, broker_id: int) -> int:
        """The broker epoch with which a member of the ISR was seen, -1 if it was not."""
        if broker_id == self.broker.node_id:
            return self.broker.epoch
        leading = partition.leading
        follower = leading.followers.get(broker_id) if leading is not None else None
        return follower.broker_epoch if follower is not None else -1

    async def _pause(self, seconds: float) -> None:
        passed = asyncio.Event()
        self.broker.clock.call_later(seconds, passed.set)
        await passed.wait()
