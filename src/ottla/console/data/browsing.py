"""A page of a topic's records: so many after a position of each partition, or before it.

Partitions are merged by time, each in the order of its offsets, so that a page and the next one
have all records once: what a page shows of a partition is always a stretch without gaps, and the
two cursors are its ends. Reading back goes in windows: Kafka has no fetch in that direction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.client.admin import Admin, PartitionRead, ReadBatch
from ottla.client.errors import KafkaError, OffsetOutOfRangeError
from ottla.client.structs import TopicPartition

from .positions import Bounds
from .rows import Row, rows_in
from .work import Deadline, Stop

PAGE_RECORDS_MAX = 500
STEP_BYTES = 256 * 1024  # of each partition in one answer; a batch that is larger comes whole
ANSWER_BYTES = 8 * 1024 * 1024
WINDOW_MIN, WINDOW_MAX = 20, 20_000  # offsets that are read back in one step
WINDOW_SEARCHED = 2_000  # the first one with a condition
WINDOW_GROWTH = 4  # where a window had too little: gaps of compaction, or few that fit
KEPT_BYTES_MAX = 32 * 1024 * 1024  # of whole values in memory; beyond it they are cut at once
SCANNED_MAX = 200_000  # records looked at for one page with a condition
SCAN_TIME_MS = 30_000
PROBLEMS_MAX = 20


class Condition(Protocol):
    """What a record must fulfil to be shown."""

    scanned: int  # records looked at so far

    def matching(
        self, batches: list[ReadBatch], first_offset: int, end_offset: int | None = None
    ) -> set[int]:
        """The offsets of those that do, of batches of one partition, from one offset to before
        another."""


class Progress(NamedTuple):
    scanned: int
    found: int


class Page(NamedTuple):
    """Records in the order of the direction; `first` and `last` are each partition's stretch."""

    rows: list[Row]
    first: dict[int, int]
    last: dict[int, int]  # exclusive
    scanned: int
    complete: bool  # False: a limit of the scan was reached before the page was full
    at_end: bool  # nothing is left in the direction
    problems: list[str]


@dataclass(slots=True)
class _Partition:
    """How far one partition was read; `rows` are found and not shown yet, nearest first."""

    bounds: Bounds
    begin: int  # where the page begins for it
    position: int  # up to where it was read, in the direction
    window: int
    rows: deque[Row] = field(default_factory=deque)


