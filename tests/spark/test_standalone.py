"""The cluster of tests and demos runs jobs in executors of its own and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.spark import java, standalone
from ottla.spark.processes import Process, from_proc, from_ps, processes
from ottla.spark.standalone import ClusterFailed, Standalone
from tests import needs

# A driver of its own: sums on both executors, waits for a word, sums again.
DRIVER = """
import os, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.appName("cluster test").config("spark.ui.enabled", "false")
for pair in sys.argv[1:]:
    builder = builder.config(*pair.split("=", 1))
session = builder.getOrCreate()

def job(number):
    import pyarrow
    return number, os.getpid(), sys.executable

for _ in range(2):
    done = session.sparkContext.parallelize(range(100), 8).map(job).collect()
    inside = os.getpid() in {process for _, process, _ in done}
    print(sum(number for number, _, _ in done), inside, done[0][2], flush=True)
    sys.stdin.readline()
session.stop()
"""
# Starts a cluster and says where it is, then stands still.
OWNER = """
import time
from ottla.spark.standalone import standalone
with standalone(workers=1) as cluster:
    print(cluster.directory, cluster.master.process.pid, cluster.workers[0].process.pid, flush=True)
    time.sleep(600)
"""


def eventually(done: Callable[[], bool], within_s: float = 30.0) -> bool:
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_job_runs_in_executors_that_may_be_killed(cluster: Standalone) -> None:
    """Tasks run outside the driver, with its Python; a killed executor's place is taken."""
    confs = [f"{name}={value}" for name, value in cluster.configuration().items()]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *confs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    try:
        assert driver.stdout.readline().split() == ["4950", "False", sys.executable]
        assert len(cluster.executor_pids()) == 2
        killed = cluster.executor_pids()[0]
        os.kill(killed, signal.SIGKILL)
        driver.stdin.write("again\n")
        driver.stdin.flush()
        assert driver.stdout.readline().split() == ["4950", "False", sys.executable]
        assert eventually(lambda: len(cluster.executor_pids()) == 2)
        assert killed not in cluster.executor_pids()
        driver.stdin.close()
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()
    assert eventually(lambda: not cluster.executor_pids())
    assert cluster.alive_workers() == 2


def test_nothing_stays_when_the_owner_is_killed() -> None:
    """After a SIGKILL of whoever started the cluster, daemons and directories are gone."""
    needs.java()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    directory, *guards = owner.stdout.readline().split()
    assert Path(directory).is_dir()
    assert len(guards) == 2
    owner.kill()
    owner.wait()
    owner.stdout.close()

    def gone() -> bool:
        running = {str(each.group) for each in processes()}
        return not set(guards) & running and not Path(directory).exists()

    assert eventually(gone)


def test_a_cluster_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the failed daemon's log is in the error, and no directory stays."""
    needs.java()
    monkeypatch.setattr(standalone, "DAEMON_MEMORY", "1x")
    made: list[str] = []
    make = standalone.tempfile.mkdtemp
    monkeypatch.setattr(
        standalone.tempfile, "mkdtemp", lambda **words: made.append(make(**words)) or made[-1]
    )
    with (
        pytest.raises(ClusterFailed, match="Invalid maximum heap size"),
        standalone.standalone(workers=1),
    ):
        pytest.fail("it started")
    assert made
    assert not Path(made[0]).exists()


@pytest.mark.parametrize("look", [from_proc, from_ps])
def test_processes_are_found_without_ps_and_without_proc(look: Callable[[], list[Process]]) -> None:
    """Both ways see a child with its parent, group and whole command line; a zombie is gone."""
    if look is from_ps and shutil.which("ps") is None:
        pytest.skip("ps is not installed")
    if look is from_proc and not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc")
    child = subprocess.Popen(["sleep", "54321"], start_new_session=True)
    try:
        assert eventually(
            lambda: (child.pid, "sleep 54321") in {(e.pid, e.command) for e in look()}
        )
        (found,) = [each for each in look() if each.pid == child.pid]
        assert found == (child.pid, os.getpid(), child.pid, "sleep 54321")
    finally:
        child.kill()
    assert eventually(lambda: child.pid not in {each.pid for each in look()})
    child.wait()


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_java_versions_are_read(said: str, version: int | None) -> None:
    """The major version is found in old and new spellings, and its absence too."""
    assert java.version_in(said) == version


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "java is not installed"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11"),
        ("exit 1", "does not run"),
    ],
)
def test_a_missing_java_is_one_sentence(
    script: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Java, an old one or macOS's placeholder: the error says what to install."""
    if script is not None:
        (tmp_path / "java").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "java").chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(java.JavaMissing, match=words) as failure:
        java.find_java()
    assert "openjdk-17" in str(failure.value)
    assert "\n" not in str(failure.value)
