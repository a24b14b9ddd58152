"""What a person sees on a terminal, and a program in a pipe."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.client.admin import Admin
from tests.cli.state import State

pytestmark = pytest.mark.xdist_group("tools")


def on_terminal(state: State, *words: str) -> tuple[int, str]:
    """Exit code, and all that came to the screen."""
    screen, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "OTTLA_BOOTSTRAP_SERVERS": state.bootstrap}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", *words],
        stdin=subprocess.DEVNULL, stdout=side, stderr=side, env=environment,
    )  # fmt: skip
    os.close(side)
    seen = b""
    while True:
        try:
            data = os.read(screen, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        seen += data
    os.close(screen)
    return process.wait(60), seen.decode()


def in_pipe(state: State, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla", *words, "-b", state.bootstrap],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_tables_have_colour_on_a_terminal_alone(state: State) -> None:
    """Bold titles there; the same columns without escapes in a pipe."""
    code, seen = on_terminal(state, "topics", "describe", "orders")
    assert code == 0
    assert "\x1b[1mPARTITION  LEADER" in seen
    piped = in_pipe(state, "topics", "describe", "orders")
    assert "PARTITION  LEADER" in piped.stdout
    assert "\x1b" not in piped.stdout + piped.stderr


def test_long_work_shows_how_far_it_is(state: State, tmp_path: Path) -> None:
    """A bar that reaches its end, on a terminal and not in a pipe nor with --json."""
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        admin.create_topics(["measured"])
    for words in (("produce", "measured", "-n", "2000"), ("consume", "measured", "-n", "1000")):
        code, seen = on_terminal(state, "perf", *words)
        assert code == 0, seen
        assert "[####################################]  100%" in seen
        assert "records per second" in seen
    quiet = in_pipe(state, "perf", "produce", "measured", "-n", "10")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    file = tmp_path / "lines"
    file.write_text("a line of some length\n" * 60_000)
    code, seen = on_terminal(state, "produce", "measured", "--file", str(file))
    assert code == 0, seen
    assert "100%" in seen
    assert "60000 records written" in seen
    assert in_pipe(state, "produce", "measured", "--file", str(file)).stderr == ""


def test_a_failure_on_a_terminal(state: State) -> None:
    """The fact, what to try, and the exit code."""
    code, seen = on_terminal(state, "topics", "describe", "nope")
    assert code == 1
    assert "there is no topic 'nope'" in seen
    assert "Try: ottla topics list" in seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [
        ["-m", "ottla", "consume", "orders", "--follow", "--group", "GROUP", "-b", "SERVER"],
        ["-m", "ottla.cli.kafka_scripts.console_consumer", "--bootstrap-server", "SERVER",
         "--topic", "orders", "--group", "GROUP"],
    ],
    ids=["ottla", "kafka"],
)  # fmt: skip
def test_a_reader_that_is_stopped_leaves_its_group(
    state: State, words: list[str], number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM alike: exit code 0, and the group is empty at once."""
    group = f"stopped-{number}-{len(words)}"
    line = [each.replace("SERVER", state.bootstrap).replace("GROUP", group) for each in words]
    if "kafka_scripts" in line[1]:
        line[:2] = ["-c", "from ottla.cli.kafka_scripts.console_consumer import main; main()"]
    process = subprocess.Popen([sys.executable, *line], stdout=subprocess.DEVNULL)
    try:
        with Admin(bootstrap_servers=state.bootstrap) as admin:
            deadline = time.monotonic() + 60
            while admin.describe_groups([group])[group]["group_state"] != "Stable":
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(60) == 0
            assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    finally:
        process.kill()
        process.wait()