class Browse:
    """One page in the making; `page` once more gives the next one. `whole`: no value is cut."""

    def __init__(
        self,
        admin: Admin,
        topic: str,
        positions: Mapping[int, int],
        bounds: Mapping[int, Bounds],
        *,
        count: int,
        back: bool,
        condition: Condition | None = None,
        markers: bool = False,
        whole: bool = False,
        scanned_max: int = SCANNED_MAX,
        deadline: Deadline | None = None,
        stop: Stop | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._count = count
        self._back = back
        self._condition = condition
        self._markers = markers
        self._whole = whole
        self._scanned_max = scanned_max
        self._deadline = deadline or Deadline(SCAN_TIME_MS)
        self._stop = stop or Stop()
        self._progress = progress
        self._scanned = 0
        self._problems: list[str] = []
        self._kept_bytes = 0
        least = WINDOW_MIN if condition is None else WINDOW_SEARCHED
        window = min(max(2 * count // max(1, len(positions)), least), WINDOW_MAX)
        self._partitions = {
            each: _Partition(bounds[each], place, place, window)
            for each, wanted in positions.items()
            for place in (bounds[each].within(wanted),)
        }

    def page(self) -> Page:
        found: list[Row] = []
        complete = True
        while len(found) < self._count:
            if not self._fill(len(found)):
                complete = False
                break
            nearest = self._nearest(self._partitions.values())
            if nearest is None:
                break
            found.append(nearest.rows.popleft())
        if not complete:  # what was found so far, although another partition may have nearer ones
            while len(found) < self._count:
                nearest = self._nearest(self._partitions.values())
                if nearest is None:
                    break
                found.append(nearest.rows.popleft())
        return self._as_page(found, complete)

    def _nearest(self, partitions: Iterable[_Partition]) -> _Partition | None:
        """Of the partitions that have rows the one whose first comes next."""
        ready = [each for each in partitions if each.rows]
        if self._back:
            return max(ready, key=lambda each: each.rows[0].timestamp, default=None)
        return min(ready, key=lambda each: each.rows[0].timestamp, default=None)

    def _as_page(self, found: list[Row], complete: bool) -> Page:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        at_end = True
        for index, each in self._partitions.items():
            reached = each.position
            if each.rows:
                reached = each.rows[0].offset + (1 if self._back else 0)
            low, high = (reached, each.begin) if self._back else (each.begin, reached)
            first[index], last[index] = low, high
            at_end = at_end and (
                reached <= each.bounds.start if self._back else reached >= each.bounds.end
            )
        return Page(found, first, last, self._scanned, complete, at_end, self._problems)

    def _fill(self, shown: int) -> bool:
        """Read until each partition has a row or is at its end; False at a limit of the scan."""
        while True:
            wanting = {
                index: each
                for index, each in self._partitions.items()
                if not each.rows and not self._ended(each)
            }
            if not wanting:
                return True
            self._stop.check()
            if self._scanned >= self._scanned_max or self._deadline.passed:
                return False
            if self._back:
                self._step_back(wanting)
            else:
                self._step_forward(wanting)
            if self._progress is not None:
                waiting = sum(len(each.rows) for each in self._partitions.values())
                self._progress(Progress(self._scanned, shown + waiting))

    def _ended(self, each: _Partition) -> bool:
        if self._back:
            return each.position <= each.bounds.start
        return each.position >= each.bounds.end

    def _step_forward(self, wanting: dict[int, _Partition]) -> None:
        ends = {index: each.bounds.end for index, each in wanting.items()}
        self._take(wanting, ends)

    def _take(self, wanting: Mapping[int, _Partition], ends: Mapping[int, int]) -> None:
        """Add to each partition what one answer has of it before its end.

        A partition that an answer has nothing of comes later if the others filled the answer; it
        is at its end if none of them got anything.
        """
        answers = self._read({index: each.position for index, each in wanting.items()})
        moved = False
        for index, each in wanting.items():
            read, before = answers[index], each.position
            if isinstance(read.error, OffsetOutOfRangeError):  # deleted meanwhile
                each.position = min(max(read.log_start_offset, before + 1), ends[index])
            elif read.error is not None:
                self._note(f"partition {index}: {read.error}")
                each.position = ends[index]
            elif read.batches:
                batches = [b for b in read.batches if b.header.base_offset < ends[index]]
                each.rows.extend(self._rows(index, batches, before, ends[index]))
                each.position = min(max(read.next_offset, before + 1), ends[index])
            moved = moved or each.position != before
        if not moved:
            for index, each in wanting.items():
                each.position = ends[index]

    def _rows(self, index: int, batches: list[ReadBatch], start: int, end: int) -> list[Row]:
        if self._condition is not None:
            data = [batch for batch in batches if batch.marker is None]
            offsets = self._condition.matching(data, start, end)
            self._scanned = self._condition.scanned
            batches = [
                batch
                for batch in data
                if any(
                    offset in offsets
                    for offset in range(batch.header.base_offset, batch.next_offset)
                )
            ]
        rows: list[Row] = []
        for batch in batches:
            if batch.marker is not None and not self._markers:
                continue
            try:
                opened = self._opened(batch, start)
            except KafkaError as error:  # a damaged batch: the others are shown
                self._note(str(error).splitlines()[0])
                continue
            if self._condition is None:
                self._scanned += len(opened)
                rows += [row for row in opened if row.offset < end]
            else:
                rows += [row for row in opened if row.offset in offsets and row.offset < end]
        return rows

    def _opened(self, batch: ReadBatch, start: int) -> list[Row]:
        cut = self._kept_bytes > KEPT_BYTES_MAX and not self._whole
        opened = rows_in(batch, start, cut=cut)
        self._kept_bytes += sum(len(row.record.value or b"") for row in opened)
        return opened

    def _step_back(self, wanting: dict[int, _Partition]) -> None:
        """A window of each partition, read to its end; larger the next time if it had little."""
        highs = {index: each.position for index, each in wanting.items()}
        lows = {}
        for index, each in wanting.items():
            lows[index] = max(each.bounds.start, each.position - each.window)
            each.position = lows[index]
        reading = dict(wanting)
        while reading:
            self._stop.check()
            self._take(reading, highs)
            reading = {
                index: each for index, each in reading.items() if each.position < highs[index]
            }
        for index, each in wanting.items():
            each.position = lows[index]
            each.rows.reverse()
            if len(each.rows) < each.window // 2:
                each.window = min(each.window * WINDOW_GROWTH, WINDOW_MAX)

    def _read(self, offsets: Mapping[int, int]) -> dict[int, PartitionRead]:
        found = self._admin.read_batches(
            {TopicPartition(self._topic, index): offset for index, offset in offsets.items()},
            partition_bytes_max=STEP_BYTES,
            bytes_max=ANSWER_BYTES,
        )
        return {each.partition: read for each, read in found.items()}

    def _note(self, problem: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(problem)
