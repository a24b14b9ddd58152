"""How a follower's log is cut to what its leader has: what an answer asks for, and the cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.log.truncation import needs_preparation, truncation_prepared
from ottla.replica.truncation_offset import truncation_offset
from ottla.wire.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.log.manager import LogManager
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock
    from ottla.wire.api.fetch import PartitionData


class Asked(NamedTuple):
    """What a request said of a partition."""

    partition: Partition
    leader_epoch: int
    offset: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    high_watermark: int = -1
    number: int = 0  # of the request that said it; an earlier one's answer is not about it

    @property
    def current(self) -> bool:
        """Whether the partition is still as it was when the request was made."""
        return self.is_at(self.offset)

    def is_at(self, offset: int) -> bool:
        """Whether the partition has the leader that was asked, and its log ends at `offset`."""
        partition = self.partition
        return (
            partition.leader_epoch == self.leader_epoch
            and not partition.is_leader
            and partition.end_offset == offset
            and partition.offline is None
        )


class FirstBatch(NamedTuple):
    """The batch in which the leader's log begins, and what came with it."""

    records: bytes
    high_watermark: int
    log_start_offset: int


class Truncation(NamedTuple):
    """The log must be cut to `offset` before the next fetch, if `asked` is still current.

    `restart`: everything goes, because the leader's log begins at `offset`, or inside the batch
    that begins there: then `first`, which no later answer can bring to a log that begins so early.
    """

    asked: Asked
    offset: int
    restart: bool = False
    first: FirstBatch | None = None

    @property
    def loses_committed(self) -> bool:
        """Whether records go that this replica knows to be committed, without a reason for it.

        An unclean election is one, and so is retention at the leader.
        """
        partition = self.asked.partition
        return (
            not self.restart and not partition.recovering and self.offset < partition.high_watermark
        )

    def may_be_made_at_once(self, logs: LogManager) -> bool:
        """Whether nothing must be prepared on the disk before the cut."""
        log = self.asked.partition.log
        return not (
            self.restart or self.loses_committed or needs_preparation(logs, log, self.offset)
        )

    async def prepare_and_carry_out(self, logs: LogManager, clock: Clock) -> bool:
        """Cut the log once the disk is prepared for it; whether it was cut."""
        partition = self.asked.partition
        offset = 0 if self.restart else self.offset
        try:
            async with truncation_prepared(
                logs, partition.log, offset, set_aside=self.loses_committed
            ) as cut:
                cut.done = self.carry_out(clock.now_ms())
        except OSError as problem:
            partition.go_offline(f"cannot be cut to {self.offset}", problem)
            return False
        partition.sync_if_needed()
        return cut.done

    def carry_out(self, now_ms: int) -> bool:
        """Cut the log, unless the partition has changed since; whether it was cut."""
        if not self.asked.current:
            return False
        partition = self.asked.partition
        if self.restart:
            partition.restart_at(self.offset, now_ms=now_ms)
            if self.first is not None:
                partition.append_as_follower(
                    memoryview(self.first.records),
                    leader_epoch=self.asked.leader_epoch,
                    leader_high_watermark=self.first.high_watermark,
                    now_ms=now_ms,
                )
                partition.follow_log_start(self.first.log_start_offset)
        else:
            partition.truncate_to(self.offset, now_ms=now_ms)
        return True


def truncation_for(asked: Asked, data: PartitionData) -> Truncation | None:
    """The cut that an answer asks for, if it does."""
    diverging = data.diverging_epoch
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        if data.log_start_offset > asked.offset:
            # The leader's log begins beyond this one's end: retention went on without it.
            return Truncation(asked, data.log_start_offset, restart=True)
        if 0 <= diverging.end_offset < asked.offset:
            # It ends before this one's end, and nothing is known of epochs.
            return Truncation(asked, diverging.end_offset)
        return None
    if data.error_code:
        return None
    if diverging.epoch < 0:
        return beginning_inside_a_batch(asked, data)
    partition = asked.partition
    own_epoch, own_end_offset = partition.end_offset_for_epoch(diverging.epoch)
    return Truncation(
        asked,
        truncation_offset(
            diverging.epoch, diverging.end_offset, own_epoch, own_end_offset, asked.offset
        ),
    )


def beginning_inside_a_batch(asked: Asked, data: PartitionData) -> Truncation | None:
    """Where records were deleted up to the middle of a batch, an empty log begins with that batch.

    Its offset is before the leader's log start, and so before this log's end.
    """
    log = asked.partition.log
    records: object = data.records
    if log.size_bytes or not records:
        return None
    found = records if isinstance(records, memoryview) else memoryview(records)  # type: ignore[arg-type]
    if len(found) < HEADER_BYTES:
        return None
    header = BatchHeader(found, 0)
    if not header.base_offset < asked.offset <= header.last_offset or len(found) < header.size:
        return None
    first = FirstBatch(bytes(found[: header.size]), data.high_watermark, data.log_start_offset)
    return Truncation(asked, header.base_offset, restart=True, first=first)
