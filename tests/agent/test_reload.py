"""`ottla agent run` reads its file again: real processes under load."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.agent.reloading import ChangeDetector, stamp_of
from ottla.agent.status_socket import NoAgent, ask
from ottla.testing.broker import Broker
from tests import needs
from tests.agent.test_run_command import running, values
from tests.waiting import eventually

TAIL = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = f1
a1.sources.r1.filegroups.f1 = {directory}/logs/.*
a1.sources.r1.batchSize = {batch}
a1.sources.r1.channels = c1
a1.channels.c1.type = {channel}
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.kafka.bootstrap.servers = {servers}
a1.sinks.k1.kafka.topic = {topic}
a1.sinks.k1.channel = c1
"""


def status(file: Path) -> dict[str, Any]:
    """Of the agent a1 that runs this file; empty before it answers."""
    try:
        return ask(file.parent / "data" / "a1")
    except NoAgent:
        return {}


def reloads(file: Path) -> int:
    found: int = status(file).get("reloads", -1)
    return found


def replace(file: Path, text: str) -> None:
    """As an editor does that writes beside."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


class Writer:
    """Appends numbers to a log, a line at a time, and moves the log away now and then."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self.directory.mkdir()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        log = self.directory / "app.log"
        while not self._ended.wait(0.001):
            if self.written % 200 == 199:
                log.rename(self.directory / f"app.log.{self.written}")
            with log.open("a") as out:
                out.write(f"{self.written}\n")
            self.written += 1


@pytest.mark.parametrize("channel", ["memory", "file"])
def test_each_line_arrives_once_through_reloads(
    ottla_broker: Broker, tmp_path: Path, channel: str
) -> None:
    """Lines are appended, and the log is rotated, while SIGHUPs come and the file changes: a
    consumer that reads what is committed finds each line once. Twice the channel changes too."""
    topic = f"reload-{channel}"
    file = tmp_path / "flume.conf"

    def text(turn: int) -> str:
        other = {"memory": "file", "file": "memory"}[channel] if turn % 4 == 3 else channel
        return TAIL.format(
            directory=tmp_path,
            batch=100 + turn,
            channel=other,
            servers=ottla_broker.bootstrap_servers,
            topic=topic,
        )

    file.write_text(text(0))
    with Writer(tmp_path / "logs") as writer, running(file) as process:
        eventually(lambda: process.poll() is not None or status(file))
        for turn in range(1, needs.rounds(5, 50)):
            replace(file, text(turn))
            if turn % 2:  # else it notices the change itself
                process.send_signal(signal.SIGHUP)
            at = writer.written
            eventually(lambda: process.poll() is not None or reloads(file) >= turn)  # noqa: B023
            eventually(lambda: writer.written > at + 20)  # noqa: B023
        writer.__exit__()
        eventually(
            lambda: process.poll() is not None or len(values(ottla_broker, topic)) >= writer.written
        )
        assert process.poll() is None, process.stderr and process.stderr.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert sorted(values(ottla_broker, topic)) == list(range(writer.written))


NETWORK = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = netcat
a1.sources.r1.bind = 127.0.0.1
a1.sources.r1.port = {port}
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.channels.c1.capacity = {capacity}
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {directory}/out
a1.sinks.k1.channel = c1
"""


class Network:
    """An agent from netcat to files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "flume.conf"
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self.write(100)

    def write(self, capacity: int) -> None:
        replace(
            self.file,
            NETWORK.format(port=self.port, capacity=capacity, directory=self.directory),
        )

    def capacity(self) -> int:
        channels = status(self.file).get("channels", [])
        return channels[0]["capacity"] if channels else 0

    def connect(self) -> socket.socket:
        found: list[socket.socket] = []

        def connects() -> bool:
            try:
                found.append(socket.create_connection(("127.0.0.1", self.port)))
            except ConnectionRefusedError:
                return False
            return True

        eventually(connects)
        return found[0]

    def lines(self) -> list[int]:
        return [
            int(line)
            for each in (self.directory / "out").glob("*")
            for line in each.read_text().splitlines()
        ]


