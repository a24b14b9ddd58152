"""Temporary directories of drivers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.spark.owned_directory import LOCK, OwnedDirectory

PREFIX = "ottla-owned-test-"
KILLED = f"""
import os, signal, sys
from ottla.spark.owned_directory import OwnedDirectory
print(OwnedDirectory({PREFIX!r}).path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_removes_what_a_killed_owner_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory whose owner was killed goes with the next one; one whose owner lives stays, as
    does one of that name that nobody ever locked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False
    )
    left = Path(done.stdout.strip())
    assert (left / LOCK).exists()
    living = OwnedDirectory(PREFIX)
    assert not left.exists()
    (tmp_path / f"{PREFIX}other").mkdir()
    another = OwnedDirectory(PREFIX)
    assert living.path.exists()
    assert (tmp_path / f"{PREFIX}other").exists()
    for each in (living, another, another):
        each.remove()
    assert [each.name for each in tmp_path.iterdir()] == [f"{PREFIX}other"]
