"""`make demo-agent`, briefly: it ends well and leaves nothing; its site and its checks."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from scripts.agent_demo.panel import View, panel, plain
from scripts.agent_demo.results import Results, compare
from scripts.agent_demo.site import LOG, Lines, Site, files, recount, rotate, status_of
from tests import needs

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "scripts.agent_demo"]
BRIEF = {"OTTLA_DEMO_SECONDS": "5", "OTTLA_DEMO_RATE": "300"}
LINE = b'1.2.3.4 - - [18/Nov/2026:10:00:00 +0000] "GET /hats HTTP/1.1" 404 700 "-" "Mozilla/5.0" 1'


# Spark's start alone takes half a minute of a quiet machine: the pipeline on top is for the long
# run. tests/spark starts the same file in its session.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.spark)])
def test_every_line_arrives_once(spark: bool, tmp_path: Path) -> None:
    """The agent is killed and started again while the log is rotated; it ends with 0, and all
    checks held."""
    if spark:
        needs.long()
        needs.java()
    done = subprocess.run(
        COMMAND if spark else [*COMMAND, "--without-spark"],
        cwd=ROOT,
        env={**os.environ, **BRIEF, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=570,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.count("✓") == (3 if spark else 2), said
    assert "SIGKILL to the agent" in said
    assert "lines arrive again" in said
    assert "every line arrived exactly once" in said
    assert done.stderr == ""
    assert not re.search(r"WARN|ERROR|Exception|Traceback", said), said
    assert list(tmp_path.iterdir()) == []


def test_the_site_writes_what_is_counted_again(tmp_path: Path) -> None:
    """Over several rotations every line is in one file, whole, with its number."""
    opened = threading.Event()
    opened.set()
    site = Site(tmp_path / "logs", 2000, 1.0, 0.2, opened)
    site.run()
    assert site.failure is None
    found = recount(site.directory)
    assert site.rotations >= 3
    assert len(found.files) == site.rotations + 1
    assert found.lines.total() == site.written == sum(found.statuses.values())
    numbers = sorted(int(line.split()[-1]) for line in found.lines)
    assert numbers == list(range(1, site.written + 1))


def test_files_are_rotated_as_logrotate_does(tmp_path: Path) -> None:
    """Numbers count from the newest; the second and older ones are compressed."""
    for number in range(4):
        (tmp_path / LOG).write_text(f"{number}\n")
        rotate(tmp_path)
    names = [name for name, _ in files(tmp_path)]
    assert names == [f"{LOG}.1", f"{LOG}.2.gz", f"{LOG}.3.gz", f"{LOG}.4.gz"]
    assert (tmp_path / names[0]).read_text() == "3\n"
    assert gzip.decompress((tmp_path / names[3]).read_bytes()) == b"0\n"


def test_a_status_code_is_behind_a_request() -> None:
    """A line that is no request has none, whatever nginx answered."""
    assert status_of(LINE) == "404"
    assert status_of(LINE.replace(b"GET /hats HTTP/1.1", rb"\x16\x03")) == "-"


def test_the_checks_see_what_is_wrong() -> None:
    """A line that is missing, or there twice, and a count that is wrong."""
    truth = Lines(Counter([b"a", b"b"]), Counter({"200": 2}), [LOG])

    def verdict(lines: list[bytes], statuses: dict[str, int]) -> list[bool]:
        found = Results(Counter(lines), Counter(statuses))
        return [check.good for check in compare(truth, found, spark=True)]

    assert verdict([b"a", b"b"], {"200": 2}) == [True, True]
    assert verdict([b"a"], {"200": 2}) == [False, True]
    assert verdict([b"a", b"b", b"b"], {"200": 2}) == [False, True]
    assert verdict([b"a", b"b"], {"200": 1, "404": 1}) == [True, False]


@pytest.mark.parametrize("width", [70, 80, 200])
def test_the_panel_fits(width: int) -> None:
    """No line of the panel is wider than the terminal; in a pipe it is one line."""
    view = View(
        written=12_345_678,
        counted=9_999_999,
        rates=[1.0] * 40,
        lags=[0.0, 5.0],
        statuses=[("200", 1_000_000), ("-", 1)],
        files=[(f"{LOG}.{number}.gz", 10**number) for number in range(9)],
        happenings=[(3.0, "word " * 60)],
    )
    bare = [re.sub(r"\033\[[0-9;]*m", "", line) for line in panel(view, width)]
    assert max(map(len, bare)) <= width
    assert "\n" not in plain(view)
