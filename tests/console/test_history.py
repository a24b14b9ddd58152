"""The history: what comes in can be read, over all tiers, after restarts and a crash."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.console.history import rolling
from ottla.console.history.kept import KeptHistory
from ottla.console.history.reading import resolution_of
from ottla.console.history.store import FILE, HistoryFileError
from ottla.console.history.tiers import DAY_MS, HOUR_MS, MINUTE_MS, TIERS
from ottla.console.series import Measure, Sample, SeriesKey
from tests.live import environment_with

KEY = SeriesKey("main", Measure.GROUP_LAG, "billing", "orders")
OTHER = SeriesKey("main", Measure.TOPIC_SIZE, "orders")
BEGIN_MS = 1_790_000_000_000 - 1_790_000_000_000 % (7 * DAY_MS)


class Clock:
    def __init__(self) -> None:
        self.now_ms = BEGIN_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(tmp_path: Path, clock: Clock) -> Iterator[KeptHistory]:
    made = KeptHistory(tmp_path, clock=clock, work_share=1.0)
    yield made
    made.close()


def fill(history: KeptHistory, clock: Clock, until_ms: int, step_ms: int) -> None:
    """A value each step: the number of the minute."""
    while clock.now_ms < until_ms:
        value = (clock.now_ms - BEGIN_MS) / MINUTE_MS
        history.append([Sample(KEY, clock.now_ms, value), Sample(OTHER, clock.now_ms, 7.0)])
        clock.now_ms += step_ms
        if clock.now_ms % HOUR_MS == 0:
            clock.now_ms += MINUTE_MS  # the grace
            history.write_blocks()
            clock.now_ms -= MINUTE_MS


def test_a_sample_can_be_read_at_once(history: KeptHistory, clock: Clock) -> None:
    """Ten seconds apart, at that resolution; another series has nothing of it."""
    for each in range(6):
        history.append([Sample(KEY, BEGIN_MS + each * 10_000, each)])
    clock.now_ms += MINUTE_MS
    found = history.read(KEY, BEGIN_MS, clock.now_ms)
    assert found.resolution_ms == 10_000
    assert [(each.time_ms - BEGIN_MS, each.mean) for each in found.points] == [
        (each * 10_000, each) for each in range(6)
    ]
    assert history.read(OTHER, BEGIN_MS, clock.now_ms).points == []
    assert history.subjects("main", Measure.GROUP_LAG) == [("billing", "orders")]


def test_ranges_are_read_from_all_tiers(history: KeptHistory, clock: Clock) -> None:
    """Nine days: an hour is read every ten seconds, a day in minutes, all of it in hours; the
    points meet where one tier ends and the finer one goes on, and old blocks are gone."""
    fill(history, clock, BEGIN_MS + 9 * DAY_MS, 30_000)
    now_ms = clock.now_ms
    for ago_ms, most_ms in ((HOUR_MS, 10_000), (DAY_MS - MINUTE_MS, 5 * MINUTE_MS)):
        found = history.read(KEY, now_ms - ago_ms, now_ms)
        assert found.resolution_ms <= most_ms
        assert len(found.points) >= 110
    whole = history.read(KEY, BEGIN_MS, now_ms)
    assert whole.resolution_ms == 2_400_000 or whole.resolution_ms == 3_600_000
    assert len(whole.points) == 9 * DAY_MS // whole.resolution_ms
    for point in whole.points:
        expected = (point.time_ms - BEGIN_MS + whole.resolution_ms / 2) / MINUTE_MS
        assert point.mean == pytest.approx(expected, rel=0.03, abs=1)
        assert point.minimum <= point.mean <= point.maximum
    assert {each.mean for each in history.read(OTHER, BEGIN_MS, now_ms).points} == {7.0}
    store = history.store
    assert store.first_start(TIERS[0], 0) >= now_ms - 2 * DAY_MS  # type: ignore[operator]
    assert store.first_start(TIERS[2], 0) == BEGIN_MS


def test_a_range_of_a_few_minutes_days_ago_has_minutes(history: KeptHistory, clock: Clock) -> None:
    """Zoomed in beyond what is kept, the finest there is is shown."""
    fill(history, clock, BEGIN_MS + 2 * DAY_MS, 30_000)
    found = history.read(KEY, BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS)
    assert found.resolution_ms == MINUTE_MS
    assert len(found.points) == 60


def test_a_gap_is_missing_points(history: KeptHistory, clock: Clock) -> None:
    """While the console was down there is nothing."""
    fill(history, clock, BEGIN_MS + HOUR_MS, 30_000)
    clock.now_ms += 3 * HOUR_MS
    fill(history, clock, BEGIN_MS + 5 * HOUR_MS, 30_000)
    times = [each.time_ms for each in history.read(KEY, BEGIN_MS, clock.now_ms).points]
    gap = BEGIN_MS + HOUR_MS, BEGIN_MS + 4 * HOUR_MS
    assert not [each for each in times if gap[0] <= each < gap[1]]
    assert min(times) < gap[0]
    assert max(times) >= gap[1]


def test_a_restart_goes_on(tmp_path: Path, clock: Clock) -> None:
    """After `close`, another one reads all of it: of blocks, and of the hour that is open."""
    first = KeptHistory(tmp_path, clock=clock, work_share=1.0)
    fill(first, clock, BEGIN_MS + 90 * MINUTE_MS, 10_000)
    before = first.read(KEY, BEGIN_MS, clock.now_ms, 1000)
    first.close()
    second = KeptHistory(tmp_path, clock=clock, work_share=1.0)
    assert second.read(KEY, BEGIN_MS, clock.now_ms, 1000) == before
    fill(second, clock, BEGIN_MS + 150 * MINUTE_MS, 10_000)
    assert len(second.read(KEY, BEGIN_MS, clock.now_ms, 1000).points) == 150 * 6
    second.close()


WRITER = textwrap.dedent("""
    import sqlite3, sys, time
    from pathlib import Path
    from ottla.console.history import kept
    from ottla.console.series import Measure, Sample, SeriesKey
    kept.FLUSH_S = 0.01
    history = kept.KeptHistory(Path(sys.argv[1]), work_share=1.0)
    history.start()
    key = SeriesKey("main", Measure.GROUP_LAG, "billing", "orders")
    begin = int(sys.argv[2])
    history.append([Sample(key, begin + each * 10_000, each) for each in range(360)])
    with sqlite3.connect(history.store.path) as look:
        tables = "SELECT (SELECT count(*) FROM rounds) + (SELECT count(*) FROM blocks0)"
        while not look.execute(tables).fetchone()[0]:
            time.sleep(0.001)
    print("written", flush=True)
    time.sleep(600)
