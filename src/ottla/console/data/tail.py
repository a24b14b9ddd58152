"""Records as they come: what is appended to a topic while somebody watches.

Bounded on all sides: so many records a second are shown and the others counted; a reader that
cannot follow is set to the end; a watch has a longest duration. It asks again and again instead of
leaving a fetch waiting at the broker, because the connection is shared with all pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.client.admin import Admin, ReadBatch
from ottla.client.errors import KafkaError, OffsetOutOfRangeError
from ottla.client.structs import TopicPartition

from .browsing import Condition
from .rows import Row, rows_in
from .work import Deadline, Stop

POLL_MS = 250
SHOWN_PER_POLL_MAX = 20
STEP_BYTES = 512 * 1024  # of each partition in one answer
ANSWER_BYTES = 4 * 1024 * 1024
BEHIND_MAX = 50_000  # offsets; a watch that is further behind is set to the end
WATCH_MS = 30 * 60_000


class Seen(NamedTuple):
    """What came in one step: rows to show in the order of their times, and the count of others."""

    rows: list[Row]
    skipped: int
    problems: list[str]

    def __bool__(self) -> bool:
        return bool(self.rows or self.skipped or self.problems)


class Tail:
    def __init__(
        self,
        admin: Admin,
        topic: str,
        positions: dict[int, int],
        *,
        condition: Condition | None = None,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self.positions = positions
        self._condition = condition

    def step(self) -> Seen:
        """What the partitions have beyond their positions now."""
        found = self._admin.read_batches(
            {TopicPartition(self._topic, each): at for each, at in self.positions.items()},
            partition_bytes_max=STEP_BYTES,
            bytes_max=ANSWER_BYTES,
        )
        rows: list[Row] = []
        skipped = 0
        problems: list[str] = []
        for place, read in found.items():
            index = place.partition
            start = self.positions[index]
            if isinstance(read.error, OffsetOutOfRangeError):
                self.positions[index] = max(read.log_start_offset, start)
                problems.append(f"partition {index}: offset {start} was deleted meanwhile")
                continue
            if read.error is not None:
                problems.append(f"partition {index}: {read.error}")
                continue
            data = [batch for batch in read.batches if batch.marker is None]
            kept, left_out = self._rows(data, start, problems)
            rows += kept
            skipped += left_out
            self.positions[index] = max(start, read.next_offset)
            behind = read.high_watermark - self.positions[index]
            if behind > BEHIND_MAX:
                skipped += behind
                self.positions[index] = read.high_watermark
        rows.sort(key=lambda row: (row.timestamp, row.partition, row.offset))
        if len(rows) > SHOWN_PER_POLL_MAX:
            skipped += len(rows) - SHOWN_PER_POLL_MAX
            rows = rows[-SHOWN_PER_POLL_MAX:]
        return Seen(rows, skipped, problems)

    def _rows(
        self, batches: list[ReadBatch], start: int, problems: list[str]
    ) -> tuple[list[Row], int]:
        """The newest rows of a partition's batches; without a condition no more are opened."""
        wanted = None
        if self._condition is not None:
            wanted = self._condition.matching(batches, start)
        rows: list[Row] = []
        skipped = 0
        for batch in reversed(batches):
            if wanted is None and len(rows) >= SHOWN_PER_POLL_MAX:
                skipped += batch.header.record_count
                continue
            if wanted is not None and wanted.isdisjoint(
                range(batch.header.base_offset, batch.next_offset)
            ):
                continue
            try:
                opened = rows_in(batch, start)
            except KafkaError as error:
                problems.append(str(error).splitlines()[0])
                continue
            rows[:0] = [row for row in opened if wanted is None or row.offset in wanted]
        skipped += max(0, len(rows) - SHOWN_PER_POLL_MAX)
        return rows[-SHOWN_PER_POLL_MAX:], skipped


def watch(
    tail: Tail, stop: Stop, show: Callable[[Seen], None], *, duration_ms: float = WATCH_MS
) -> dict[str, Any]:
    """Steps until the reader leaves (Stopped) or the longest duration is over."""
    deadline = Deadline(duration_ms)
    while not deadline.passed:
        stop.check()
        seen = tail.step()
        if seen:
            show(seen)
        stop.wait(POLL_MS / 1000)
    return {"why": f"ended after {duration_ms / 60_000:.0f} minutes: start it again"}
