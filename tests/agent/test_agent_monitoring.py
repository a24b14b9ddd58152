"""What a running agent shows to others: metrics over HTTP, `ottla agent status` and `top`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.agent_monitoring import Address, address_in
from ottla.cli.failure import Failure
from tests.agent.test_reload import log_until, status
from tests.agent.test_run_command import running
from tests.waiting import eventually

TAIL = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = f1
a1.sources.r1.filegroups.f1 = {directory}/app.log
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {directory}/out
a1.sinks.k1.channel = c1
"""


@contextmanager
def tailing(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An agent that has delivered 1,000 lines of one file."""
    (directory / "app.log").write_text("".join(f"{number}\n" for number in range(1000)))
    file = directory / "flume.conf"
    file.write_text(TAIL.format(directory=directory))
    with running(file, *arguments) as process:
        eventually(lambda: process.poll() is not None or delivered(directory) == 1000)
        yield process


def delivered(directory: Path) -> int:
    sinks = status(directory / "flume.conf").get("sinks", [])
    return sinks[0]["events_delivered"] if sinks else 0


def get(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        found: bytes = answer.read()
    return found.decode()


def port_of(log: list[str]) -> str:
    return log[-1].split("http://")[1].split("/")[0]


def ottla(directory: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "ottla", "agent", *words, "--data-dir", str(directory / "data")]


def test_flumes_json_is_served(tmp_path: Path) -> None:
    """-Dflume.monitoring.type=http: GET /metrics on a loopback address."""
    options = ["-Dflume.monitoring.type=HTTP", "-Dflume.monitoring.port=0"]
    (tmp_path / "out").mkdir()
    with tailing(tmp_path, *options) as process:
        address = port_of(log_until(process, "metrics on"))
        assert address.startswith("127.0.0.1:")
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            assert answer.headers["Content-Type"] == "application/json;charset=utf-8"
            shown = json.loads(answer.read())
    assert shown["SOURCE.r1"]["EventAcceptedCount"] == "1000"
    assert shown["CHANNEL.c1"]["EventTakeSuccessCount"] == "1000"
    assert shown["SINK.k1"]["EventDrainSuccessCount"] == "1000"


def test_prometheus_is_served(tmp_path: Path) -> None:
    """--metrics: counts as text, and whether the agent is well."""
    with tailing(tmp_path, "--metrics", "127.0.0.1:0") as process:
        address = port_of(log_until(process, "metrics on"))
        lines = get(f"http://{address}/metrics").splitlines()
        assert 'Flume_EventDrainSuccessCount_total{component="k1"} 1000.0' in lines
        assert get(f"http://{address}/readyz") == "ok\n"


@pytest.mark.parametrize(
    ("properties", "metrics", "expected"),
    [
        ({}, None, None),
        ({"type": "http"}, None, ("http", "127.0.0.1", 41414)),
        ({"type": "Prometheus", "port": "1"}, None, ("prometheus", "127.0.0.1", 1)),
        ({"type": "http", "host": "0.0.0.0"}, None, ("http", "0.0.0.0", 41414)),
        (
            {"type": "org.apache.flume.instrumentation.http.HTTPMetricsServer"},
            None,
            ("http", "127.0.0.1", 41414),
        ),
        ({}, "[::1]:9404", ("prometheus", "::1", 9404)),
        ({"type": "ganglia"}, None, "flume.monitoring.type: must be http or prometheus"),
        ({"type": "http", "port": "x"}, None, "flume.monitoring.port: must be a port between"),
        ({"type": "http", "port": "65536"}, None, "flume.monitoring.port: must be a port between"),
        ({"type": "http"}, "127.0.0.1:1", "--metrics and -Dflume.monitoring.type are two ways"),
        ({}, "9404", "--metrics: must be HOST:PORT"),
    ],
)
def test_where_metrics_are_shown(
    properties: dict[str, str], metrics: str | None, expected: tuple[object, ...] | str | None
) -> None:
    """Flume's options or ours; what is wrong with them is one sentence."""
    given = {f"flume.monitoring.{name}": value for name, value in properties.items()}
    if isinstance(expected, str):
        with pytest.raises(Failure) as failure:
            address_in(given, metrics)
        assert failure.value.fact.startswith(expected)
        return
    found: Address | None = address_in(given, metrics)
    assert (found and found[:3]) == expected


def test_status_and_top_ask_the_agent(tmp_path: Path) -> None:
    """`status` shows parts and files, `top --json` gives an object a time with rates, and a file
    that nobody can read further has a lag."""
    with tailing(tmp_path):
        shown = subprocess.run(ottla(tmp_path, "status"), capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        assert "r1      taildir         -   1,000            0" in shown.stdout
        assert str(tmp_path / "app.log") in shown.stdout
        asked = subprocess.run(ottla(tmp_path, "status", "--json"), capture_output=True)
        found = json.loads(asked.stdout)
        [file] = found["files"]
        size = (tmp_path / "app.log").stat().st_size
        assert (file["position"], file["delivered"], file["size"]) == (size, size, size)
        assert (file["lag"], found["lag_bytes"], found["files_total"]) == (0, 0, 1)
        with (tmp_path / "app.log").open("a") as log:
            log.write("a line that is not whole")
        again = subprocess.run(ottla(tmp_path, "status", "--json"), capture_output=True)
        assert json.loads(again.stdout)["lag_bytes"] == 24
        watching = subprocess.Popen(
            ottla(tmp_path, "top", "--json", "--interval", "0.1"), stdout=subprocess.PIPE, text=True
        )
        assert watching.stdout is not None
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        watching.send_signal(signal.SIGTERM)
        assert watching.wait() == 0
        watching.stdout.close()
        assert (first["in_per_second"], second["in_per_second"]) == (None, 0)


def test_status_without_an_agent(tmp_path: Path) -> None:
    """One sentence, also where an agent was killed and its socket is still there."""
    words = ottla(tmp_path, "status")
    asked = subprocess.run(words, capture_output=True, text=True)
    assert asked.returncode == 1
    assert asked.stderr.startswith(f"ottla: no agent runs on {tmp_path / 'data'}\nTry: ")
    with tailing(tmp_path) as process:
        process.kill()
        process.wait()
    asked = subprocess.run(words, capture_output=True, text=True)
    assert asked.returncode == 1
    assert "no agent answers at" in asked.stderr


def test_a_json_object_every_second(tmp_path: Path) -> None:
    """`run --live --json`: what the agent does, on standard output, the log beside it."""
    (tmp_path / "app.log").write_text("1\n")
    file = tmp_path / "flume.conf"
    file.write_text(TAIL.format(directory=tmp_path))
    words = ottla(tmp_path, "run", str(file), "--live", "--json")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while not json.loads(process.stdout.readline())["out_per_second"]:
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.stdout.close()
