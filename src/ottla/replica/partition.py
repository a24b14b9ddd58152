"""One partition on this broker: its log, who leads it, and how much of it may be shown.

Synchronous throughout: an append or a read runs to its end. What must wait (a flush, other
replicas) only moves `high_watermark` later; whoever waits for that is parked elsewhere. A disk
error takes this partition offline, and no other: every later request for it is answered with
KAFKA_STORAGE_ERROR until the broker is started again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.log import AppendResult, Log, Origin
from ottla.replica.leader import enough_replicas, high_watermark
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.metrics import TopicMetrics
    from ottla.replica.group_commit import GroupCommit


class Partition:
    """A replica that this broker holds. Compared by identity: it is the key of who waits for it."""

    __slots__ = (
        "epoch_start_offset",
        "group_commit",
        "high_watermark",
        "in_sync",
        "index",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "log",
        "metrics",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self, log: Log, metrics: TopicMetrics, group_commit: GroupCommit | None = None
    ) -> None:
        self.log = log
        self.metrics = metrics
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self.leader_id = -1
        self.leader_epoch = -1
        self.is_leader = False
        self.epoch_start_offset = log.end_offset
        self.replicas: tuple[int, ...] = ()
        self.in_sync: tuple[int, ...] = ()
        self.group_commit = group_commit
        # What a start found was recovered, checked and is all there is: shown, once it is synced.
        self.high_watermark = log.end_offset
        if group_commit is not None and log.recovery_point < log.end_offset:
            self.high_watermark = max(log.recovery_point, log.log_start_offset)
            group_commit.add(self)

    def __repr__(self) -> str:
        return f"<partition {self.topic}-{self.index}>"

    @property
    def offline(self) -> str | None:
        """Why this partition takes no requests, or None."""
        return self.log.offline

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided: what a read_committed reader may see."""
        first_unstable = self.log.first_unstable_offset(self.high_watermark)
        if first_unstable is None or first_unstable > self.high_watermark:
            return self.high_watermark
        return first_unstable

    def assign(
        self,
        node_id: int,
        leader_id: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        in_sync: tuple[int, ...],
    ) -> None:
        """Take over what the cluster has decided about this partition."""
        self.leader_id = leader_id
        self.is_leader = leader_id == node_id
        self.replicas = replicas
        self.in_sync = in_sync
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.epoch_start_offset = self.log.end_offset
            if self.is_leader and self.log.offline is None:
                self.log.begin_epoch(leader_epoch)

    def append(self, records: memoryview, *, acks: int, now_ms: int) -> AppendResult:
        """Append one batch as the leader. Its answer is due once `high_watermark` has passed it."""
        metrics = self.metrics
        metrics.produce_requests.value += 1
        result = self._append(records, acks, now_ms)
        if result.error_code:
            metrics.failed_produce.value += 1
            return result
        metrics.bytes_in.value += len(records)
        metrics.messages_in.value += result.last_offset + 1 - result.base_offset
        return result

    def append_as_coordinator(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append one batch that this broker itself wrote: coordinator state, or a marker."""
        result = self._append(records, -1, now_ms, Origin.COORDINATOR)
        # Transactions whose end everybody can see need not be remembered, also when nobody reads.
        producers = self.log.producers
        if producers.completed:
            producers.forget_completed_below(self.high_watermark)
        return result

    def _append(
        self, records: memoryview, acks: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        if not self.is_leader:
            return AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if acks == -1 and not enough_replicas(
            len(self.in_sync), len(self.replicas), log.config.min_insync_replicas
        ):
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
        if not result.error_code:
            if self.group_commit is None:
                self.high_watermark = log.end_offset
            elif not result.duplicate or log.recovery_point <= result.last_offset:
                self.group_commit.add(self)
        return result

    def synced(self, end_offset: int) -> None:
        """All below `end_offset` is on the disk and may be shown."""
        self.log.finish_flush(end_offset)
        self.high_watermark = high_watermark(self.high_watermark, self.log.recovery_point)

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the epoch a client believes in (-1: it does not say) with ours (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def error_for_client(self, current_leader_epoch: int = -1) -> ErrorCode:
        """Why a client that must ask the leader gets nothing here; NONE when it does."""
        if self.log.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if current_leader_epoch != -1:
            error = self.check_leader_epoch(current_leader_epoch)
            if error:
                return error
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def go_offline(self, reason: str) -> None:
        """Give this partition up until the next start; the rest of the broker goes on."""
        self.log.fail(reason)
