"""Bits that flip in synced bytes of a replica while its broker runs, and whether they are repaired.

Only in records, which their batch's checksum covers: headers tell the invariants which batch is
where.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.log.segment import LOG, Segment
from ottla.wire.batch_header import ATTRIBUTES_POSITION, HEADER_BYTES, BatchHeader
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.testing.simulation.clients import Place
    from ottla.testing.simulation.machines import Machine

KIND = "rot"
# The brokers look for damage all the time, in what is synced, which is soon.
SETTINGS: Mapping[str, object] = {
    "log.flush.interval.messages": 10,
    "log.scrub.bytes.per.second": 1024 * 1024,
    "log.scrub.interval.ms": 500,
}


class Rot:
    """The replicas that were damaged and are not known to be repaired."""

    def __init__(self, machines: Mapping[int, Machine]) -> None:
        self._machines = machines
        self._struck: set[tuple[int, Place]] = set()

    def strike(self, machine: Machine, place: Place, rng: random.Random) -> str | None:
        """Flip a bit of a batch that is synced and committed; which, or None if there is none."""
        partition = machine.partition(place)
        if partition is None or partition.offline is not None:
            return None
        limit = min(partition.synced_offset, partition.high_watermark)
        batches = [
            (segment, batch)
            for segment, batch in batches_of(partition)
            if batch.last_offset < limit and batch.size > HEADER_BYTES
        ]
        if not batches:
            return None
        segment, batch = rng.choice(batches)
        at = batch.position + rng.randrange(HEADER_BYTES, batch.size)
        machine.node.disk.flip_synced_bit(segment.path(LOG), at * 8 + rng.randrange(8))
        self._struck.add((machine.id, place))
        return f"offset {batch.base_offset} of {place}"

    def left(self) -> set[int]:
        """The brokers with damage that is not repaired, as far as can be seen."""
        for broker_id, place in sorted(self._struck):
            partition = self._machines[broker_id].partition(place)
            if partition is not None and not any(
                is_damaged(segment, batch) for segment, batch in batches_of(partition)
            ):
                self._struck.discard((broker_id, place))
        return {broker_id for broker_id, _ in self._struck}


def batches_of(partition: Partition) -> Iterator[tuple[Segment, BatchHeader]]:
    for segment in partition.log.segments:
        if segment.size_bytes:
            for batch in segment.batches():
                yield segment, batch


def is_damaged(segment: Segment, batch: BatchHeader) -> bool:
    data = segment.file.pread(batch.size, batch.position)
    return crc32c(data, ATTRIBUTES_POSITION) != batch.crc
