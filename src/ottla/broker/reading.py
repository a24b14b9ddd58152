"""Reading what a fetch wants: one partition after the other, within the request's limits.

Nothing is read from a file here; a partition's answer refers to a range of a segment's file. The
first batch found is given whole even where it is over a limit, or its reader could never get past
it. In a session a partition without news has no answer at all: an idle one costs next to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.partitions import missing
from ottla.broker.sessions import NO_TOPIC_ID, Wanted
from ottla.log.failures import CorruptSegment, OffsetOutOfRange
from ottla.wire.api.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from ottla.wire.errors import ErrorCode
from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition

logger = logging.getLogger("ottla.broker")

# Before it, a broken disk is told as "not the leader", so that the client looks elsewhere.
STORAGE_ERROR_FROM = 6
# Before it, clients cannot know zstd.
ZSTD_FROM = 10
# A replica being built beside another on the same broker; it reads to the log's end.
FUTURE_REPLICA = -3

Answer = tuple[Wanted, PartitionData]


class Outcome:
    """What one pass over the wanted partitions found."""

    __slots__ = ("answers", "erroneous", "must_answer", "size_bytes")

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        # Partitions that do not exist: they come last, and alone do not end a wait.
        self.erroneous: list[Answer] = []
        self.must_answer = False
        self.size_bytes = 0


class Reader:
    """Reads on behalf of one fetch request."""

    __slots__ = ("api_version", "broker", "bytes_max", "in_session", "read_committed", "replica_id")

    def __init__(
        self,
        broker: Broker,
        *,
        api_version: int,
        replica_id: int,
        read_committed: bool,
        bytes_max: int,
        in_session: bool,
    ) -> None:
        self.broker = broker
        self.api_version = api_version
        self.replica_id = replica_id
        self.read_committed = read_committed
        self.bytes_max = bytes_max
        self.in_session = in_session

    def read(self, items: Iterable[Wanted]) -> Outcome:
        """Read every wanted partition in turn, as far as the limits allow."""
        outcome = Outcome()
        answers = outcome.answers
        left = self.bytes_max
        for wanted in items:
            data = self._read_one(wanted, left, not outcome.size_bytes, outcome)
            if data is None:
                continue
            answers.append((wanted, data))
            size = records_size(data)
            outcome.size_bytes += size
            left = left - size if left > size else 0
            if data.error_code or data.diverging_epoch.epoch >= 0:
                outcome.must_answer = True
        return outcome

    def partition(self, wanted: Wanted) -> Partition | None:
        """The partition that is wanted, if it is here."""
        if wanted.topic is None:
            return None
        return self.broker.partitions.get(wanted.topic, wanted.index)

    def _read_one(
        self, wanted: Wanted, left: int, nothing_yet: bool, outcome: Outcome
    ) -> PartitionData | None:
        if wanted.topic is None:
            # The topic may have become known since the session began.
            wanted.topic = self.broker.image.topic_name(wanted.topic_id)
        partition = self.partition(wanted)
        if partition is None:
            if wanted.topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                error = missing(self.broker.image, wanted.topic, wanted.index, self.broker.node_id)
                if error is ErrorCode.KAFKA_STORAGE_ERROR:
                    error = self.storage_error
                if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return failed(wanted.index, error)
            outcome.erroneous.append((wanted, unknown(wanted.index, error)))
            return None
        error = self._refusal(wanted, partition)
        if error:
            partition.metrics.failed_fetch.value += 1
            return failed(wanted.index, error)
        return self._read_log(wanted, partition, left, nothing_yet)

    def _refusal(self, wanted: Wanted, partition: Partition) -> ErrorCode:
        """Why this partition is not read at all; NONE when it is."""
        if partition.offline is not None:
            return self.storage_error
        if wanted.topic_id != partition.topic_id and wanted.topic_id != NO_TOPIC_ID:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        error = partition.error_for_client(wanted.current_leader_epoch)
        if error:
            return error
        if self.replica_id >= 0:
            # Not one of this partition's replicas, or not yet: it will ask again.
            known_epoch = wanted.current_leader_epoch >= 0
            return (
                ErrorCode.UNKNOWN_LEADER_EPOCH if known_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if self.api_version < ZSTD_FROM and partition.log.config.compression_type == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.NONE

    @property
    def storage_error(self) -> ErrorCode:
        if self.api_version < STORAGE_ERROR_FROM:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _read_log(
        self, wanted: Wanted, partition: Partition, left: int, nothing_yet: bool
    ) -> PartitionData | None:
        """The records and offsets to answer with; None when the session was told them before."""
        index, offset = wanted.index, wanted.fetch_offset
        log = partition.log
        high_watermark = partition.high_watermark
        log_start_offset = log.log_start_offset
        last_stable_offset = partition.last_stable_offset
        if self.read_committed:
            end_offset = last_stable_offset
        else:
            end_offset = log.end_offset if self.replica_id == FUTURE_REPLICA else high_watermark
        idle = end_offset <= offset <= log.end_offset
        if (
            idle
            and self.in_session
            and wanted.last_fetched_epoch < 0
            and wanted.told_high_watermark == high_watermark
            and wanted.told_log_start_offset == log_start_offset
        ):
            return None
        data = PartitionData(
            partition_index=index,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if self.read_committed else None,
            records=b"",
        )
        if wanted.last_fetched_epoch >= 0:
            error = _diverge(wanted, partition, data)
            if error:
                return failed(index, error)
            if data.diverging_epoch.epoch >= 0:
                return data
        bytes_max = wanted.bytes_max if wanted.bytes_max < left else left
        if bytes_max < 0:  # Kafka trips over it
            return failed(index, ErrorCode.UNKNOWN_SERVER_ERROR)
        if idle:
            return data
        try:
            records = log.read(
                offset, bytes_max=bytes_max, end_offset=end_offset, first_batch_whole=nothing_yet
            )
            if records is not None:
                data.records = records
                if self.read_committed:
                    data.aborted_transactions = _aborted(partition, offset, end_offset, records)
        except OffsetOutOfRange as problem:
            return failed(index, problem.error_code)
        except CorruptSegment as problem:
            log_damage(partition, problem)
            return failed(index, problem.error_code)
        except OSError as problem:
            partition.go_offline(f"cannot read at offset {offset}: {problem}")
            self.broker.purgatory.wake(partition)
            return failed(index, self.storage_error)
        return data


def log_damage(partition: Partition, problem: CorruptSegment) -> None:
    """Told every time: somebody reads what is no longer there, and the operator must know."""
    logger.error("%s-%d: %s", partition.topic, partition.index, problem)


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


def records_size(data: PartitionData) -> int:
    """How many bytes of records an answer refers to."""
    records = data.records
    return records.size if isinstance(records, FileRange) else 0


def lags_behind(wanted: Wanted, partition: Partition) -> bool:
    """Is there something to read, and more in a later segment? Kafka then does not wait."""
    segments = partition.log.segments
    return (
        len(segments) > 1
        and wanted.fetch_offset < segments[-1].base_offset < partition.high_watermark
    )


def _diverge(wanted: Wanted, partition: Partition, data: PartitionData) -> ErrorCode:
    """Compare the last epoch the reader has with ours; note where the two logs part (KIP-595)."""
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or wanted.fetch_offset < partition.log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return ErrorCode.NONE


def _aborted(
    partition: Partition, offset: int, end_offset: int, records: FileRange
) -> list[AbortedTransaction]:
    """The aborted transactions among what is read: the reader skips their records."""
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in partition.log.aborted_transactions(offset, end_offset, found=records)
    ]