""")


def test_what_was_written_stands_after_a_kill(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing: what was in the file is read, the rest of the hour too."""
    begin = 1_790_000_000_000 - 1_790_000_000_000 % HOUR_MS
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(begin)],
        stdout=subprocess.PIPE, text=True, env=environment_with({}),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    clock = Clock()
    clock.now_ms = begin + HOUR_MS
    history = KeptHistory(tmp_path, clock=clock, work_share=1.0)
    points = history.read(KEY, begin, clock.now_ms).points
    assert [each.mean for each in points] == pytest.approx(list(range(360)), rel=0.01)
    history.close()


class Killed(BaseException):
    """As a SIGKILL: nothing is tidied up."""


def packed_in_pieces(directory: Path, clock: Clock, killed_at: int) -> bool:
    """Pack all that is due, killed at that step; whether there was such a step."""
    history = KeptHistory(directory, clock=clock, work_share=1.0)
    steps = 0

    def pause() -> None:
        nonlocal steps
        steps += 1
        if steps == killed_at:
            raise Killed

    history._pause = pause  # type: ignore[method-assign]
    try:
        history.turn()
    except Killed:
        return True
    finally:
        history.store.close()
    return False


def test_a_kill_at_any_step_of_packing_loses_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours into blocks and those into coarser ones, in steps of one series, killed at the first
    step, then at the second, and so on: at the end all values are there, as often as they were."""
    monkeypatch.setattr(rolling, "BATCH_SERIES", 1)
    keys = [KEY, OTHER, OTHER._replace(subject="shops")]
    history = KeptHistory(tmp_path, clock=clock, work_share=1.0)
    while clock.now_ms < BEGIN_MS + 13 * HOUR_MS:
        samples = [Sample(key, clock.now_ms, 7.0) for key in keys]
        history.append(samples)
        clock.now_ms += MINUTE_MS
        if clock.now_ms % (10 * HOUR_MS) == 0:
            history.turn()
        elif clock.now_ms % (10 * MINUTE_MS) == 0:
            history._flush()
    history._flush()
    history.store.close()
    clock.now_ms += HOUR_MS
    step = 1
    while packed_in_pieces(tmp_path, clock, step):
        step += 1
    assert step > 3
    again = KeptHistory(tmp_path, clock=clock)
    for key in keys:
        points = again.read(key, BEGIN_MS, BEGIN_MS + 13 * HOUR_MS, 5000).points
        assert {each.mean for each in points} == {7.0}
        assert len(points) == 13 * 60
    again.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path, clock: Clock) -> None:
    """What cannot be read is kept under another name, and the history begins anew."""
    (tmp_path / FILE).write_bytes(b"this is no database" * 1000)
    history = KeptHistory(tmp_path, clock=clock)
    history.append([Sample(KEY, clock.now_ms, 1.0)])
    assert len(history.read(KEY, BEGIN_MS - 1000, BEGIN_MS + 1000).points) == 1
    history.close()
    assert [each.name for each in tmp_path.glob(f"{FILE}.damaged-*") if each.stat().st_size > 1000]


def test_a_file_of_a_newer_console_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    """It is refused with what to try."""
    KeptHistory(tmp_path, clock=clock).close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(HistoryFileError, match="newer console"):
        KeptHistory(tmp_path, clock=clock)


def test_resolutions() -> None:
    """The finest that has no more points than asked, as far back as its tier reaches."""
    now_ms = BEGIN_MS
    assert resolution_of(now_ms - HOUR_MS, now_ms, 400, now_ms) == 10_000
    assert resolution_of(now_ms - 6 * HOUR_MS, now_ms, 400, now_ms) == MINUTE_MS
    assert resolution_of(now_ms - DAY_MS, now_ms, 400, now_ms) == 5 * MINUTE_MS
    assert resolution_of(now_ms - 365 * DAY_MS, now_ms, 400, now_ms) == DAY_MS
    assert resolution_of(now_ms - 30 * DAY_MS, now_ms - 30 * DAY_MS + 1, 400, now_ms) == 600_000
    assert resolution_of(0, 10_000 * DAY_MS, 10, now_ms) >= 1000 * DAY_MS
