"""Reading what a fetch wants: one partition after the other, within the request's limits.

Nothing is read from a file here; a partition's answer refers to a range of a segment's file. The
first batch found is given whole even where it is over a limit, or its reader could never get past
it. In a session a partition without news has no answer at all: an idle one costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.partitions import missing
from ottla.broker.sessions import NO_TOPIC_ID, Wanted
from ottla.replica.partition import FetchIsolation
from ottla.wire.api.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from ottla.wire.errors import ErrorCode
from ottla.wire.out import FileRange

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition

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

    __slots__ = ("api_version", "broker", "bytes_max", "in_session", "isolation", "replica_id")

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
        if read_committed:
            self.isolation = FetchIsolation.TXN_COMMITTED
        elif replica_id == FUTURE_REPLICA:
            self.isolation = FetchIsolation.LOG_END
        else:
            self.isolation = FetchIsolation.HIGH_WATERMARK
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
        error = self._error(wanted, partition)
        if error:
            partition.metrics.failed_fetch.value += 1
            return failed(wanted.index, error)
        return self._read_partition(wanted, partition, left, nothing_yet)

    def _error(self, wanted: Wanted, partition: Partition) -> ErrorCode:
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
        if self.api_version < ZSTD_FROM and partition.config.compression_type == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.NONE

    @property
    def storage_error(self) -> ErrorCode:
        if self.api_version < STORAGE_ERROR_FROM:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _read_partition(
        self, wanted: Wanted, partition: Partition, left: int, first: bool
    ) -> PartitionData | None:
        """The records and offsets to answer with; None when the session was told them before."""
        bytes_max = wanted.bytes_max if wanted.bytes_max < left else left
        info = partition.read(
            wanted.fetch_offset,
            bytes_max=bytes_max,
            isolation=self.isolation,
            first_batch_whole=first,
            last_fetched_epoch=wanted.last_fetched_epoch,
        )
        error = info.error_code
        if (
            info.at_end
            and self.in_session
            and wanted.told_high_watermark == info.high_watermark
            and wanted.told_log_start_offset == info.log_start_offset
            and info.diverging_epoch is None
            and not error
        ):
            return None
        if not error and bytes_max < 0 and info.diverging_epoch is None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, whose read fails on it
        if error:
            if error is ErrorCode.KAFKA_STORAGE_ERROR:
                error = self.storage_error
            return failed(wanted.index, error)
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=info.high_watermark,
            last_stable_offset=info.last_stable_offset,
            log_start_offset=info.log_start_offset,
            aborted_transactions=None,
            records=b"" if info.records is None else info.records,
        )
        if self.isolation is FetchIsolation.TXN_COMMITTED:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in info.aborted_transactions or ()
            ]
        if info.diverging_epoch is not None:
            epoch, end_offset = info.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return data


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
