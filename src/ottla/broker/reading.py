"""Reading what a fetch request asks for: one partition after the other, within its limits.

Nothing is read from a file here; a partition's answer refers to a range of a segment's file. The
first batch found is given whole even where it is over a limit, or its reader could never get past
it. In a session a partition without anything new has no answer, and is not looked at again until
it moves.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ottla.broker.partitions import missing
from ottla.broker.replica_selection import preferred_read_replica
from ottla.broker.sessions import NO_TOPIC_ID, NO_TOPICS, CachedPartition, FetchSession
from ottla.replica.partition import FetchIsolation
from ottla.security.acls import Operation, ResourceType
from ottla.wire.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights
    from ottla.broker.broker import Broker
    from ottla.broker.throttle import Throttle
    from ottla.replica.partition import Partition

# Clients before it do not know KAFKA_STORAGE_ERROR; with "not the leader" they look elsewhere.
STORAGE_ERROR_FROM = 6
# Before it, clients cannot know zstd.
ZSTD_FROM = 10
# Clients before it read from leaders only.
ANY_REPLICA_FROM = 11
# How often the partitions of a follower that do not move are looked at: well within the shortest
# `replica.lag.time.max.ms` that makes sense.
NOTE_ALL_S = 0.5
# A replica being built beside another on the same broker; it reads to the log's end.
FUTURE_REPLICA = -3

# A lookup in an enum class costs more than a global, and every partition read makes several.
_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK
_LOG_END = FetchIsolation.LOG_END
_TXN_COMMITTED = FetchIsolation.TXN_COMMITTED
_NONE = ErrorCode.NONE
# What most answers have in these fields, made once. Nobody changes them: an answer that differs
# gets an object of its own.
_NO_EPOCH = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()

# A partition, what is answered, and the bytes of its records.
Answer = tuple[CachedPartition, PartitionData, int]


class Outcome:
    """The result of one pass over the partitions of a request."""

    __slots__ = (
        "answers",
        "available_bytes",
        "erroneous",
        "follower_is_behind",
        "held",
        "must_answer",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        # Partitions that do not exist: they come last, and alone do not end a wait.
        self.erroneous: list[Answer] = []
        self.must_answer = False
        # A follower does not know a high watermark or log start: it waits for records not for long.
        self.follower_is_behind = False
        # Partitions with records that a throttle holds back for now.
        self.held: set[CachedPartition] | tuple[()] = ()
        self.size_bytes = 0
        # What counts towards min_bytes: what is sent, and what is there but found no space. A wait
        # for more would change nothing (Kafka's DelayedFetch counts the same).
        self.available_bytes = 0


class Reader:
    """Reads on behalf of one fetch request."""

    __slots__ = (
        "_any_replica",
        "_arriving",
        "_listener",
        "_rack",
        "_throttled_left",
        "api_version",
        "broker",
        "bytes_max",
        "denied",
        "isolation",
        "replica_epoch",
        "replica_id",
        "rights",
        "session",
        "throttle",
        "watches",
    )

    def __init__(
        self,
        broker: Broker,
        api_version: int,
        replica_id: int,
        replica_epoch: int,
        read_committed: bool,
        bytes_max: int,
        session: FetchSession | None,
        rack: str,
        listener: str,
    ) -> None:
        """`replica_epoch`: the broker epoch of a follower, which changes when it restarts.

        `rack`: where a consumer is, and `listener`: through which it came.
        """
        self.broker = broker
        self.api_version = api_version
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        # The first read of a request: later ones, after a wait, say nothing new of a follower.
        self._arriving = True
        self.isolation = _HIGH_WATERMARK
        if replica_id >= 0 or replica_id == FUTURE_REPLICA:
            self.isolation = _LOG_END
        elif read_committed:
            self.isolation = _TXN_COMMITTED
        self.bytes_max = bytes_max
        self.session = session
        # A consumer may read from followers too (KIP-392).
        self._any_replica = replica_id < 0 and api_version >= ANY_REPLICA_FROM
        self._rack = rack if self._any_replica and broker.selects_replicas else ""
        self._listener = listener
        # A follower's reads may be throttled (KIP-73), here by what is left for this answer.
        self.throttle = broker.replication.leader_throttle.active if replica_id >= 0 else None
        self._throttled_left = 0
        # Whether this reader may rely on being called when a partition of its session moves. A
        # partition calls when the high watermark moves, and when its log does if it has followers;
        # and a client too old for zstd must be given an error as soon as a topic is configured for
        # it.
        self.watches = (
            session is not None and api_version >= ZSTD_FROM and replica_id != FUTURE_REPLICA
        )

        # Topics that may not be read (authorization/fetching.py), and the rights of a consumer.
        self.denied: Container[str | None] = NO_TOPICS
        self.rights: Rights | None = None

    def read(self, partitions: Iterable[CachedPartition]) -> Outcome:
        """Read every partition in turn, as far as the limits allow."""
        outcome = Outcome()
        answers = outcome.answers
        left = self.bytes_max
        session = self.session
        throttle = self.throttle
        if throttle is not None:
            self._throttled_left = throttle.allowance_bytes
        if session is not None:
            session.moved = False
        if self._arriving and self.replica_id >= 0:
            self.broker.replication.cut_off.fetched(self.replica_id)
            if session is not None:
                self._note_all(session)
        for cached in partitions:
            data = self._read_one(cached, left, outcome)
            if data is None:
                continue
            records = data.records
            size = records.size if isinstance(records, FileRange) else 0
            answers.append((cached, data, size))
            outcome.size_bytes += size
            outcome.available_bytes += size
            left = left - size if left > size else 0
            if (
                data.error_code
                or data.diverging_epoch.epoch >= 0
                or data.preferred_read_replica >= 0
            ):
                outcome.must_answer = True
            elif (
                self.replica_id >= 0
                and cached not in outcome.held
                and is_behind(cached, data.high_watermark, data.log_start_offset)
            ):
                outcome.follower_is_behind = True
        self._arriving = False
        return outcome

    def partition(self, cached: CachedPartition) -> Partition | None:
        """The partition itself, if it is here."""
        if cached.topic is None:
            return None
        return self.broker.partitions.get(cached.topic, cached.index)

    def _read_one(
        self, cached: CachedPartition, left: int, outcome: Outcome
    ) -> PartitionData | None:
        topic = cached.topic
        if topic is None:
            # The topic may have become known since the session began.
            topic = cached.topic = self.broker.image.topic_name(cached.topic_id)
            if topic is not None and self.rights is not None:
                self._ask_for(topic, self.rights)
        if self.denied and topic in self.denied:
            answer = unknown(cached.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            outcome.erroneous.append((cached, answer, 0))
            return None
        partition = None if topic is None else self.broker.partitions.get(topic, cached.index)
        if partition is None:
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                error = missing(self.broker.image, topic, cached.index, self.broker.node_id)
                if error is ErrorCode.KAFKA_STORAGE_ERROR:
                    error = self.storage_error
                if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return failed(cached.index, error)
            outcome.erroneous.append((cached, unknown(cached.index, error), 0))
            return None
        error = self._error(cached, partition)
        if error:
            partition.metrics.failed_fetch.value += 1
            return failed(cached.index, error)
        return self._read_partition(cached, partition, left, outcome)

    def _ask_for(self, topic: str, rights: Rights) -> None:
        """A topic was not known when the request came."""
        if not rights.allows(Operation.READ, ResourceType.TOPIC, topic):
            self.denied = frozenset((topic,)).union(
                self.denied if isinstance(self.denied, frozenset) else ()
            )
        if self.session is not None:
            self.session.rights_state = None  # all are asked for with the next request

    def _error(self, cached: CachedPartition, partition: Partition) -> ErrorCode:
        """Why this partition is not read at all; NONE when it is."""
        if cached.topic_id != partition.topic_id and cached.topic_id != NO_TOPIC_ID:
            offline = partition.offline is not None
            return self.storage_error if offline else ErrorCode.INCONSISTENT_TOPIC_ID
        error = partition.error_for_client(cached.current_leader_epoch)
        if error and not (
            error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            and self._any_replica
            and self.broker.node_id in partition.replicas
        ):
            return self.storage_error if error is ErrorCode.KAFKA_STORAGE_ERROR else error
        if self.replica_id >= 0 and (
            self.replica_id not in partition.replicas or self.replica_id == self.broker.node_id
        ):
            # Not one of this partition's replicas, or not yet: it will ask again.
            known_epoch = cached.current_leader_epoch >= 0
            return (
                ErrorCode.UNKNOWN_LEADER_EPOCH if known_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if self.api_version < ZSTD_FROM and partition.config.compression_type == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return _NONE

    @property
    def storage_error(self) -> ErrorCode:
        """The error for a broken disk, as the client's version knows it."""
        if self.api_version < STORAGE_ERROR_FROM:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _read_partition(
        self, cached: CachedPartition, partition: Partition, left: int, outcome: Outcome
    ) -> PartitionData | None:
        """The records and offsets to answer with; None when the session has answered them."""
        if self._rack and (elsewhere := self._elsewhere(cached, partition)) is not None:
            return elsewhere
        if (
            self.watches
            and self.replica_id < 0
            and cached.fetch_offset == cached.answered_high_watermark == partition.high_watermark
            and cached.answered_log_start_offset == partition.log_start_offset
            and cached.last_fetched_epoch < 0
        ):
            # A consumer that has all there is, as after most of its requests: nothing to look up.
            assert self.session is not None
            self.session.watch(cached, partition)
            return None
        bytes_max = cached.bytes_max if cached.bytes_max < left else left
        throttled = self.throttle is not None and self._must_wait(self.throttle, partition)
        allowed = min(bytes_max, self._throttled_left) if throttled else bytes_max
        info = partition.read(
            cached.fetch_offset,
            allowed,
            self.isolation,
            not outcome.size_bytes and (not throttled or allowed > 0),  # the first batch whole
            cached.last_fetched_epoch,
        )
        error = info.error_code
        if self.replica_id >= 0 and self._arriving and not error and info.diverging_epoch is None:
            self._note_follower(cached, partition)
            info.high_watermark = partition.high_watermark
        if (
            info.at_end
            and self.session is not None
            and cached.answered_high_watermark == info.high_watermark
            and cached.answered_log_start_offset == info.log_start_offset
            and info.diverging_epoch is None
            and not error
            and (
                self.replica_id < 0
                or not is_behind(cached, info.high_watermark, info.log_start_offset)
            )
        ):
            if self.watches:
                self.session.watch(cached, partition)
            return None
        if (
            throttled
            and info.records is not None
            and not self._pass(cached, partition, info.records, bytes_max, outcome)
            and self.session is not None
            and cached.answered_log_start_offset == info.log_start_offset
        ):
            return None  # still ready: what it has may pass with the next answer
        if not error and bytes_max < 0 and info.diverging_epoch is None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, whose read fails on it
        if error:
            if error is ErrorCode.KAFKA_STORAGE_ERROR:
                error = self.storage_error
            answer = failed(cached.index, error)
            if self.replica_id >= 0 and error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Where it begins again, or where its log must end.
                answer.log_start_offset = partition.log_start_offset
                answer.diverging_epoch = EpochEndOffset(end_offset=partition.end_offset)
            return answer
        records: FileRange | bytes = b""
        if info.records is not None:
            if info.records.size:
                records = info.records
            else:
                outcome.available_bytes += allowed
        data = PartitionData(
            partition_index=cached.index,
            high_watermark=info.high_watermark,
            last_stable_offset=info.last_stable_offset,
            log_start_offset=info.log_start_offset,
            diverging_epoch=_NO_EPOCH,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=None,
            records=records,
        )
        if self.isolation is _TXN_COMMITTED:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in info.aborted_transactions or ()
            ]
        if info.diverging_epoch is not None:
            epoch, end_offset = info.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return data

    def _must_wait(self, throttle: Throttle, partition: Partition) -> bool:
        """Whether the follower waits when the quota is exceeded; an in-sync one does not."""
        return self.replica_id not in partition.in_sync and throttle.covers(partition)

    def _pass(
        self,
        cached: CachedPartition,
        partition: Partition,
        records: FileRange,
        bytes_max: int,
        outcome: Outcome,
    ) -> bool:
        """Let throttled records pass; False if the partition's are held back."""
        left = self._throttled_left
        if left <= 0:
            if not outcome.held:
                outcome.held = set()
            outcome.held.add(cached)
            return False
        if records.size == left < bytes_max:
            # The part of a batch would be sent again: of a low rate it is much.
            partition.extend_to_batch_end(cached.fetch_offset, records, bytes_max)
        self._throttled_left = max(left - records.size, 0)
        return True

    def _elsewhere(self, cached: CachedPartition, partition: Partition) -> PartitionData | None:
        """The answer for a consumer that should read from another replica, if there is one."""
        broker = self.broker
        preferred = preferred_read_replica(
            self._rack, partition, cached.fetch_offset, broker.image, self._listener
        )
        if preferred is None:
            return None
        return PartitionData(
            partition_index=cached.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=preferred,
            records=b"",
        )

    def _note_all(self, session: FetchSession) -> None:
        """Count the partitions that do not move as fetched too, from time to time: a follower that
        stays at their end has caught up, and may join their ISR.
        """
        now_s = self.broker.clock.monotonic()
        if now_s - session.noted_s < NOTE_ALL_S:
            return
        session.noted_s = now_s
        follower, epoch = self.replica_id, self.replica_epoch
        registered = self.broker.image.brokers.get(follower)
        if registered is not None and 0 <= epoch < registered.epoch:
            return  # it has restarted since
        for cached in session.partitions.values():
            partition = cached.watched
            if (
                partition is not None
                and partition.leader_epoch == cached.current_leader_epoch
                and not partition.follower_stays(
                    follower, cached.fetch_offset, cached.log_start_offset, epoch, now_s
                )
            ):
                self._note_follower(cached, partition)

    def _note_follower(self, cached: CachedPartition, partition: Partition) -> None:
        """Count what a follower has, unless it has restarted since it sent this request.

        It may join the ISR as the process that is registered now (KIP-903), and not while it is
        fenced or shutting down (KIP-841).
        """
        broker = self.broker
        registered = broker.image.brokers.get(self.replica_id)
        known_epoch = registered.epoch if registered is not None else -1
        if self.replica_epoch >= 0 and self.replica_epoch < known_epoch:
            return
        stuck = partition.follower_fetched(
            self.replica_id,
            cached.fetch_offset,
            log_start_offset=cached.log_start_offset,
            broker_epoch=self.replica_epoch,
            now_s=broker.clock.monotonic(),
            may_join=registered is not None
            and registered.active
            and self.replica_epoch == known_epoch,
        )
        if stuck:
            broker.repairs.suspect(partition, cached.fetch_offset)


def is_behind(cached: CachedPartition, high_watermark: int, log_start_offset: int) -> bool:
    """Whether a follower knows an old high watermark or log start."""
    return (
        high_watermark > cached.known_high_watermark
        or log_start_offset > cached.log_start_offset >= 0
    )


def unknown(index: int, error_code: ErrorCode) -> PartitionData:
    """The answer for a partition that does not exist."""
    return PartitionData(
        partition_index=index, error_code=error_code, high_watermark=-1, records=b""
    )


def failed(index: int, error_code: ErrorCode) -> PartitionData:
    """The answer for a partition that exists and could not be read."""
    return PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
