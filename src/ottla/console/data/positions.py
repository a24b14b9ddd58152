"""Where partitions begin and end, and where a reader wants to begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin import Admin, OffsetSpec, OffsetTimestamp
from ottla.client.errors import CorruptRecordException
from ottla.client.structs import TopicPartition

from ..context import Cluster
from .work import Problem

PARTITIONS_MAX = 200  # of one topic that are read at once
SAMPLE_OFFSETS = 100  # of each partition
SAMPLE_RECORDS_MAX = 1_000
SAMPLE_PARTITION_BYTES = 64 * 1024
SAMPLE_BYTES = 4 * 1024 * 1024


class Bounds(NamedTuple):
    """The offsets that a partition has: from `start` to before `end`."""

    start: int
    end: int

    def within(self, offset: int) -> int:
        return min(max(offset, self.start), self.end)


def partitions_of(cluster: Cluster, topic: str) -> list[int]:
    """All partitions of a topic: from the picture, else by asking the cluster."""
    known = cluster.picture.topics.get(topic)
    if known is not None:
        return [each.partition for each in known.partitions]
    for found in cluster.admin().describe_topics([topic]):
        if not found["error_code"]:
            return sorted(each["partition_index"] for each in found["partitions"])
    raise Problem(f"The cluster {cluster.name} has no topic {topic!r}.")


def chosen(known: Iterable[int], wanted: str) -> list[int]:
    """Partitions as a reader writes them: `0,3,5-8`; nothing stands for all."""
    every = list(known)
    if wanted.strip():
        picked: set[int] = set()
        for part in wanted.split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise Problem(f"Partitions: numbers and ranges as 0,3,5-8 (got {wanted!r}).")
            low, high = int(first), int(last) if dash else int(first)
            picked.update(each for each in every if low <= each <= high)
        every = sorted(picked)
        if not every:
            raise Problem(f"Partitions: the topic has none of {wanted}.")
    if len(every) > PARTITIONS_MAX:
        raise Problem(
            f"The topic has {len(every)} partitions and at most {PARTITIONS_MAX} are read at once: "
            f"choose some of them, as 0-{PARTITIONS_MAX - 1}."
        )
    return every


def bounds_of(
    admin: Admin, topic: str, partitions: Iterable[int], isolation_level: str = "read_uncommitted"
) -> dict[int, Bounds]:
    """What each partition has now; with `read_committed`, up to its last stable offset."""
    wanted = [TopicPartition(topic, each) for each in partitions]
    starts = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    ends = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), isolation_level)
    return {each.partition: Bounds(starts[each].offset, ends[each].offset) for each in wanted}


def at_time(admin: Admin, topic: str, bounds: Mapping[int, Bounds], time_ms: int) -> dict[int, int]:
    """The first offset of each partition whose record is of this time or later; its end where
    there is none."""
    found = admin.list_partition_offsets(
        {TopicPartition(topic, each): OffsetTimestamp(time_ms) for each in bounds}
    )
    return {
        each: bounds[each].within(offset) if offset >= 0 else bounds[each].end
        for each in bounds
        for offset in (found[TopicPartition(topic, each)].offset,)
    }


def sample(admin: Admin, topic: str, bounds: Mapping[int, Bounds]) -> list[bytes | None]:
    """Values of the newest records of each partition, as many as one answer has."""
    offsets = {
        TopicPartition(topic, index): max(each.start, each.end - SAMPLE_OFFSETS)
        for index, each in bounds.items()
        if each.end > each.start
    }
    values: list[bytes | None] = []
    if not offsets:
        return values
    found = admin.read_batches(
        offsets, partition_bytes_max=SAMPLE_PARTITION_BYTES, bytes_max=SAMPLE_BYTES
    )
    for place, read in found.items():
        for batch in read.batches:
            if batch.marker is not None or len(values) >= SAMPLE_RECORDS_MAX:
                continue
            try:
                values += [record.value for record in batch.records(offsets[place])]
            except CorruptRecordException:
                continue  # whoever reads the partition says so
    return values[:SAMPLE_RECORDS_MAX]
