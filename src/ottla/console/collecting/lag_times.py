"""Lag in time: how long ago the record at a committed offset was at the end of its partition.

From the history of end offsets where it reaches back so far, else from the record's own timestamp:
a few partitions are read per round, and what was found holds until the group commits again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.client.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition

from .ends import EndHistory
from .known import Known

READS_PER_ROUND_MAX = 20
RECORD_BYTES = 4096  # of a partition: its first batch comes whole, however large
BYTES_MAX = 1 << 20
TIMEOUT_MS = 3_000
KEPT_MAX = 100_000


class LagTimes:
    def __init__(self, ends: EndHistory) -> None:
        self._ends = ends
        self._read: dict[tuple[TopicPartition, int], int | None] = {}
        self._turn = 0  # whose records are read first

    def of(self, now_ms: int) -> Callable[[TopicPartition, int, int], int | None]:
        """A function of partition, committed offset and end."""

        def lag_ms(where: TopicPartition, committed: int, end: int) -> int | None:
            if committed >= end:
                return 0
            passed = self._ends.passed_ms(where, committed)
            if passed is None:
                passed = self._read.get((where, committed))
            return None if passed is None else max(0, now_ms - passed)

        return lag_ms

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Other records have their offsets now."""
        gone = set(partitions)
        self._read = {each: time for each, time in self._read.items() if each[0] not in gone}

    def _wanted(self, known: Known) -> dict[TopicPartition, int]:
        return {
            where: committed.offset
            for group in known.groups.values()
            for where, committed in group.committed.items()
            if known.starts.get(where, 0) <= committed.offset < known.ends.get(where, 0)
            and (where, committed.offset) not in self._read
            and self._ends.passed_ms(where, committed.offset) is None
        }

    def read_records(self, admin: Admin, known: Known) -> None:
        """The timestamps of some records at committed offsets, where nothing else tells."""
        wanted = sorted(self._wanted(known).items())
        if not wanted:
            return
        # In turn: a group that commits all the time must not keep others from being read.
        self._turn = (self._turn + READS_PER_ROUND_MAX) % len(wanted)
        asked = dict([*wanted[self._turn :], *wanted[: self._turn]][:READS_PER_ROUND_MAX])
        if len(self._read) > KEPT_MAX:
            self._read.clear()
        try:
            found = admin.read_batches(
                asked,
                partition_bytes_max=RECORD_BYTES,
                bytes_max=BYTES_MAX,
                timeout_ms=TIMEOUT_MS,
            )
        except KafkaError:
            return
        for where, read in found.items():
            if read.error is None and read.batches:
                # The last time of a batch is when its end was reached; the first may lie before.
                time_ms = read.batches[0].header.max_timestamp
                self._read[where, asked[where]] = time_ms if time_ms >= 0 else None
