"""The console's files deleted, moved, replaced and damaged while it runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.console.access.local import local
from ottla.console.access.permissions import Grant, Role
from ottla.console.access.store import FILE_NAME as ACCESS_FILE
from ottla.console.alerts.rules import Receiver, ReceiverKind
from ottla.console.alerts.store import FILE_NAME as ALERTS_FILE
from ottla.console.alerts.store import Store as AlertStore
from ottla.console.history.kept import KeptHistory
from ottla.console.history.store import FILE
from ottla.console.history.tiers import HOUR_MS
from ottla.console.series import Measure, Sample, SeriesKey

from .people import cheap_passwords

KEY = SeriesKey("main", Measure.GROUP_LAG, "billing", "orders")
BEGIN_MS = 1_790_000_000_000 - 1_790_000_000_000 % HOUR_MS


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for each in path.parent.glob("*"):
        each.unlink()
    path.parent.rmdir()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


LOST = pytest.mark.parametrize("lose", [delete, delete_all, move])


class Clock:
    now_ms = BEGIN_MS

    def __call__(self) -> int:
        return self.now_ms


def fill(history: KeptHistory, clock: Clock, samples: int) -> None:
    for _ in range(samples):
        history.append([Sample(KEY, clock.now_ms, 5.0)])
        clock.now_ms += 10_000


def points(history: KeptHistory, clock: Clock) -> int:
    return len(history.read(KEY, BEGIN_MS, clock.now_ms, 10_000).points)


@LOST
def test_a_history_that_is_lost_is_written_again(
    tmp_path: Path, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Blocks and the open hour are there after a restart, and the log says what happened."""
    clock = Clock()
    history = KeptHistory(tmp_path / "data", clock=clock, work_share=1.0)
    fill(history, clock, 400)
    history.turn()
    lose(history.store.path)
    fill(history, clock, 100)
    history.turn()
    assert "deleted or moved" in caplog.text
    assert points(history, clock) == 500
    history.close()
    again = KeptHistory(tmp_path / "data", clock=clock)
    assert points(again, clock) == 500
    again.close()


def test_another_file_in_its_place_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody puts a backup there while the console runs: it is not touched, and told of once."""
    clock = Clock()
    history = KeptHistory(tmp_path, clock=clock)
    history.store.path.rename(tmp_path / "elsewhere")
    history.store.path.write_bytes(b"a backup")
    for _ in range(3):
        fill(history, clock, 1)
        history.turn()
    assert history.store.path.read_bytes() == b"a backup"
    assert caplog.text.count("is another file") == 1
    assert points(history, clock) == 3
    history.close()


def spoil(path: Path) -> None:
    """The middle of the file is overwritten, as by a broken disk."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(16_384)
        file.write(b"\xff" * (size - 16_384))


def spoiled(directory: Path, clock: Clock) -> KeptHistory:
    history = KeptHistory(directory, clock=clock, work_share=1.0)
    fill(history, clock, 400)
    history.turn()
    history.close()
    spoil(directory / FILE)
    return history


def test_a_history_that_is_damaged_inside_begins_anew(tmp_path: Path) -> None:
    """At the start the console goes on with an empty file, and keeps the damaged one aside."""
    clock = Clock()
    spoiled(tmp_path, clock)
    history = KeptHistory(tmp_path, clock=clock)
    fill(history, clock, 10)
    history.turn()
    assert points(history, clock) == 10
    history.close()
    assert [each.name for each in tmp_path.glob(f"{FILE}.damaged-*")]


def test_a_history_that_gets_damaged_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While it runs: charts have a gap and no error, what is in memory is kept in a new file."""
    clock = Clock()
    history = KeptHistory(tmp_path, clock=clock, work_share=1.0)
    fill(history, clock, 400)
    history.turn()
    with sqlite3.connect(history.store.path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    spoil(history.store.path)
    history.store._reading.execute("PRAGMA cache_size = 0")
    history.store._writing.execute("PRAGMA cache_size = 0")
    points(history, clock)
    for _ in range(3):
        fill(history, clock, 360)
        history.turn()
    history.close()
    assert "set aside" in caplog.text
    again = KeptHistory(tmp_path, clock=clock)
    assert len(again.read(KEY, clock.now_ms - HOUR_MS, clock.now_ms, 1000).points) >= 359
    again.close()


@LOST
def test_users_and_the_audit_log_are_written_again(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """The next change writes all of them, for their owner alone; a restart knows them."""
    with cheap_passwords():
        access = local(tmp_path / "data")
        access.add_user("vera", [Grant(Role.VIEWER)])
        lose(access.store.path)
        access.add_user("otto", [Grant(Role.VIEWER)])
        access.close()
        again = local(tmp_path / "data")
        assert [each.name for each in again.users()] == ["admin", "otto", "vera"]
        assert (tmp_path / "data" / ACCESS_FILE).stat().st_mode & 0o777 == 0o600
        again.close()


@LOST
def test_receivers_of_alerts_are_written_again(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """What people wrote is there after a restart."""
    store = AlertStore(tmp_path / "data")
    for name in ("one", "two"):
        store.put_receiver(Receiver(name, ReceiverKind.JSON, url="http://127.0.0.1:1/"))
        if name == "one":
            lose(store.path)
    store.close()
    again = AlertStore(tmp_path / "data")
    assert [each.name for each in again.receivers()] == ["one", "two"]
    assert (tmp_path / "data" / ALERTS_FILE).stat().st_mode & 0o777 == 0o600
    again.close()
