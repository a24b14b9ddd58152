"""The history of a console: samples in, series out, a thread that writes.

A sample is in memory at once and in the file within FLUSH_S. The values of an hour are packed into
blocks when it is over, and blocks put together into coarser ones when theirs is; a range is read
from the coarsest tier that serves, its newest part from the finer ones and from memory.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..series import Measure, Sample, Series, SeriesKey
from .codec import Values
from .folding import fold
from .reading import points_of, resolution_of, tier_of
from .recent import Recent
from .rolling import delete_old, laid_over, readable, roll, roll_block, whole, write_hour
from .store import KeptRound, SeriesRow, Store
from .tiers import DAY_MS, FINEST, TIERS, Tier

FLUSH_S = 20.0
GRACE_MS = 30_000  # after an hour, for a picture that was taken in it
WORK_SHARE_MAX = 0.1  # of a core, while blocks are made: pages go before
SERIES_MAX = 200_000
PENDING_MAX = 400  # pictures that wait for the disk
CLOSE_S = 15.0
FORGET_MS = TIERS[-1].kept_ms + 3 * TIERS[-1].block_ms  # a series that was not there for so long

log = logging.getLogger("ottla.console.history")


class _Stopping(Exception):
    pass


def now() -> int:
    return int(time.time() * 1000)


class KeptHistory:
    """A `History`; `start` it, and `close` it in the end. Raises HistoryFileError."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], int] = now,
        work_share: float = WORK_SHARE_MAX,
    ) -> None:
        self.store = Store(directory)
        self.clock = clock
        self._work_share = work_share
        self._lock = threading.Lock()  # all below, but for the file
        self._ids: dict[SeriesKey, int] = {}
        self._rolled: dict[int, int] = {}
        self._looked_ms = 0  # when blocks were last made
        self._delete_from_ms = 0
        self._recent = Recent()
        self._pending: list[KeptRound] = []
        self._new: list[SeriesRow] = []
        self._refused = False
        self._disk_fails = False
        self._worked_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-history", daemon=True)
        try:
            self._load()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            self._ids.clear()
            self.store.begin_anew(error)
            self._load()

    def _load(self) -> None:
        self._rolled = self.store.rolled()
        self._looked_ms = self._rolled.get(FINEST.number, 0)
        measures = {each.value: each for each in Measure}
        for row in self.store.series():
            measure = measures.get(row.measure)
            if measure is not None:
                self._ids[SeriesKey(row.cluster, measure, row.subject, row.topic)] = row.id
        self._next_id = max(self._ids.values(), default=0) + 1
        for kept in self.store.rounds():
            for series, value in zip(kept.series, kept.values, strict=True):
                self._recent.put(series, kept.time_ms, value)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Everything is in the file then."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                return  # the disk hangs: it has the file
        with suppress(sqlite3.Error):
            self._flush()
        self.store.close()

    # What the console asks

    def append(self, samples: Sequence[Sample]) -> None:
        rounds: dict[int, KeptRound] = {}
        with self._lock:
            for key, time_ms, value in samples:
                if not math.isfinite(value):
                    continue
                series = self._ids.get(key) or self._new_id(key)
                if series is None:
                    continue
                value = max(0.0, value)  # nothing that is measured is less
                self._recent.put(series, time_ms, value)
                kept = rounds.get(time_ms)
                if kept is None:
                    kept = rounds[time_ms] = KeptRound(time_ms, array("I"), array("f"))
                kept.series.append(series)
                kept.values.append(value)
            self._pending.extend(rounds.values())
            del self._pending[:-PENDING_MAX]

    def _new_id(self, key: SeriesKey) -> int | None:
        if len(self._ids) >= SERIES_MAX:
            if not self._refused:
                log.warning("more than %d series: new ones are not kept", SERIES_MAX)
            self._refused = True
            return None
        series = self._ids[key] = self._next_id
        self._next_id += 1
        self._new.append(SeriesRow(series, *key, seen_ms=self.clock()))
        return series

    def read(self, key: SeriesKey, from_ms: int, to_ms: int, points_max: int = 400) -> Series:
        now_ms = self.clock()
        from_ms = max(from_ms, now_ms - TIERS[-1].kept_ms)
        to_ms = min(to_ms, now_ms + FINEST.step_ms)
        resolution = resolution_of(from_ms, to_ms, points_max, now_ms)
        with self._lock:
            series = self._ids.get(key)
        if series is None or to_ms <= from_ms:
            return Series(resolution, [])
        begin = from_ms - from_ms % resolution
        end = to_ms + -to_ms % resolution
        tier = tier_of(resolution)
        values = self._values(series, begin, end, tier.number)
        return Series(resolution, points_of(values, tier, begin, resolution))

    def _values(self, series: int, begin: int, end: int, number: int) -> Values:
        """At the step of a tier: of its blocks as far as it has them, then of the finer ones'."""
        tier = TIERS[number]
        with self._lock:
            rolled = dict(self._rolled)
            parts = self._recent.parts(series, begin, end)
        found: list[tuple[int, Values]] = []
        at = begin
        for each in reversed(TIERS[: number + 1]):
            until = min(end, rolled.get(each.number, 0))
            if at < until:
                blocks = readable(self._blocks(each, series, at, until))
                values = whole(each, blocks, at, until)
                found.append((at, fold(values, tier.step_ms // each.step_ms)))
                at = until
        values = whole(tier, found, begin, end)
        for start, part in parts:
            hour = fold(Values(part, part, part), tier.step_ms // FINEST.step_ms)
            values = laid_over(values, tier, begin, start, hour)
        return values

    def _blocks(self, tier: Tier, series: int, from_ms: int, to_ms: int) -> list[tuple[int, bytes]]:
        try:
            return self.store.blocks(tier, series, from_ms, to_ms)
        except sqlite3.Error as error:
            self._failed(error)
            return []  # a gap

    def subjects(self, cluster: str, measure: Measure) -> list[tuple[str, str]]:
        with self._lock:
            return sorted(
                (key.subject, key.topic)
                for key in self._ids
                if key.cluster == cluster and key.measure is measure
            )

    # The thread

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_S):
            try:
                self.turn()
            except _Stopping:
                return
            except Exception:
                log.exception("the history failed; it goes on with the next turn")

    def turn(self) -> None:
        """One pass of the thread: nothing is lost where the file cannot be written for a while."""
        try:
            self.store.stay_in_place()
            flushed = self._flush()
            self.write_blocks()
        except sqlite3.OperationalError as error:
            self._failed(error)
        except sqlite3.DatabaseError as error:
            self._begin_anew(error)
        else:
            if self._disk_fails and flushed:
                log.info("%s can be written again", self.store.path)
            self._disk_fails = self._disk_fails and not flushed

    def _failed(self, error: Exception) -> None:
        if not self._disk_fails:
            log.error("%s cannot be used: %s", self.store.path, error)
        self._disk_fails = True

    def _begin_anew(self, error: sqlite3.Error) -> None:
        """The file is damaged: an empty one, with what is in memory."""
        self.store.begin_anew(error)
        now_ms = self.clock()
        with self._lock:
            self._rolled.clear()
            self._new = [SeriesRow(each, *key, seen_ms=now_ms) for key, each in self._ids.items()]

    def _flush(self) -> bool:
        """Whether the file has everything then."""
        with self._lock:
            pending, self._pending = self._pending, []
            new, self._new = self._new, []
        if not pending and not new:
            return not self._disk_fails
        try:
            with self.store.transaction():
                self.store.add_series(new)
                self.store.add_rounds(pending)
        except sqlite3.Error as error:
            with self._lock:
                self._new = new + self._new
                self._pending = (pending + self._pending)[-PENDING_MAX:]
            if not isinstance(error, sqlite3.OperationalError):
                raise  # it is damaged
            self._failed(error)
            return False
        return True

    def write_blocks(self) -> None:
        """All whose time is over."""
        self._worked_s = time.thread_time()
        self._look_at_clock()
        while True:
            with self._lock:
                self._recent.drop_ahead(self.clock())
                over = self._recent.over(self.clock() - GRACE_MS)
                if not over:
                    break
                start = over[0]
                hour = self._recent.take(start)
                end = start + FINEST.block_ms
                in_blocks = {id(each) for each in self._pending if start <= each.time_ms < end}
                again = start < self._rolled.get(FINEST.number, 0)
            try:
                write_hour(self.store, start, hour, self._pause, again)
            except BaseException:
                with self._lock:
                    self._recent.not_written()
                raise
            with self._lock:
                self._roll_to(FINEST, end)
                self._recent.written()
                self._pending = [each for each in self._pending if id(each) not in in_blocks]
            if again:
                self._roll_again(start)
            self._roll_up()

    def _look_at_clock(self) -> None:
        """After a leap of the clock, or a long pause, nothing is deleted for a day: a clock that is
        wrong for a while must not cost a year of history."""
        now_ms = self.clock()
        if not 0 <= now_ms - self._looked_ms <= DAY_MS:
            self._delete_from_ms = now_ms + DAY_MS
        self._looked_ms = now_ms

    def _roll_to(self, tier: Tier, until_ms: int) -> None:
        self._rolled[tier.number] = max(until_ms, self._rolled.get(tier.number, 0))

    def _roll_again(self, start_ms: int) -> None:
        """The coarser blocks that have this hour already."""
        for tier in TIERS[1:]:
            if start_ms < self._rolled.get(tier.number, 0):
                roll_block(self.store, tier, tier.block_start(start_ms), self._pause, again=True)

    def _roll_up(self) -> None:
        for tier in TIERS[1:]:
            while (until := roll(self.store, tier, dict(self._rolled), self._pause)) is not None:
                with self._lock:
                    self._roll_to(tier, until)
        if self.clock() < self._delete_from_ms:
            return
        delete_old(self.store, self._rolled, self.clock())
        gone = self.store.unseen_since(self.clock() - FORGET_MS)
        if gone:
            with self._lock:
                for key in [key for key, series in self._ids.items() if series in gone]:
                    del self._ids[key]
            with self.store.transaction():
                self.store.remove_series(gone)

    def _pause(self) -> None:
        """Between pieces of work, so that it takes no more than its share of a core."""
        spent = time.thread_time() - self._worked_s
        if self._stop.wait(spent / self._work_share - spent):
            raise _Stopping
        self._worked_s = time.thread_time()
