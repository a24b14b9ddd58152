"""`ottla server --console`: a console beside the broker."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import environment_with
from tests.waiting import eventually


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable, "-m", "ottla", "server", "--listen", "127.0.0.1:0",
        "--data-dir", str(tmp_path / "data"), "--console", "0",
    ]  # fmt: skip
    environment = environment_with({"PYTHONUNBUFFERED": "1"})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            yield running
        finally:
            running.kill()


def lines_until(server: subprocess.Popen[str], text: str) -> list[str]:
    assert server.stdout is not None
    found = []
    for line in server.stdout:
        found.append(line)
        if text in line:
            return found
    raise AssertionError(f"it ended without {text!r}: {found}")


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address):
            return True
    except OSError:
        return False


def test_a_console_comes_and_goes_with_the_broker(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    """It prints its address and the one-time password, keeps its files beside the data, and ends
    with the broker, here by SIGKILL."""
    lines = lines_until(server, "Log in as admin with")
    found = re.search(r"http://127\.0\.0\.1:\d+/", "".join(lines))
    assert found is not None
    assert answers(found[0] + "login")
    assert (tmp_path / "ottla-console").is_dir()
    server.send_signal(signal.SIGKILL)
    eventually(lambda: not answers(found[0] + "login"), "the console goes on without its broker")


def test_the_broker_stops_it(server: subprocess.Popen[str]) -> None:
    """SIGTERM to the broker ends both, with exit code 0."""
    lines_until(server, "Log in as admin with")
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert server.stdout is not None
    server.stdout.read()  # ends when the console, which has it too, has ended
