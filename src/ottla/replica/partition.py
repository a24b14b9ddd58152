"""One partition on this broker: its log, its leader, and how much of the log a reader may see.

Synchronous throughout: an append or a read runs to its end. The partition is the only owner of its
high watermark: whatever moves it calls `advance`, and `advance` announces the move to those who
wait (the purgatory, the coordinators), so no caller has to. Nothing above `replica/` reaches the
log but through this class. A disk error takes this partition offline, and no other: every later
request for it is answered with KAFKA_STORAGE_ERROR until the broker is started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.log.failures import CorruptSegment, OffsetOutOfRange
from ottla.log.log import AppendResult, Log, Origin
from ottla.log.reading import extend_to_batch_end
from ottla.log.replicated import InvalidReplica, append_replicated
from ottla.replica.leader import (
    REPEATS_TO_CHECK,
    IsrChange,
    LeaderState,
    enough_replicas,
    high_watermark,
)
from ottla.replica.reads import FetchIsolation, LogReadInfo
from ottla.seams.disk import OutOfDescriptors
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.log.lookup import FoundOffset
    from ottla.log.producers import Producer
    from ottla.log.syncing import FlushMark
    from ottla.metrics import TopicMetrics
    from ottla.replica.group_commit import GroupCommit
    from ottla.settings import LogConfig
    from ottla.wire.batch_header import BatchHeader
    from ottla.wire.out import FileRange

__all__ = ["FetchIsolation", "IsrChange", "LogReadInfo", "Partition", "Watcher"]

logger = logging.getLogger("ottla.replica")


# A lookup in an enum class costs more than a global, and every append and read makes some.
_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK
_TXN_COMMITTED = FetchIsolation.TXN_COMMITTED
_NONE = ErrorCode.NONE
_CLIENT = Origin.CLIENT


class Watcher(Protocol):
    """Wants to know, once, that anything a reader of a partition sees may have changed."""

    def moved(self, partition: Partition) -> None:
        """Called from inside appends: it may only take a note."""


def _ignore_append(partition: Partition, size_bytes: int | None) -> None:
    pass


def _ignore_change(partition: Partition) -> None:
    pass


def _ignore_isr_change(partition: Partition, change: IsrChange) -> None:
    pass


class Partition:
    """A replica that this broker holds. Compared by identity: it is a key of the purgatory.

    Two callbacks announce what waiting requests may depend on:

    - `on_append(partition, size_bytes)`: the log has grown by so many visible bytes, or (None)
      anything a reader sees may have changed. Called from inside appends and reads, so it must not
      run other requests before the caller has returned.
    - `on_change(partition)`: the high watermark has moved after the append that it passes, or
      leadership has changed. Called from outside of appends.

    `on_isr_change(partition, change)`: the leader proposes another ISR, which the controller must
    be asked for. `on_offline(partition)`: its log has failed, maybe in the middle of an append.
    """

    __slots__ = (
        "_alone",
        "_on_append",
        "_on_change",
        "_on_isr_change",
        "_on_offline",
        "_watchers",
        "cut_off",
        "damaged",
        "epoch_start_offset",
        "group_commit",
        "high_watermark",
        "in_sync",
        "index",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "leading",
        "log",
        "metrics",
        "node_id",
        "recovering",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log: Log,
        metrics: TopicMetrics,
        group_commit: GroupCommit | None = None,
        *,
        high_watermark: int = 0,
        on_append: Callable[[Partition, int | None], object] = _ignore_append,
        on_change: Callable[[Partition], object] = _ignore_change,
        on_isr_change: Callable[[Partition, IsrChange], object] = _ignore_isr_change,
        on_offline: Callable[[Partition], object] = _ignore_change,
    ) -> None:
        """`high_watermark` is the checkpointed one: what is beyond it is not known committed.

        A leader that is alone in the ISR moves it to the log's end as soon as it is assigned.
        """
        self.log = log
        self.metrics = metrics
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self.node_id = -1
        self.leader_id = -1
        self.leader_epoch = -1
        self.is_leader = False
        self.epoch_start_offset = log.end_offset
        self.replicas: tuple[int, ...] = ()
        self.in_sync: tuple[int, ...] = ()
        # Whether the leader came from outside the ISR, so that what was committed may be lost.
        self.recovering = False
        # Whether records on this disk are damaged, or may be: outside of the ISR it does not fetch.
        self.damaged = False
        # Whether neither the controller nor all of the ISR reach this leader: another one may lead.
        self.cut_off = False
        # What the leader of a partition with other replicas knows of them; None on all others.
        self.leading: LeaderState | None = None
        self.group_commit = group_commit
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.end_offset))
        self._watchers: dict[Watcher, None] = {}
        self._on_append = on_append
        self._on_change = on_change
        self._on_isr_change = on_isr_change
        self._on_offline = on_offline
        # Leader, only replica, no fsync to wait for: an append is committed at once.
        self._alone = False
        log.on_change = self._log_changed
        self.sync_if_needed()

    def __repr__(self) -> str:
        return f"<partition {self.topic}-{self.index}>"

    # State

    @property
    def offline(self) -> str | None:
        """Why this partition takes no requests, or None."""
        return self.log.offline

    @property
    def standing(self) -> tuple[int, int]:
        """The epoch in which this broker leads and can commit (-1: it does not), and how far all is
        committed: what an acknowledgement waits for (`offset_waits.py`).
        """
        leads = self.is_leader and self.log.offline is None and not self.cut_off
        return self.leader_epoch if leads else -1, self.high_watermark

    @property
    def sync_failed(self) -> bool:
        return self.log.sync_failed

    @property
    def config(self) -> LogConfig:
        """The topic's config as it is in force for this partition."""
        return self.log.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that a reader may ask for."""
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record to be appended (Kafka's LEO)."""
        return self.log.end_offset

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch that this replica is or was in, by the image or by its log."""
        return max(self.leader_epoch, self.log.leader_epoch)

    @property
    def synced_offset(self) -> int:
        """All below it is on this disk. Apart from the high watermark: either may be ahead."""
        return self.log.recovery_point

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return self.log.size_bytes

    @property
    def segment_count(self) -> int:
        """How many segments the log has."""
        return len(self.log.segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided: what a read_committed reader may see."""
        high_watermark = self.high_watermark
        first_unstable = self.log.first_unstable_offset(high_watermark)
        if first_unstable is None or first_unstable > high_watermark:
            return high_watermark
        return first_unstable

    @property
    def producers(self) -> Mapping[int, Producer]:
        """What is known of each producer that wrote here, by producer id."""
        return self.log.producers.by_id

    # Leadership

    def assign(
        self,
        node_id: int,
        leader_id: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        in_sync: tuple[int, ...],
        partition_epoch: int | None = None,
        now_s: float = 0.0,
        recovering: bool = False,
    ) -> None:
        """Take over the cluster's decision about this partition, and announce it.

        An older one than is known already changes nothing. `partition_epoch` None: the next one.
        `recovering`: the leader was elected uncleanly (KIP-966's leader recovery state).
        """
        if leader_epoch < self.leader_epoch:
            return
        leading = self.leading
        if partition_epoch is None:
            partition_epoch = leading.partition_epoch + 1 if leading is not None else 0
        if (
            leading is not None
            and leader_epoch == self.leader_epoch
            and not leading.committed(in_sync, partition_epoch)
        ):
            return
        if leading is not None and replicas != self.replicas:
            leading.replicated_on(replicas, in_sync, now_s)
        self.node_id = node_id
        self.leader_id = leader_id
        self.is_leader = leader_id == node_id
        self.replicas = replicas
        self.in_sync = in_sync
        self.recovering = recovering
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.cut_off = False
            self.epoch_start_offset = self.log.end_offset
            self.leading = None
            if self.is_leader and self.log.offline is None:
                self.log.begin_epoch(leader_epoch)
        if self.is_leader and self.leading is None and len(replicas) > 1:
            self.leading = LeaderState(
                node_id,
                leader_epoch,
                partition_epoch,
                self.epoch_start_offset,
                replicas,
                in_sync,
                now_s,
            )
        self._alone = self.is_leader and self.group_commit is None and replicas == (node_id,)
        if self.log.offline is not None or not self._advance_as_leader():
            self.announce()

    @property
    def has_min_isr(self) -> bool:
        """Whether the committed ISR is as large as acks=-1 asks for."""
        return enough_replicas(
            len(self.in_sync), len(self.replicas), self.log.config.min_insync_replicas
        )

    def mark_cut_off(self, cut_off: bool) -> None:
        """Nothing can be committed here, until it can again; those who wait for it are answered."""
        if self.is_leader and cut_off != self.cut_off:
            self.cut_off = cut_off
            self.announce()

    def successors(self) -> set[int]:
        """The replicas one of which leads if this one was replaced, but for unclean elections."""
        return self.leading.successors(self.has_min_isr) if self.leading is not None else set()

    def isr_changed(self, change: IsrChange, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has accepted a proposal: `isr` is the committed one."""
        leading = self.leading
        if leading is None or change.leader_epoch != self.leader_epoch:
            return
        if leading.committed(isr, partition_epoch):
            self.in_sync = isr
            if not self._advance_as_leader():
                self.announce()

    def isr_refused(self, change: IsrChange) -> None:
        """The controller has not accepted a proposal and never will."""
        if self.leading is not None:
            self.leading.refused(change)
            self._advance_as_leader()

    def shrink_isr(self, now_s: float, lag_max_s: float) -> None:
        """Propose an ISR without the followers that have not caught up for `lag_max_s`."""
        if self.leading is not None and self.log.offline is None:
            change = self.leading.shrink(self.log.end_offset, now_s, lag_max_s)
            if change is not None:
                self._on_isr_change(self, change)

    def remove(self) -> None:
        """Give the partition up: its topic was deleted, or this replica of it is no more. Requests
        that wait for it are answered.

        Not before the caller has removed the topic's other partitions: they look at all of them.
        """
        self.is_leader = self._alone = False
        self.leading = None
        self.log.on_change = None
        self._announce_soon()

    def replace_log(self, log: Log) -> None:
        """Go on with a log that has the same records, in another data directory (KIP-113)."""
        assert log.end_offset == self.log.end_offset, f"{log} is not as {self.log}"
        self.log.on_change = None
        self.log = log
        log.on_change = self._log_changed
        self.sync_if_needed()
        if not self._advance_as_leader():
            self.announce()

    # The high watermark

    def advance(self, high_watermark: int) -> bool:
        """Move the high watermark forward, never back, and announce it; whether it moved."""
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.announce()
        return True

    def synced(self, mark: FlushMark) -> None:
        """All below the mark is on the disk, which may be what the high watermark waits for.

        Or the next fetch of this follower, whose offset acknowledges what is on its disk.
        """
        self.log.finish_flush(mark)
        if not self._advance_as_leader() and not self.is_leader:
            self.announce()

    def follower_fetched(
        self,
        broker_id: int,
        end_offset: int,
        *,
        log_start_offset: int = -1,
        broker_epoch: int = -1,
        now_s: float = 0.0,
        may_join: bool = False,
    ) -> bool:
        """A follower's log ends at `end_offset` and agrees with this one up to there.

        What every in-sync replica has is committed; a follower that `may_join` the ISR and has
        caught up is proposed for it. Returns whether it asks for the same again and again.
        """
        leading = self.leading
        follower = leading.followers.get(broker_id) if leading is not None else None
        if leading is None or follower is None:
            return False
        follower.fetched(end_offset, broker_epoch, self.log.end_offset, now_s)
        if log_start_offset > follower.log_start_offset:
            follower.log_start_offset = log_start_offset
            self._announce_soon()  # a deletion of records may wait for it
        self._advance_as_leader()
        if may_join:
            change = leading.growth(broker_id, self.high_watermark)
            if change is not None:
                self._on_isr_change(self, change)
        return follower.repeats >= REPEATS_TO_CHECK

    def follower_stays(
        self, broker_id: int, end_offset: int, log_start_offset: int, epoch: int, now_s: float
    ) -> bool:
        """Note that a follower in the ISR still has all there is; False if its fetch says more
        than that, and `follower_fetched` must look at it."""
        return (
            self.leading is not None
            and end_offset == self.high_watermark == self.log.end_offset
            and self.leading.stays(broker_id, end_offset, log_start_offset, epoch, now_s)
        )

    def low_watermark(self, is_live: Callable[[int], bool]) -> int:
        """The least log start of the live replicas, as their fetches told this leader (KIP-107)."""
        starts = [self.log.log_start_offset]
        if self.leading is not None:
            followers = self.leading.followers.items()
            starts += [each.log_start_offset for node_id, each in followers if is_live(node_id)]
        return min(starts)

    def _advance_as_leader(self) -> bool:
        return self.is_leader and self.advance(self._committed_end())

    def _committed_end(self) -> int:
        """The high watermark that the end offsets of the replicas allow.

        With fewer replicas in sync than acks=-1 asks for it stands still: what would be committed
        then could be lost with one replica (KIP-966).
        """
        log = self.log
        own = log.end_offset if self.group_commit is None else log.recovery_point
        leading = self.leading
        if leading is None:
            return own
        if not self.has_min_isr:
            return self.high_watermark
        return high_watermark(self.high_watermark, own, leading.end_offsets())

    def announce(self) -> None:
        """Have every request that waits for this partition look at it again."""
        if self._watchers:
            self._call_watchers()
        self._on_change(self)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher.moved` at the next change, and then no more.

        One call, because a reader that has not looked yet need not be called again: the cost of
        an append follows the readers that have seen everything before it.
        """
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Take back a `watch`; nothing happens if there is none."""
        self._watchers.pop(watcher, None)

    def _call_watchers(self) -> None:
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher.moved(self)

    def _announce_soon(self) -> None:
        if self._watchers:
            self._call_watchers()
        self._on_append(self, None)

    def _log_changed(self) -> None:
        """The log start has moved or the log went offline, maybe in the middle of an append."""
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)
        self._announce_soon()
        if self.log.offline is not None:
            self._on_offline(self)

    # Writing

    def append(
        self, records: memoryview, *, acks: int, now_ms: int, header: BatchHeader | None = None
    ) -> AppendResult:
        """Append one batch as the leader. Its answer is due once `high_watermark` has passed it.

        `header`: what the caller has read from the batch already.
        """
        metrics = self.metrics
        metrics.produce_requests.value += 1
        result = self._append(records, acks, now_ms, _CLIENT, len(records), header)
        if result.error_code:
            metrics.failed_produce.value += 1
            return result
        metrics.bytes_in.value += len(records)
        metrics.messages_in.value += result.last_offset + 1 - result.base_offset
        return result

    def append_as_coordinator(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append one batch that this broker itself wrote: coordinator state, or a marker."""
        # A marker may make more visible than its own bytes: every reader looks again.
        result = self._append(records, -1, now_ms, Origin.COORDINATOR, None)
        if result.error_code:
            return result
        # Transactions whose end everybody can see need not be remembered, also when nobody reads.
        try:
            producers = self.log.producers
        except OutOfDescriptors:
            return result  # they are forgotten another time
        if producers.completed:
            producers.forget_completed_below(self.high_watermark)
        return result

    def _append(
        self,
        records: memoryview,
        acks: int,
        now_ms: int,
        origin: Origin,
        size_bytes: int | None,
        header: BatchHeader | None = None,
    ) -> AppendResult:
        if not self.is_leader:
            return AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if self.cut_off and (acks == -1 or self.group_commit is not None):
            return AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and not self._alone and not self.has_min_isr:  # alone it is its own ISR
            return AppendResult(
                ErrorCode.NOT_ENOUGH_REPLICAS, log_start_offset=log.log_start_offset
            )
        try:
            result = log.append(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                header=header,
            )
        except OutOfDescriptors:  # before anything was written
            return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR)
        if result.error_code:
            return result
        if self._alone:
            # As `advance`, from inside an append: only readers can wait, for everything before
            # it was committed.
            if log.end_offset > self.high_watermark:
                self.high_watermark = log.end_offset
                if self._watchers:
                    self._call_watchers()
                self._on_append(self, size_bytes)
        elif self.group_commit is not None and (
            not result.duplicate or log.recovery_point <= result.last_offset
        ):
            self.group_commit.add(self)
        leading = self.leading
        if leading is not None:
            # Followers wait for the log's end. The high watermark moves if nobody else is in sync:
            # of another that is, nothing new is known.
            if len(leading.isr) < 2:
                self.high_watermark = max(self.high_watermark, self._committed_end())
            self._announce_soon()
        return result

    def append_as_follower(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        now_ms: int,
        bytes_max: int = 2**31,
    ) -> tuple[int, ErrorCode]:
        """Append what the leader of `leader_epoch` answered, and take over its high watermark.

        Returns the bytes appended: whole batches, until `bytes_max` is reached. CORRUPT_MESSAGE
        when a batch is not what a leader may send: those before it are appended.
        """
        error, size = _NONE, 0
        try:
            if len(records):
                size = append_replicated(
                    self.log,
                    records,
                    leader_epoch=leader_epoch,
                    now_ms=now_ms,
                    bytes_max=bytes_max,
                )
        except InvalidReplica as problem:
            logger.error("%s-%d: from its leader: %s", self.topic, self.index, problem)
            error = ErrorCode.CORRUPT_MESSAGE
        except OutOfDescriptors:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        except OSError as problem:
            self.go_offline("cannot append", problem)
            return size, ErrorCode.KAFKA_STORAGE_ERROR
        self.sync_if_needed()
        self.advance(min(leader_high_watermark, self.log.end_offset))
        return size, error

    def follow_log_start(self, leader_log_start_offset: int) -> None:
        """Begin where the leader's log does, as far as that is known to be committed here."""
        start = min(leader_log_start_offset, self.high_watermark)
        if start > self.log.log_start_offset:
            try:
                self.log.delete_records_before(start)
            except OutOfDescriptors:
                pass  # with a later answer
            except OSError as problem:
                self.go_offline(f"cannot begin at {start}", problem)

    def sync_if_needed(self) -> None:
        """With `log.flush.before.ack`: sync what is not."""
        if self.group_commit is not None and self.log.recovery_point < self.log.end_offset:
            self.group_commit.add(self)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Cut the log of a follower where it parts from its leader's.

        Below the high watermark only after an unclean election, or if something is broken.
        """
        if offset < self.high_watermark:
            logger.log(
                logging.WARNING if self.recovering else logging.ERROR,
                "%s-%d: cut to offset %d, below its high watermark %d%s",
                self.topic,
                self.index,
                offset,
                self.high_watermark,
                " after an unclean election" if self.recovering else "",
            )
            self.high_watermark = offset
            self._announce_soon()
        try:
            self.log.truncate_to(offset, now_ms=now_ms)
        except OSError as problem:
            self.go_offline(f"cannot truncate to {offset}", problem)

    def restart_at(self, offset: int, *, now_ms: int) -> None:
        """Begin again, empty, at `offset`: the leader has nothing before it."""
        try:
            self.log.truncate_fully(offset, now_ms=now_ms)
        except OSError as problem:
            self.go_offline(f"cannot begin again at {offset}", problem)
        self.high_watermark = offset
        self._announce_soon()

    def delete_records_before(self, offset: int) -> int:
        """Make everything below `offset` unreadable; the log start after it.

        Raises OffsetOutOfRange beyond the log's end, OSError when the disk fails.
        """
        return self.log.delete_records_before(offset)

    # Reading

    def visible_end(self, isolation: FetchIsolation) -> int:
        """The offset at which a reader of this isolation has to wait."""
        if isolation is _HIGH_WATERMARK:
            return self.high_watermark
        if isolation is _TXN_COMMITTED:
            return self.last_stable_offset
        return self.log.end_offset

    def read(
        self,
        offset: int,
        bytes_max: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        first_batch_whole: bool = True,
        last_fetched_epoch: int = -1,
    ) -> LogReadInfo:
        """Find the batches from `offset` on that a reader of this isolation may see.

        Reads no payload: the records are a range of a segment's file, whole batches and, at the
        cut, part of one. The first batch is whole even if larger than `bytes_max`, unless
        `first_batch_whole` is False. With `last_fetched_epoch` the reader's last epoch is
        compared with this log first. Errors are returned, not raised.
        """
        log = self.log
        if log.offline is not None:
            return LogReadInfo(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            high_watermark = self.high_watermark
            last_stable_offset = self.last_stable_offset
            if isolation is _HIGH_WATERMARK:
                end_offset = high_watermark
            elif isolation is _TXN_COMMITTED:
                end_offset = last_stable_offset
            else:
                end_offset = log.end_offset
            at_end = end_offset <= offset <= log.end_offset
            info = LogReadInfo(high_watermark, last_stable_offset, log.log_start_offset, at_end)
            if last_fetched_epoch >= 0 and self._diverges(offset, last_fetched_epoch, info):
                return info
            if at_end:
                return info
            info.records = log.read(offset, bytes_max, end_offset, first_batch_whole)
            if isolation is _TXN_COMMITTED and info.records:
                info.aborted_transactions = log.aborted_transactions(
                    offset, end_offset, found=info.records
                )
        except OffsetOutOfRange as problem:
            return LogReadInfo(error_code=problem.error_code)
        except CorruptSegment as problem:
            self.log_damage(problem)
            return LogReadInfo(error_code=problem.error_code)
        except OSError as problem:
            self.go_offline(f"cannot read at offset {offset}", problem)
            return LogReadInfo(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return info

    def extend_to_batch_end(self, offset: int, found: FileRange, bytes_max: int) -> None:
        """Add to what a follower's read was cut to, up to the end of a batch where it can be."""
        try:
            extend_to_batch_end(self.log.segments, offset, found, bytes_max)
        except OSError as problem:  # of an index, without which the read is as good
            logger.warning("%s-%d: %s", self.topic, self.index, problem)

    def _diverges(self, offset: int, last_fetched_epoch: int, info: LogReadInfo) -> bool:
        """Whether the reader's log parts from this one, or cannot be compared with it (KIP-595)."""
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or end_offset < 0 or offset < self.log.log_start_offset:
            info.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return True
        if epoch < last_fetched_epoch or end_offset < offset:
            info.diverging_epoch = (epoch, end_offset)
            return True
        return False

    def lags(self, offset: int, isolation: FetchIsolation) -> bool:
        """Whether a reader at `offset` has something to read and is in an older segment.

        Kafka answers such a reader without waiting for `min_bytes`.
        """
        segments = self.log.segments
        return len(segments) > 1 and offset < segments[-1].base_offset < self.visible_end(isolation)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known leader epoch not above `epoch`, and its end offset (KIP-101)."""
        return self.log.end_offset_for_epoch(epoch)

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, -1 when it is not known."""
        return self.log.epochs.epoch_for_offset(offset)

    def offset_for_timestamp(self, timestamp: int, *, end_offset: int) -> FoundOffset | None:
        """The first record at or after `timestamp` and below `end_offset`."""
        return self.log.offset_for_timestamp(timestamp, end_offset=end_offset)

    def max_timestamp(self) -> FoundOffset | None:
        """The first record that has the largest timestamp."""
        return self.log.max_timestamp()

    # Errors

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the leader epoch in a request (-1: none) with the current one (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return _NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def error_for_client(self, current_leader_epoch: int = -1) -> ErrorCode:
        """Why a client that must ask the leader gets an error here; NONE when it does not."""
        if self.log.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if current_leader_epoch != -1:
            error = self.check_leader_epoch(current_leader_epoch)
            if error:
                return error
        return _NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def log_damage(self, problem: CorruptSegment) -> None:
        """Log a damaged segment, every time one is read: the operator must know."""
        logger.error("%s-%d: %s", self.topic, self.index, problem)

    def go_offline(self, reason: str, error: OSError | None = None) -> None:
        """Take this partition offline until the next start; the rest of the broker goes on.

        Not for want of a descriptor (see Log.fail).
        """
        self.log.fail(reason, error)
