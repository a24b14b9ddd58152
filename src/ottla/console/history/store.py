"""The history's file: names of series, packed blocks, and the rounds that are in no block yet.

One thread writes; `blocks` may be asked by any. What a commit has said stands after a crash of the
process; after one of the machine the last seconds may be missing (WAL, synchronous=NORMAL).
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..kept_file import BESIDE, KeptFile
from .tiers import HOUR_MS, TIERS, Tier

FILE = "history.sqlite"
VERSION = 1
PAGE_BYTES = 16_384  # several blocks to a page: little is left over
SERIES_BITS = 28
WAIT_S = 5.0  # for another process that has the file open (a backup)
SCHEMA = (
    """CREATE TABLE series (id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, measure TEXT NOT NULL,
    subject TEXT NOT NULL, topic TEXT NOT NULL, seen_ms INTEGER NOT NULL)""",
    "CREATE TABLE rounds (id INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE rolled (tier INTEGER PRIMARY KEY, until_ms INTEGER NOT NULL)",
    # A table for each: blocks come in the order of their keys, and so fill its pages.
    *(
        f"CREATE TABLE blocks{tier.number} (key INTEGER PRIMARY KEY, data BLOB NOT NULL)"
        for tier in TIERS
    ),
)
log = logging.getLogger("ottla.console.history")


class HistoryFileError(Exception):
    """A fact, then a line `Try: `."""


class SeriesRow(NamedTuple):
    id: int
    cluster: str
    measure: str
    subject: str
    topic: str
    seen_ms: int  # lately: when it was first, or at the end of the last block of the coarsest tier


class KeptRound(NamedTuple):
    """What one picture said, before it is in blocks."""

    time_ms: int
    series: array[int]
    values: array[float]


class Store:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / FILE
        self._lock = threading.Lock()
        try:
            self._writing = opened(self.path)
        except sqlite3.OperationalError as error:
            raise HistoryFileError(
                f"{self.path} cannot be opened: {error}\nTry: another --data-dir"
            ) from None
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            self._writing = opened(self.path)
        self._reading = opened(self.path)
        self._file = KeptFile(self.path)

    def close(self) -> None:
        with self._lock:
            self._reading.close()
        self._writing.close()

    def begin_anew(self, error: sqlite3.Error) -> None:
        """With an empty file, where this one is damaged."""
        with self._lock:
            self._reading.close()
            self._writing.close()
            self._set_aside(error)
            self._writing, self._reading = opened(self.path), opened(self.path)
            self._file = KeptFile(self.path)

    def _set_aside(self, error: sqlite3.Error) -> None:
        aside = self.path.with_name(f"{FILE}.damaged-{int(time.time())}")
        log.error("%s is damaged (%s): set aside as %s, begun anew", self.path, error, aside)
        for end in ("", *BESIDE):
            part = self.path.with_name(FILE + end)
            if part.exists():
                part.rename(aside.with_name(aside.name + end))

    def stay_in_place(self) -> None:
        """Write the file again if it was deleted or moved. Raises OSError, sqlite3.Error."""
        if not self._file.gone():
            return
        with self._lock:
            self._file.write_again(self._writing, self._close_both)
            self._writing, self._reading = opened(self.path), opened(self.path)

    def _close_both(self) -> None:
        self._reading.close()
        self._writing.close()

    # At the start, in the caller's thread

    def series(self) -> list[SeriesRow]:
        query = "SELECT id, cluster, measure, subject, topic, seen_ms FROM series"
        return [SeriesRow(*row) for row in self._writing.execute(query)]

    def rounds(self) -> Iterator[KeptRound]:
        for time_ms, data in self._writing.execute("SELECT time_ms, data FROM rounds ORDER BY id"):
            try:
                yield unpacked_round(time_ms, data)
            except (zlib.error, ValueError) as error:
                log.warning("a round of the history cannot be read: %s", error)

    def rolled(self) -> dict[int, int]:
        """Until when each tier has blocks."""
        return dict(self._writing.execute("SELECT tier, until_ms FROM rolled"))

    # Any thread

    def blocks(self, tier: Tier, series: int, from_ms: int, to_ms: int) -> list[tuple[int, bytes]]:
        """The blocks of a series that touch a range, and their starts."""
        starts = range(tier.block_start(from_ms), to_ms, tier.block_ms)
        query = f"SELECT data FROM blocks{tier.number} WHERE key = ?"
        found = []
        with self._lock:
            for start in starts:
                row = self._reading.execute(query, (key_of(start, series),)).fetchone()
                if row is not None:
                    found.append((start, row[0]))
        return found

    # The writing thread

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._writing:
            self._writing.execute("BEGIN IMMEDIATE")
            yield

    def add_series(self, rows: Iterable[SeriesRow]) -> None:
        self._writing.executemany("INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?, ?)", rows)

    def remove_series(self, ids: Iterable[int]) -> None:
        self._writing.executemany("DELETE FROM series WHERE id = ?", ((each,) for each in ids))

    def seen(self, ids: Iterable[int], time_ms: int) -> None:
        query = "UPDATE series SET seen_ms = ? WHERE id = ?"
        self._writing.executemany(query, ((time_ms, each) for each in ids))

    def unseen_since(self, time_ms: int) -> set[int]:
        query = "SELECT id FROM series WHERE seen_ms < ?"
        return {row[0] for row in self._writing.execute(query, (time_ms,))}

    def add_rounds(self, rounds: Iterable[KeptRound]) -> None:
        self._writing.executemany(
            "INSERT INTO rounds (time_ms, data) VALUES (?, ?)",
            ((each.time_ms, packed_round(each)) for each in rounds),
        )

    def put_blocks(self, tier: Tier, start_ms: int, blocks: Iterable[tuple[int, bytes]]) -> None:
        """`blocks` are of (series, data), by rising series."""
        self._writing.executemany(
            f"INSERT OR REPLACE INTO blocks{tier.number} VALUES (?, ?)",
            ((key_of(start_ms, series), data) for series, data in blocks),
        )

    def set_rolled(self, tier: Tier, until_ms: int) -> None:
        """Blocks of the tier reach until that time."""
        self._writing.execute(
            "INSERT INTO rolled VALUES (?, ?) "
            "ON CONFLICT (tier) DO UPDATE SET until_ms = max(until_ms, excluded.until_ms)",
            (tier.number, until_ms),
        )

    def delete_rounds(self, from_ms: int, to_ms: int) -> None:
        self._writing.execute(
            "DELETE FROM rounds WHERE time_ms >= ? AND time_ms < ?", (from_ms, to_ms)
        )

    def keep_rounds(self, from_ms: int, to_ms: int) -> None:
        """Delete all others: their hour was given up."""
        self._writing.execute(
            "DELETE FROM rounds WHERE time_ms < ? OR time_ms >= ?", (from_ms, to_ms)
        )

    def first_start(self, tier: Tier, from_ms: int) -> int | None:
        """When the first block begins that is not before a time."""
        query = f"SELECT min(key) FROM blocks{tier.number} WHERE key >= ?"
        [key] = self._writing.execute(query, (key_of(from_ms, 0),)).fetchone()
        return None if key is None else (key >> SERIES_BITS) * HOUR_MS

    def series_between(self, tier: Tier, from_ms: int, to_ms: int) -> list[int]:
        """The series that have blocks beginning in a range, rising."""
        query = f"SELECT DISTINCT key & ? FROM blocks{tier.number} WHERE key >= ? AND key < ?"
        mask = (1 << SERIES_BITS) - 1
        limits = key_of(from_ms, 0), key_of(to_ms, 0)
        return sorted(row[0] for row in self._writing.execute(query, (mask, *limits)))

    def delete_before(self, tier: Tier, start_ms: int) -> None:
        query = f"DELETE FROM blocks{tier.number} WHERE key < ?"
        self._writing.execute(query, (key_of(start_ms, 0),))


def key_of(start_ms: int, series: int) -> int:
    return start_ms // HOUR_MS << SERIES_BITS | series


def opened(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError, HistoryFileError."""
    made = sqlite3.connect(path, timeout=WAIT_S, check_same_thread=False, isolation_level=None)
    try:
        made.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = NORMAL")
        [version] = made.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with made:
                made.execute("BEGIN IMMEDIATE")
                for statement in SCHEMA:
                    made.execute(statement)
                made.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise HistoryFileError(
                f"{path} was written by a newer console (version {version} of its tables)\n"
                "Try: that console, or another --data-dir"
            )
    except BaseException:
        made.close()
        raise
    return made


def packed_round(each: KeptRound) -> bytes:
    return zlib.compress(each.series.tobytes() + each.values.tobytes(), 1)


def unpacked_round(time_ms: int, data: bytes) -> KeptRound:
    plain = zlib.decompress(data)
    half = len(plain) // 2
    return KeptRound(time_ms, array("I", plain[:half]), array("f", plain[half:]))
