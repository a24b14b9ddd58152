"""The demo, briefly: it ends well, leaves a report and nothing else; without Java it says so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.spark.processes import descendants, processes
from scripts.demo.process import Process
from tests import needs

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "scripts.demo"]
BRIEF = {"OTTLA_DEMO_SECONDS": "8", "OTTLA_DEMO_RATE": "400"}

pytestmark = pytest.mark.xdist_group("spark cluster")


def environment(directory: Path) -> dict[str, str]:
    """A demo that writes only below `directory`."""
    places = {"OTTLA_DEMO_REPORT": str(directory / "report.html"), "TMPDIR": str(directory)}
    return {**os.environ, **BRIEF, **places}


# Under a minute on two quiet cores; minutes where others want them too.
@pytest.mark.timeout(600)
@pytest.mark.spark
@pytest.mark.parametrize("where", ["local", "cluster"])
def test_the_demo_counts_every_event_once(where: str, tmp_path: Path) -> None:
    """Killed in the middle and started again, it ends with 0, all checks held, and a report."""
    needs.java()
    command = COMMAND
    if where == "cluster":
        needs.long()
        command = [*COMMAND, "--cluster"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=570
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.count("✓") == (5 if where == "local" else 6), said
    assert "SIGKILL to the pipelines" in said
    assert re.search(r"a console shows all of it while it runs: http://127\.0\.0\.1:\d+/", said)
    assert ("SIGKILL to broker" in said) == (where == "cluster"), said
    assert "every event counted exactly once" in said
    # Nothing that a newcomer would worry about.
    assert done.stderr == ""
    assert not re.search(r"WARN|ERROR|Exception|Traceback", said), said
    page = (tmp_path / "report.html").read_text()
    assert "Every event was counted exactly once." in page
    assert page.count("<svg") == 5
    # No directory, no checkpoint, no data is left.
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """Interrupted while Spark starts it ends with 130, and its processes and files are gone."""
    needs.java()
    demo = subprocess.Popen(
        COMMAND,
        cwd=ROOT,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if "starting Spark" in line:
                break
        # The broker, the shell around the pipelines and what runs in it.
        started = descendants(demo.pid)
        assert len(started) >= 3
        demo.send_signal(signal.SIGINT)
        said = demo.stdout.read()
        assert demo.wait(60) == 130
        assert "interrupted" in said
        assert "Traceback" not in said
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in started) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in started if alive(pid)]
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    """One sentence, exit code 1, and nothing is started."""
    lonely = {**environment(tmp_path), "PATH": str(tmp_path), "JAVA_HOME": ""}
    done = subprocess.run(COMMAND, cwd=ROOT, env=lonely, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "java is not installed" in done.stderr
    assert "openjdk-17" in done.stderr


def test_a_process_gives_readings_and_its_exit_code(tmp_path: Path) -> None:
    """Lines of JSON come back as objects; SIGTERM reaches the process, not its shell."""
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('{\"batch\": 1}', flush=True); print('words', flush=True); time.sleep(60)"
    )
    process = Process([sys.executable, "-c", script], tmp_path / "log", os.environ, tmp_path)
    deadline = time.monotonic() + 60
    readings: list[object] = []
    while not readings and time.monotonic() < deadline:
        readings += process.readings()
        time.sleep(0.05)
    assert readings == [{"batch": 1}]
    assert process.running
    assert process.stop() == 7
    assert not process.running


def test_a_process_dies_with_all_its_children(tmp_path: Path) -> None:
    """A kill reaches a child in a session of its own, as Spark's JVM is."""
    script = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print('{}', flush=True); time.sleep(60)"
    )
    process = Process([sys.executable, "-c", script], tmp_path / "log", os.environ, tmp_path)
    deadline = time.monotonic() + 60
    while not process.readings() and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [process.pid, *descendants(process.pid)]
    assert len(pids) == 2
    process.kill()
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Is it there, and more than a zombie that nobody has waited for?"""
    return any(each.pid == pid for each in processes())
