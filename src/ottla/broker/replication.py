"""Replication on this broker: a follower's fetch loops, and the ISR changes of a leader.

For every leader broker that this one follows there is one loop with one fetch under way; what to
ask and what an answer means is decided in `replica/follower.py`. As a leader, this broker looks at
its followers from time to time, and asks the controller for the ISR changes that its partitions
propose (`replica/leader.py`), until there is an answer that settles them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from ottla.broker.controlled_shutdown import UNDECIDED as NOT_ANSWERED
from ottla.broker.cut_off import CutOff
from ottla.broker.replication_metrics import ReplicationMetrics, watch
from ottla.broker.throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    Throttle,
    follower_replicas,
    leader_replicas,
)
from ottla.replica.follower import Answer, Failure, Fetcher, Limits
from ottla.replica.leader import IsrChange
from ottla.replica.truncation import Truncation
from ottla.seams.tasks import Tasks
from ottla.seams.waiting import pause
from ottla.settings.option import LONG_MAX
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.channel import ControllerChannel
    from ottla.cluster.image import PartitionImage
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer

log = logging.getLogger("ottla.broker")

# The first pause after an error that may be over in a moment: each one more in a row is twice as
# long, up to `replica.fetch.backoff.ms`. A broker that is killed holds up its clients for less than
# a second in all, so nobody may wait that long for what others learn within milliseconds.
BACKOFF_FIRST_S = 0.01
BACKOFF_DOUBLINGS_MAX = 20
# The leader has not applied the cluster's last changes yet, or this broker has not.
BEHIND = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)
DONE = object()
# Until the controller is asked again for an ISR change, when it did not decide on it.
PROPOSAL_RETRY_S = 0.1
# The controller has decided against it.
REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)
# The controller has another state of the partition. The proposal may have been accepted by an
# earlier request, so it stays until the feed brings that state.
SUPERSEDED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class FetchLoop:
    """Fetches from one leader broker, as long as there are partitions that follow it."""

    def __init__(self, replication: Replication, leader_id: int) -> None:
        self._replication = replication
        self._broker = replication.broker
        self.fetcher = Fetcher(self._broker.node_id, leader_id)
        self._under_way: set[int] = set()  # numbers of requests
        self._answers: deque[Answer] = deque()
        self._appending: Iterator[None] | None = None
        self._paused: Timer | None = None
        self._pauses = 0  # in a row
        self._failures: dict[Partition, int] = {}  # in a row
        self._looks_at_throttle = True  # which partitions it covers is not known

    def follow(self, partition: Partition) -> None:
        """A partition has this leader in a new epoch, so the leader is there: ask it at once."""
        self._failures.pop(partition, None)
        self.fetcher.add(partition)
        self._looks_at_throttle = True
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        # Not at once: the image that has the leader's address is not in use yet.
        self._broker.clock.call_later(0.0, self.wake)

    def unfollow(self, partition: Partition) -> None:
        """A partition has another leader, or none."""
        self._failures.pop(partition, None)
        self.fetcher.remove(partition)

    def wake(self) -> None:
        """Send the next request, unless one is under way or the leader could not be reached."""
        if self._paused is not None or self._appending is not None or self._replication.closed:
            return
        fetcher = self.fetcher
        limits = self._replication.limits
        throttle = self._replication.follower_throttle
        if throttle.active is not None or fetcher.throttled:
            limits = self._throttled(limits, throttle)
        overtakes = bool(self._under_way)
        if overtakes and (len(self._under_way) > 1 or not fetcher.may_overtake):
            return
        request = fetcher.request(limits, self._broker.epoch, overtakes=overtakes)
        if request is not None:
            number = fetcher.number
            self._under_way.add(number)
            self._broker.peers.send(
                fetcher.leader_id, request, lambda response: self._answered(number, response)
            )

    def _throttled(self, limits: Limits, throttle: Throttle) -> Limits:
        """Hold back throttled partitions that are behind, if the quota is exceeded; if it is not,
        let one answer have what it allows, and no more.
        """
        fetcher = self.fetcher
        if self._looks_at_throttle:
            self._looks_at_throttle = False
            covered = filter(throttle.covers, fetcher.partitions) if throttle.active else ()
            fetcher.throttled = dict.fromkeys(covered)
        # Also those of which nothing is known yet.
        behind = [each for each in fetcher.throttled if fetcher.lags.get(each) != 0]
        allowance_bytes = throttle.allowance_bytes if behind else LONG_MAX
        if allowance_bytes > 0:
            fetcher.hold(())
            bytes_max = min(limits.response_bytes_max, allowance_bytes)
            return limits._replace(response_bytes_max=bytes_max)
        if not self._under_way:
            # What a request under way asks for may be on its way already.
            fetcher.hold(behind)
        throttle.wake_later()
        return limits

    def throttle_moved(self) -> None:
        """The quota allows more, or configs have changed."""
        self._looks_at_throttle = True
        self.wake()

    def close(self) -> None:
        if self._paused is not None:
            self._paused.cancel()

    def _answered(self, number: int, response: Any) -> None:
        self._under_way.discard(number)
        if self._replication.closed:
            return
        if isinstance(response, ErrorCode):
            if self.fetcher.lost(number):
                self._pause()
            return
        answer = self.fetcher.answered(number, response)
        if answer is None:
            return
        if answer.error_code:
            self._pause()
            return
        self._pauses = 0
        self._answers.append(answer)
        if self._appending is None:
            self._append_next()

    def _append_next(self) -> None:
        """Take over the answers that have come, in slices, then ask for more."""
        if self._appending is None:
            self._appending = self._answers[0].append(self._broker.clock.now_ms())
        if next(self._appending, DONE) is not DONE:
            self._broker.clock.call_later(0.0, self._append_next)
            return
        self._appending = None
        answer = self._answers.popleft()
        self._replication.metrics.bytes_in.value += answer.bytes_appended
        if answer.throttled_bytes:
            self._replication.follower_throttle.record(answer.throttled_bytes)
        for partition in answer.sound:
            self._failures.pop(partition, None)
        for truncation in answer.truncations:
            self._truncate(truncation)
        for failure in answer.failures:
            self._delay(failure)
        self._broker.clock.call_later(0.0, self._append_next if self._answers else self.wake)

    def _pause(self) -> None:
        """The leader could not be reached, or has lost the session."""
        delay_s = self._replication.backoff_s(self._pauses)
        self._pauses += 1
        if self._paused is None:
            self._paused = self._broker.clock.call_later(delay_s, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self.wake()

    def _delay(self, failure: Failure) -> None:
        partition = failure.partition
        count = self._failures.get(partition, 0)
        self._failures[partition] = count + 1
        replication = self._replication
        soon = failure.error_code in BEHIND
        delay_s = replication.backoff_s(count) if soon else replication.backoff_s_max
        delay = self.fetcher.delay(partition)
        self._broker.clock.call_later(delay_s, lambda: self._end_delay(partition, delay))

    def _end_delay(self, partition: Partition, delay: int) -> None:
        self.fetcher.end_delay(partition, delay)
        self.wake()

    def _truncate(self, truncation: Truncation) -> None:
        """Cut a log, at once where nothing must be done before."""
        partition = truncation.asked.partition
        if truncation.may_be_made_at_once(self._broker.logs):
            truncation.carry_out(self._broker.clock.now_ms())
            return
        delay = self.fetcher.delay(partition)
        self._replication.spawn(self._prepare_and_truncate(truncation, delay))

    async def _prepare_and_truncate(self, truncation: Truncation, delay: int) -> None:
        loses_committed = truncation.loses_committed
        cut = await truncation.prepare_and_carry_out(self._broker.logs, self._broker.clock)
        if cut and loses_committed:
            self._replication.metrics.truncations_below_watermark.value += 1
        self._end_delay(truncation.asked.partition, delay)


class Replication:
    """The replicas of one broker that have others on other brokers."""

    def __init__(self, broker: Broker, channel: ControllerChannel | None) -> None:
        """Without a channel no ISR ever changes: a cluster of one broker has none to change."""
        self.broker = broker
        self.closed = False
        self._channel = channel
        self.metrics = ReplicationMetrics(broker.metrics)
        watch(broker)
        self.leader_throttle = Throttle(
            broker.settings,
            broker.clock,
            LEADER_RATE,
            leader_replicas,
            lambda: broker.purgatory.wake(self.leader_throttle),
        )
        self.leader_throttle.show(broker.metrics, "LeaderReplication")
        self.follower_throttle = Throttle(
            broker.settings,
            broker.clock,
            FOLLOWER_RATE,
            follower_replicas,
            self._follower_throttle_moved,
        )
        self.follower_throttle.show(broker.metrics, "FollowerReplication")
        broker.on_configured += [self.leader_throttle.configure, self.follower_throttle.configure]
        self._loops: dict[int, FetchLoop] = {}
        # The loop that fetches a partition, and the leader epoch in which it does.
        self._following: dict[Partition, tuple[FetchLoop, int]] = {}
        self.leading: dict[Partition, None] = {}
        self._tasks = Tasks()
        self._check: Timer | None = None
        self.cut_off = CutOff(broker)
        self.gave_up = False

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
    def backoff_s_max(self) -> float:
        """The pause after an error that lasts."""
        return self.broker.settings.integer("replica.fetch.backoff.ms") / 1000

    def backoff_s(self, failures: int) -> float:
        """The pause after so many errors in a row and one more."""
        doublings = min(failures, BACKOFF_DOUBLINGS_MAX)
        return min(BACKOFF_FIRST_S * (1 << doublings), self.backoff_s_max)

    @property
    def lag_max_s(self) -> float:
        """How long a follower may lag and stay in the ISR."""
        return self.broker.settings.integer("replica.lag.time.max.ms") / 1000

    @property
    def has_partitions(self) -> bool:
        """Whether there are partitions here with replicas on other brokers."""
        return bool(self.leading or self._following)

    @property
    def fetchers(self) -> list[Fetcher]:
        """What this broker fetches, by leader."""
        return [loop.fetcher for loop in self._loops.values()]

    def assigned(self, partition: Partition) -> None:
        """The partition has a leader, or another epoch: follow it, or watch its followers."""
        if partition.is_leader:
            self.leading[partition] = None
            if self._channel is not None and not self.closed:
                self.cut_off.begin()
            if self._check is None and not self.closed:
                self._check = self.broker.clock.call_later(self.lag_max_s / 2, self._check_lags)
        else:
            self.leading.pop(partition, None)
        follows = (
            not partition.is_leader
            and partition.leader_id >= 0
            and self.broker.node_id in partition.replicas
        )
        loop = self._loop(partition.leader_id) if follows else None
        if loop is not None and self._following.get(partition) == (loop, partition.leader_epoch):
            return
        self._unfollow(partition)
        if loop is not None:
            self._following[partition] = (loop, partition.leader_epoch)
            loop.follow(partition)

    def topic_configured(self) -> None:
        """The configs of a topic have changed: other replicas may be throttled."""
        for throttle in (self.leader_throttle, self.follower_throttle):
            if throttle.active is not None:
                throttle.changed()

    def _follower_throttle_moved(self) -> None:
        for loop in self._loops.values():
            loop.throttle_moved()

    def removed(self, partition: Partition) -> None:
        """The partition's topic was deleted, or its replica here is no more, or the only one."""
        self.leading.pop(partition, None)
        self._unfollow(partition)

    def _unfollow(self, partition: Partition) -> None:
        loop, _ = self._following.pop(partition, (None, -1))
        if loop is not None:
            loop.unfollow(partition)

    def changed(self, partition: Partition) -> None:
        """A follower's records may have been synced, which its next fetch waits for."""
        if partition.group_commit is not None and partition in self._following:
            self._following[partition][0].wake()

    def repaired(self, partition: Partition) -> None:
        """A replica that left the ISR because it was damaged is as good as others again."""
        loop, _ = self._following.get(partition, (None, -1))
        if loop is not None:
            loop.follow(partition)

    async def leave_isr(self, partition: Partition, image: PartitionImage) -> int:
        """Ask the controller to take this broker out of the ISR; the error code."""
        channel, broker = self._channel, self.broker
        if channel is None:
            return ErrorCode.INVALID_REQUEST
        outcome = await channel.alter_partition(
            broker.node_id,
            broker.epoch,
            partition.topic_id,
            partition.index,
            image.leader_epoch,
            image.partition_epoch,
            [(each, -1) for each in image.isr if each != broker.node_id],
        )
        return outcome.error_code

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background until it is done or the broker stops."""
        self._tasks.add(asyncio.create_task(work))

    def close(self) -> None:
        """Stop all loops."""
        self.closed = True
        for loop in self._loops.values():
            loop.close()
        self._tasks.cancel()
        if self._check is not None:
            self._check.cancel()
        self.cut_off.close()
        self.leader_throttle.close()
        self.follower_throttle.close()
        self.broker.peers.close()

    def _loop(self, leader_id: int) -> FetchLoop:
        loop = self._loops.get(leader_id)
        if loop is None:
            loop = self._loops[leader_id] = FetchLoop(self, leader_id)
        return loop

    def log_failed(self, partition: Partition) -> None:
        """A log of this broker is offline until the next start: others lead from now on.

        As in Kafka, where a broker stops when its directory has failed: its other logs are on the
        same disk. It leaves all ISRs too, so that nobody waits for it.
        """
        channel = self._channel
        if channel is not None and partition.sync_failed:
            self.spawn(self.broker.processes.withdraw())
        if channel is None or len(partition.replicas) < 2 or self.gave_up or self.closed:
            return
        self.gave_up = True
        log.error(
            "%s-%d has failed: others lead what this broker led until it is started again",
            partition.topic,
            partition.index,
        )
        self.spawn(self._give_up(channel))

    async def _give_up(self, channel: ControllerChannel) -> None:
        while True:
            outcome = await channel.controlled_shutdown(self.broker.node_id, self.broker.epoch)
            if outcome.error_code not in NOT_ANSWERED:
                return
            await pause(self.broker.clock, PROPOSAL_RETRY_S)

    # The leader's side

    def _check_lags(self) -> None:
        now_s = self.broker.clock.monotonic()
        self._check = None
        for partition in self.leading:
            partition.shrink_isr(now_s, self.lag_max_s)
        if self.leading and not self.closed:
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
                if outcome.leader_epoch > change.leader_epoch:
                    return  # it completed a reassignment: the feed brings the rest
                self._count_change(partition.in_sync, outcome.isr)
                partition.isr_changed(change, outcome.isr, outcome.partition_epoch)
                continue
            self.metrics.isr_updates_failed.value += 1
            if outcome.error_code in REFUSED:
                partition.isr_refused(change)
            elif outcome.error_code in SUPERSEDED:
                return
            else:  # it has not decided, or could not note it: it may when asked again, as in Kafka
                await pause(self.broker.clock, PROPOSAL_RETRY_S)

    def _count_change(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        metrics = self.metrics
        counter = metrics.isr_shrinks if len(after) < len(before) else metrics.isr_expands
        counter.value += 1

    def _broker_epoch(self, partition: Partition, broker_id: int) -> int:
        """The broker epoch with which a member of the ISR was seen, -1 if it was not."""
        if broker_id == self.broker.node_id:
            return self.broker.epoch
        leading = partition.leading
        follower = leading.followers.get(broker_id) if leading is not None else None
        return follower.broker_epoch if follower is not None else -1