def test_a_client_sends_on_through_reloads(tmp_path: Path) -> None:
    """Numbers come over one TCP connection, as fast as they are answered, while the file changes:
    the connection lasts, and each of them is in a file, once."""
    agent = Network(tmp_path)
    with running(agent.file) as process, agent.connect() as connection:
        replies = connection.makefile("rb")
        sent = 0
        for turn in range(1, needs.rounds(10, 100)):
            agent.write(100 + turn)
            process.send_signal(signal.SIGHUP)
            while status(agent.file).get("reloads") != turn:
                connection.sendall(b"".join(b"%d\n" % number for number in range(sent, sent + 50)))
                sent += 50
                assert [replies.readline() for _ in range(50)] == [b"OK\n"] * 50
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert sorted(agent.lines()) == list(range(sent))


def test_a_file_with_mistakes_changes_nothing(tmp_path: Path) -> None:
    """All that is wrong is logged, with line and what to try, and the agent goes on; the next file,
    which is right, runs. An empty file and none at all are mistakes too."""
    agent = Network(tmp_path)
    with running(agent.file) as process:
        assert process.stderr is not None
        eventually(lambda: process.poll() is not None or agent.capacity() == 100)
        right = agent.file.read_text()
        replace(agent.file, right.replace("= memory", "= memmory").replace("port", "prot"))
        process.send_signal(signal.SIGHUP)
        said = log_until(process, "goes on")
        assert any("c1.type" in line and "Try: " in line for line in said), said
        assert any("r1.port" in line for line in said), said
        for broken in ("", None):
            if broken is None:
                agent.file.unlink()
            else:
                agent.file.write_text(broken)
            process.send_signal(signal.SIGHUP)
            log_until(process, "goes on")
        with agent.connect() as connection:
            connection.sendall(b"1\n")
            assert connection.recv(10) == b"OK\n"
        agent.write(200)
        eventually(lambda: agent.capacity() == 200)
        assert status(agent.file)["reloads"] == 1


def log_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """What is logged, up to a line that has this text."""
    assert process.stderr is not None
    said: list[str] = []
    while not said or text not in said[-1]:
        line = process.stderr.readline()
        assert line, said
        said.append(line)
    return said


def test_no_reload_conf(tmp_path: Path) -> None:
    """With --no-reload-conf neither a signal nor a change is heeded; SIGHUP does not end the
    agent."""
    agent = Network(tmp_path)
    with running(agent.file, "--no-reload-conf") as process:
        eventually(lambda: process.poll() is not None or agent.capacity() == 100)
        agent.write(200)
        process.send_signal(signal.SIGHUP)
        log_until(process, "SIGHUP has no effect")
        agent.connect().close()
        assert agent.capacity() == 100


def test_an_agent_ends_with_its_terminal(tmp_path: Path) -> None:
    """The kernel's SIGHUP, when the terminal is closed, ends the agent in good order instead of
    having it read its file."""
    agent = Network(tmp_path)
    master, terminal = pty.openpty()
    environment = {**os.environ, "OTTLA_AGENT_DATA_DIR": str(tmp_path / "data")}
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLED, "agent", "run", str(agent.file)],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        with agent.connect() as connection:
            connection.sendall(b"1\n")
            assert connection.recv(10) == b"OK\n"
            os.close(master)
            assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
    assert agent.lines() == [1]


CONTROLLED = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from ottla.cli.main import main
main()
"""


def test_a_change_is_taken_when_the_file_rests(tmp_path: Path) -> None:
    """A file is not read while it is written: only when two looks after a change are equal. One
    that goes and comes back as it was is no change."""
    file = tmp_path / "flume.conf"
    file.write_text("a")
    first = stamp_of([file])
    detector = ChangeDetector(first)
    assert not detector.is_due(stamp_of([file]))
    file.write_text("ab")
    assert not detector.is_due(stamp_of([file]))
    file.write_text("abc")
    assert not detector.is_due(stamp_of([file]))
    assert detector.is_due(stamp_of([file]))
    detector.take(stamp_of([file]))
    assert not detector.is_due(stamp_of([file]))
    file.unlink()
    gone = stamp_of([file])
    assert gone == (None,)
    assert not detector.is_due(gone)
    assert detector.is_due(gone)
