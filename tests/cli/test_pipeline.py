"""`ottla pipeline` without Spark: command lines, the view of a run, starting again."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.pipeline_view import View
from ottla.spark.pipelines.progress import Reading
from tests.cli.process import ottla

FILE = """
from ottla.spark import pipeline, topic, table, files

@pipeline(source=topic("events", schema="user string"), sink=topic("views", key="user"),
          bad_records=topic("events.bad"))
def views(events): return events

@pipeline(sources={"o": topic("orders"), "p": table("products")}, sinks=[topic("x"), files("d")],
          mode="append", group="mine")
def enriched(o, p): return o, o
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "pipelines.py"
    made.write_text(FILE)
    return made


def test_list_shows_what_is_read_and_written(file: Path) -> None:
    """Names, topics and groups of a file, without Spark and without a broker."""
    shown = ottla("pipeline", "list", file, "--json")
    assert shown.code == 0
    assert json.loads(shown.out) == [
        {"name": "views", "sources": ["events"], "sinks": ["views"], "bad_records": "events.bad",
         "mode": "append", "group": "views", "file": str(file)},
        {"name": "enriched", "sources": ["orders", "products"], "sinks": ["x", "d"],
         "bad_records": None, "mode": "append", "group": "mine", "file": str(file)},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "fact", "hint"),
    [
        (["FILE"], 2, "say how to run: --past, --live or --catch-up", "--catch-up"),
        (["FILE", "--live", "--until", "latest"], 2, "--until is for --past", "--catch-up"),
        (["FILE", "--past", "--restart", "2"], 2, "--restart is for streams", "--live"),
        (["FILE", "--past", "--from", "soon"], 2, "--from: 'soon' is not earliest, latest, a time",
         "--from 2026-"),
        (["FILE", "--past", "--set", "x"], 2, "--set must be name=value", "--help"),
        (["FILE:nothing", "--past"], 1, "has no pipeline 'nothing' (there are views, enriched)",
         "ottla pipeline list"),
        (["nowhere.py", "--past"], 1, "there is no file nowhere.py", "ottla pipeline list"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_reported(
    file: Path, arguments: list[str], code: int, fact: str, hint: str
) -> None:
    """Two lines, before Spark is started."""
    given = [each.replace("FILE", str(file)) for each in arguments]
    ended = ottla("pipeline", "run", *given)
    assert ended.code == code
    assert ended.said(fact, hint), ended


def test_without_java_one_sentence_says_what_to_install(file: Path, tmp_path: Path) -> None:
    """Where no Java is, the advice names it; there is no traceback."""
    pytest.importorskip("pyspark")
    ended = ottla("pipeline", "run", file, "--past", PATH=str(tmp_path), JAVA_HOME="")
    assert ended.code == 1
    assert ended.said("java is not installed. Spark needs Java 17 or newer. Install it"), ended


def test_without_pyspark_one_sentence_says_what_to_install(file: Path, tmp_path: Path) -> None:
    """Where PySpark is missing, the advice names the extra."""
    shim = tmp_path / "without"
    shim.mkdir()
    text = 'raise ModuleNotFoundError("No module named \'pyspark\'", name="pyspark")'
    (shim / "pyspark.py").write_text(text)
    ended = ottla("pipeline", "run", file, "--past", PYTHONPATH=str(shim))
    assert ended.said("pyspark, which is not installed: pip install 'ottla[spark]'"), ended
    file.write_text("import pyspark.sql")
    ended = ottla("pipeline", "list", file, PYTHONPATH=str(shim))
    assert ended.said("pyspark, which is not installed: pip install 'ottla[spark]'"), ended


@pytest.mark.parametrize(
    "text",
    [
        "from pyspark.sql.functions import col\nx = col('a')",
        "from pyspark.sql.functions import udf\nf = udf('int')(lambda n: n)",
    ],
)
def test_a_file_that_needs_a_session_is_reported_when_listed(file: Path, text: str) -> None:
    """Columns and UDFs made while the file is read take a session, which a list has not; a run
    reads such a file when it has one."""
    pytest.importorskip("pyspark")
    file.write_text(text + FILE)
    ended = ottla("pipeline", "list", file)
    assert ended.said("pipelines.py:2 makes a column or a UDF while the file is read"), ended


def test_status_of_nothing(tmp_path: Path) -> None:
    """A directory without pipelines is reported as such; an unknown name is a failure."""
    ended = ottla("pipeline", "status", "--checkpoint", tmp_path)
    assert (ended.code, "no pipeline has run" in ended.errors) == (0, True)
    assert ottla("pipeline", "status", "nope", "--checkpoint", tmp_path).said("'nope'", "status")


# The view


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def reading(batch_id: int, **more: Any) -> Reading:
    facts: dict[str, Any] = {
        "pipeline": "p", "query": "q", "batch_id": batch_id, "at": "", "rows": 10,
        "rows_per_s": 100.0, "lag": 0, "batch_ms": 100, "watermark": None, "state_rows": None,
        "state_bytes": None, "late_rows": 0,
    }  # fmt: skip
    return Reading(**{**facts, **more})


def test_a_terminal_shows_one_line_for_each_query() -> None:
    """Lines are rewritten in place, with bad records last."""
    out = Terminal()
    view = View(out)
    view.show(reading(1, query="bad-records"))
    view.show(reading(1))
    view.show(reading(2))
    drawn = out.getvalue().split("\x1b[2A")[-1]
    assert drawn.count("\n") == 2
    assert [text.split()[0:3] for text in drawn.replace("\r\x1b[2K", "").splitlines()] == [
        ["p/q", "batch", "2"],
        ["p/bad-records", "batch", "1"],
    ]


def test_a_pipe_gets_a_line_a_second_and_the_last_one() -> None:
    """Batches in quick succession are one line; late rows are said at once; nothing is lost."""
    now = [0.0]
    out = io.StringIO()
    view = View(out, now=lambda: now[0])
    for batch in (1, 2, 3):
        view.show(reading(batch))
    view.show(reading(4, late_rows=2))
    view.show(reading(5, rows=0))
    view.show(reading(6))
    view.finish()
    batches = [text.split()[2] for text in out.getvalue().splitlines()]
    assert batches == ["1", "4", "6"]
    assert out.getvalue().count("2 too late") == 2
    assert view.late == 2


def test_json_has_every_batch() -> None:
    """One object a micro-batch, with late and bad rows in it."""
    out = io.StringIO()
    view = View(out, as_json=True)
    view.show(reading(1, late_rows=1))
    view.show(reading(2, rows=0, bad_rows=3))
    rows = [json.loads(text) for text in out.getvalue().splitlines()]
    assert [(row["batch_id"], row["late_rows"], row["bad_rows"]) for row in rows] == [
        (1, 1, None),
        (2, 0, 3),
    ]


# Starting again

SUPERVISED = """
import os, sys, time
from pathlib import Path
from ottla.cli import pipeline_run
pipeline_run.BACKOFF_FIRST_S = 0.01
runs = Path(sys.argv[1])
def work():
    runs.write_text(runs.read_text() + f"{os.getpid()} " if runs.exists() else f"{os.getpid()} ")
    exec(sys.argv[3])
    return 0
sys.exit(pipeline_run.supervise(int(sys.argv[2]), work))
"""


@pytest.mark.parametrize(
    ("restarts", "work", "code", "times"),
    [
        (2, "pass", 0, 1),
        (2, "sys.exit(1)", 1, 3),
        (2, "os.kill(os.getpid(), 9)", 137, 3),
        (3, "sys.exit(0 if runs.read_text().count(' ') == 3 else 1)", 0, 3),
    ],
)
def test_a_failed_run_is_started_again(
    tmp_path: Path, restarts: int, work: str, code: int, times: int
) -> None:
    """As often as was said and no more; not after success; also when it was killed."""
    runs = tmp_path / "runs"
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISED, runs, str(restarts), work],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert len(runs.read_text().split()) == times
    assert done.stderr.count("the run failed; restart") == times - 1


def test_a_stopped_run_is_not_started_again(tmp_path: Path) -> None:
    """A SIGTERM goes on to the child, and is the end even if the child fails by it."""
    runs = tmp_path / "runs"
    started = subprocess.Popen(
        [sys.executable, "-c", SUPERVISED, runs, "5", "time.sleep(60)"], stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (runs.exists() and runs.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=60)
    assert started.returncode == 128 + signal.SIGTERM
    (child,) = runs.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)
