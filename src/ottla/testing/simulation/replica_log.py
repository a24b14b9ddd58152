"""The batches of a replica's log, read again only as far as they may have changed."""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.segment import Segment
from ottla.replica.partition import Partition
from ottla.wire.batch_header import HEADER_BYTES


class BatchId(NamedTuple):
    """What tells one batch of a log from any other: its place, its epoch, and its content."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int

    def __str__(self) -> str:
        return (
            f"offsets {self.base_offset} to {self.last_offset} of epoch {self.leader_epoch} "
            f"(crc {self.crc:08x})"
        )


class ReplicaLog:
    """All batches of one opened partition, in order."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.batches: list[BatchId] = []
        self._segment = -1  # base offset of the one that the last batch is in
        self._position = 0  # where the last batch begins there

    def read(self) -> list[BatchId]:
        """The batches as they are now. The list is the same one each time."""
        segments = [each for each in self.partition.log.segments if each.size_bytes]
        start = self._continue(segments)
        if start is None:
            self.batches.clear()
            self._segment, start = -1, 0
        for segment in segments:
            if segment.base_offset < self._segment:
                continue
            if segment.base_offset > self._segment:
                start = 0
            for batch in segment.batches(start):
                self.batches.append(
                    BatchId(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc)
                )
                self._segment, self._position = segment.base_offset, batch.position
        return self.batches

    def _continue(self, segments: list[Segment]) -> int | None:
        """Where to read on, if the last batch is still where it was."""
        if not self.batches:
            return None
        for segment in segments:
            if segment.base_offset == self._segment:
                if segment.size_bytes < self._position + HEADER_BYTES:
                    return None
                batch = segment.batch_at(self._position)
                found = BatchId(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc)
                return self._position + batch.size if found == self.batches[-1] else None
        return None


def content(partition: Partition) -> bytes:
    """The bytes of all segments, from the log's start."""
    return b"".join(
        segment.file.pread(segment.size_bytes, 0)
        for segment in partition.log.segments
        if segment.size_bytes
    )


def producer_states(partition: Partition) -> tuple[tuple[int, int, int, int, int], ...]:
    """Of each producer: id, epoch, last sequence, its offset, where its transaction began."""
    return tuple(
        (
            producer_id,
            each.epoch,
            each.last_sequence,
            each.last_offset,
            each.transaction_first_offset,
        )
        for producer_id, each in sorted(partition.log.producers.by_id.items())
    )
