"""`ottla pipeline run` as a process of its own: stopped, started again, killed; each row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests import needs
from tests.spark.pipelines.tools import lag, make_topic, objects, send

END_S = 400  # at a load of 25 a start of Spark and three batches took more than 180 s
pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
]
# A function of the file and one of a module beside it run in Spark's Python workers.
FILE = """
from pyspark.sql.functions import udf
from beside import plus
from ottla.spark import pipeline, topic

@udf("int")
def same(n):
    return plus(n, 0)

@pipeline(source=topic({topic!r}, schema="n int"), sink=topic({topic!r} + ".out", key="n"),
          bad_records=topic({topic!r} + ".bad"), options={{"spark.driver.memory": "512m"}})
def copied(events):
    return events.select(same("n").alias("n"))
"""
BESIDE = "def plus(a, b): return a + b"


class Process:
    """A run whose JSON lines are read as they come."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "pipeline", "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.readings: list[dict[str, Any]] = []
        self.errors = ""
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._out, self._err)
        ]
        for each in self._threads:
            each.start()

    def _out(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            with self._changed:
                self.readings.append(json.loads(text))
                self._changed.notify_all()

    def _err(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.errors += text

    def wait_until(self, true: Callable[[list[dict[str, Any]]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: true(self.readings), END_S), self.errors

    def end(self) -> int:
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"after {len(self.readings)} batches: {self.errors}") from late
        for each in self._threads:
            each.join(60)
        return code


def rows(readings: list[dict[str, Any]], query: str) -> int:
    return sum(each["rows"] for each in readings if each["query"] == query)


def test_a_live_run_stops_cleanly_and_goes_on(broker: Broker, topic: str, tmp_path: Path) -> None:
    """SIGTERM ends a live run with 0 and without a word too much; a killed JVM is survived with
    --restart; the next run goes on: every record is out exactly once and the lag is 0. Only of a
    batch that runs again is the lag not known: Spark does not ask for the newest offsets there."""
    needs.java()
    servers = broker.bootstrap_servers
    make_topic(servers, topic)
    file = tmp_path / "copied.py"
    file.write_text(FILE.format(topic=topic))
    (tmp_path / "beside.py").write_text(BESIDE)
    common = [str(file), "-b", servers, "--checkpoint", str(tmp_path / "state"), "--json"]
    common += ["--master", "local[2]"]
    send(servers, topic, [{"n": n} for n in range(50)])
    live = Process(*common, "--live", "--restart", "2")
    try:
        live.wait_until(lambda readings: rows(readings, f"{topic}.out") == 50)
        run = json.loads((tmp_path / "state" / "copied" / "run.json").read_text())
        os.kill(run["jvm_pid"], signal.SIGKILL)
        send(servers, topic, [{"n": n} for n in range(50, 100)])
        live.wait_until(lambda readings: rows(readings, f"{topic}.out") >= 100)
        live.process.send_signal(signal.SIGTERM)
        assert live.end() == 0, live.errors
    finally:
        live.process.kill()
    said = live.errors.splitlines()
    assert said == [
        "ottla: Spark's JVM has ended",
        "Try: --verbose shows what it said; --restart 3 starts it again",
        "ottla: the run failed; restart 1 of 2 in 1 s",
    ]
    ran_again = Counter(each["query"] for each in live.readings if each["lag"] is None)
    assert all(count == 1 for count in ran_again.values())  # begun before the kill, if any
    # As if the run had been killed between the last batch's write and Spark's commit of it.
    committed = max((tmp_path / "state" / "copied" / f"{topic}.out" / "commits").glob("[0-9]*"))
    committed.unlink()
    (committed.parent / f".{committed.name}.crc").unlink()
    send(servers, topic, [*({"n": n} for n in range(100, 120)), b"broken"])
    last = Process(*common, "--catch-up")
    assert last.end() == 0, last.errors
    assert last.errors == ""
    first, second = (each for each in last.readings if each["query"] == f"{topic}.out")
    assert first["batch_id"] == int(committed.name)
    assert (first["lag"], second["lag"]) == (None, 0)
    assert sorted(row["n"] for row in objects(servers, f"{topic}.out")) == list(range(120))
    assert lag(servers, "copied", topic) == lag(servers, "copied-bad", topic) == 0
    assert sum(each["bad_rows"] or 0 for each in last.readings) == 1
    shown = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "status", "--json",
         "--checkpoint", str(tmp_path / "state")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    stands = {each["query"]: each for each in json.loads(shown.stdout)}
    assert {each["state"] for each in stands.values()} == {"stopped"}
    assert {each["lag"] for each in stands.values()} == {0}
