"""Whether replicas hold the same batches: for `ottla topics verify` and Kafka's script. Pure.

Replicas of a partition are byte by byte the same, so they are compared batch by batch, from one
offset on: the last offset of each batch and the checksum of its bytes. Compaction is each broker's
own affair: what one has cleaned and another not yet differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.client.admin.replicas import ReplicaRead
    from ottla.client.structs import TopicPartition


class OffsetMismatch(NamedTuple):
    """Where one replica has a batch that ends elsewhere: all behind it cannot be compared."""

    broker: int
    last_offset: int
    other: int
    other_last_offset: int


class ChecksumMismatch(NamedTuple):
    """A batch that differs in its bytes."""

    last_offset: int
    broker: int
    checksum: int
    other: int
    other_checksum: int


Mismatch = OffsetMismatch | ChecksumMismatch


class PartitionCheck:
    """One partition's replicas, compared up to `position`."""

    def __init__(self, replicas: Sequence[int], position: int) -> None:
        self.replicas = tuple(replicas)
        self.position = position
        self.high_watermark = position
        self.batch_count = 0

    @property
    def lag(self) -> int:
        """How many offsets below the greatest high watermark are not compared yet."""
        return max(0, self.high_watermark - self.position)

    def compare(self, reads: Mapping[int, ReplicaRead]) -> list[Mismatch]:
        """Go on over what all replicas have given; what differs.

        After an OffsetMismatch, which is the last, the position stays before it.
        """
        known = [read.high_watermark for read in reads.values() if not read.error_code]
        self.high_watermark = max([self.high_watermark, *known])
        if any(each not in reads or reads[each].error_code for each in self.replicas):
            return []
        found: list[Mismatch] = []
        first, *others = self.replicas
        for batches in zip(*(reads[each].batches for each in self.replicas), strict=False):
            own = batches[0]
            for other, batch in zip(others, batches[1:], strict=True):
                if batch.last_offset != own.last_offset:
                    mismatch = OffsetMismatch(first, own.last_offset, other, batch.last_offset)
                    return [*found, mismatch]
                if batch.checksum != own.checksum:
                    sums = (own.checksum, other, batch.checksum)
                    found.append(ChecksumMismatch(own.last_offset, first, *sums))
            self.position = own.last_offset + 1
            self.batch_count += 1
        return found


def replicas_of(topics: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[int]]:
    """The brokers of each partition, from the description of topics."""
    from ottla.client.structs import TopicPartition

    return {
        TopicPartition(topic["name"], each["partition_index"]): list(each["replica_nodes"])
        for topic in topics
        for each in topic["partitions"]
    }


def offsets_by_broker(
    checks: Mapping[TopicPartition, PartitionCheck],
) -> dict[int, dict[TopicPartition, int]]:
    """What to ask each broker for next."""
    wanted: dict[int, dict[TopicPartition, int]] = {}
    for each, check in checks.items():
        for broker in check.replicas:
            wanted.setdefault(broker, {})[each] = check.position
    return wanted
