"""The staging directory: who sees it, what it remembers, and that litter goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ottla.spark.sink import staging
from ottla.spark.sink.staging import Notes, Staging, clear, prepare, read_notes, write_notes
from ottla.spark.sink.writers import follows


def test_only_who_has_the_token_sees_the_directory(tmp_path: Path) -> None:
    """A path of the same name on another machine is not taken for the driver's directory."""
    here = prepare(str(tmp_path))
    assert here.visible()
    assert prepare(str(tmp_path)) == here
    assert not Staging(here.directory, "of another machine").visible()
    assert not Staging(str(tmp_path / "elsewhere"), here.token).visible()
    assert not Staging("", "").visible()


def test_the_directory_is_private(tmp_path: Path) -> None:
    """Rows on their way are for nobody else to read."""
    here = prepare(str(tmp_path))
    assert Path(here.directory).stat().st_mode & 0o777 == 0o700


def test_a_commit_clears_its_batch_and_older_ones(tmp_path: Path) -> None:
    """What winners, losers and dead drivers left goes; what a later batch stages stays."""
    here = prepare(str(tmp_path))
    paths = [here.parcel_path("sink", batch, 0, 0, "run") for batch in (3, 4, 5, 10)]
    for path in paths:
        path.write_bytes(b"rows")
    directory = Path(here.directory)
    write_notes(directory, "sink", Notes("run", 5, "p"))
    clear(directory, "sink", 5)
    assert [path.exists() for path in paths] == [False, False, False, True]
    assert read_notes(directory, "sink") is not None
    clear(directory, "sink", None)
    assert not (directory / "sink").exists()


def test_forgotten_sinks_are_swept(tmp_path: Path) -> None:
    """A folder in which nothing came or went for a day goes with anybody's start."""
    here = prepare(str(tmp_path))
    old, fresh = Path(here.directory, "old"), Path(here.directory, "fresh")
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "1-0-0-run.parcel").write_bytes(b"rows")
    long_ago = time.time() - staging.ABANDONED_S - 60
    os.utime(old, (long_ago, long_ago))
    prepare(str(tmp_path))
    assert (old.exists(), fresh.exists()) == (False, True)
    assert here.visible()


def test_notes_tell_whether_a_batch_follows(tmp_path: Path) -> None:
    """Only the first batch of a run can be a replay; unknown runs and lost notes count as first."""
    here = Path(prepare(str(tmp_path)).directory)
    assert read_notes(here, "sink") is None
    write_notes(here, "sink", Notes("run", 4, "process"))
    notes = read_notes(here, "sink")
    assert notes == Notes("run", 4, "process")
    assert follows(notes, "run", 5)
    assert not follows(notes, "run", 4)
    assert not follows(notes, "another", 5)
    assert not follows(notes, "", 5)
    assert not follows(None, "run", 5)
    (here / "sink" / "run.json").write_text("{")
    assert read_notes(here, "sink") is None


def test_a_place_that_cannot_be_used_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark's scratch directory cannot be written there is no staging directory, no error."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/proc/nowhere/blockmgr-1")
    assert prepare(None) == Staging("", "")
