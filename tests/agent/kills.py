"""A log that is written and rotated by `logrotate`, an agent as a process, a reader: for tests that
kill.

A line is `<number:xxx>`, so that a line that a rotation cut in two is known for a fragment.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition
from ottla.testing.broker import Broker
from tests import needs

TIMEOUT_S = 120.0
TOPIC = "lines"
CHANNEL_TOPIC = "channel"  # with the number of the channel behind it
WHOLE = re.compile(rb"<(\d+):x*>")
TAILDIR = ("type = TAILDIR", "filegroups = f1", "filegroups.f1 = {logs}/app.log.*")
SPOOLDIR = ("type = spooldir", "spoolDir = {logs}")


class Writer:
    """Appends numbered lines, and has them rotated while it writes."""

    def __init__(self, directory: Path, chance: random.Random, how: str) -> None:
        """`how` are logrotate's words: create, or copytruncate, with compress or without."""
        self.directory = directory
        self.log = directory / "app.log"
        self.chance = chance
        self.lines = 0
        self.rotations = 0
        directory.mkdir()
        self._rules = directory.parent / "logrotate.conf"
        self._rules.write_text(f"{self.log} {{\nrotate 1000\nmissingok\nnotifempty\n{how}\n}}\n")
        self._rules.chmod(0o644)
        self._command = [needs.logrotate(), "--force", "--state", f"{self._rules}.state"]
        self._open_log()

    def _open_log(self) -> None:
        self._descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, most: int = 400) -> None:
        """One write of whole lines."""
        count = self.chance.randrange(1, most)
        made = []
        for _ in range(count):
            made.append(b"<%d:%s>\n" % (self.lines, b"x" * self.chance.randrange(50)))
            self.lines += 1
        os.write(self._descriptor, b"".join(made))

    def rotate(self) -> None:
        """Writes on while logrotate works, then opens the log by its name, as daemons do."""
        running = subprocess.Popen(
            [*self._command, str(self._rules)], stderr=subprocess.PIPE, text=True
        )
        while running.poll() is None:
            self.write(20)
            time.sleep(0.001)
        assert running.stderr is not None
        with running.stderr:
            assert running.returncode == 0, running.stderr.read()
        self.rotations += 1
        os.close(self._descriptor)
        self._open_log()

    def act(self) -> None:
        """One step: lines, sometimes a rotation."""
        self.write()
        if self.chance.random() < 0.4:
            self.rotate()

    def recount(self) -> Counter[int]:
        """All whole lines of all files. A copy ends where copytruncate cut the log."""
        found: Counter[int] = Counter()
        for path in self.directory.iterdir():
            data = path.read_bytes()
            found.update(numbers(gzip.decompress(data) if path.suffix == ".gz" else data))
        return found

    def close(self) -> None:
        os.close(self._descriptor)


def numbers(data: bytes) -> list[int]:
    """Of the whole lines."""
    found = map(WHOLE.fullmatch, data.split(b"\n"))
    return [int(match[1]) for match in found if match is not None]


class Agent:
    """`ottla agent run` as a process, on the files of a directory."""

    def __init__(
        self,
        directory: Path,
        broker: Broker,
        channel: str,
        *arguments: str,
        source: Sequence[str] = TAILDIR,
        topics: Sequence[str] = (TOPIC,),
    ) -> None:
        """Every line goes into each topic, through a channel of this type and a sink of its own."""
        self.directory = directory
        self.log = directory / "agent.log"
        self.arguments = arguments
        self.config = directory / "agent.conf"
        numbers = range(1, len(topics) + 1)
        lines = ["sources = r1"]
        for kind, letter in (("channels", "c"), ("sinks", "k"), ("sources.r1.channels", "c")):
            lines.append(f"{kind} = {' '.join(f'{letter}{number}' for number in numbers)}")
        lines += [f"sources.r1.{each.format(logs=directory / 'logs')}" for each in source]
        for number, topic in zip(numbers, topics, strict=True):
            lines.append(f"channels.c{number}.type = {channel}")
            if channel == "file":
                lines.append(f"channels.c{number}.minimumRequiredSpace = 0")
            if channel == "kafka":
                lines += [
                    f"channels.c{number}.kafka.topic = {CHANNEL_TOPIC}-{number}",
                    f"channels.c{number}.kafka.bootstrap.servers = {broker.bootstrap_servers}",
                    f"channels.c{number}.kafka.consumer.session.timeout.ms = 6000",
                    f"channels.c{number}.parseAsFlumeEvent = false",
                ]
            lines += [
                f"sinks.k{number}.type = org.apache.flume.sink.kafka.KafkaSink",
                f"sinks.k{number}.kafka.topic = {topic}",
                f"sinks.k{number}.kafka.bootstrap.servers = {broker.bootstrap_servers}",
                f"sinks.k{number}.channel = c{number}",
            ]
        self.config.write_text("".join(f"a1.{line}\n" for line in lines))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, data: str = "data") -> None:
        command = [sys.executable, "-m", "ottla", "agent", "run", str(self.config), "-n", "a1"]
        command += ["--data-dir", str(self.directory / data), *self.arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))

    def check_running(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self.words()

    def words(self) -> str:
        return self.log.read_text()[-3000:]

    def signal(self, number: signal.Signals) -> None:
        self.check_running()
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()


class Reader:
    """Reads what is committed, through restarts of the broker."""

    def __init__(self, broker: Broker, topic: str = TOPIC) -> None:
        self.lines: Counter[int] = Counter()
        self._consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.assign([TopicPartition(topic, 0)])

    def poll(self) -> None:
        try:
            for records in self._consumer.poll(timeout_ms=50).values():
                for record in records:
                    self.lines.update(numbers(record.value))
        except KafkaError as problem:
            if not problem.retriable:
                raise

    def read_more(self, agent: Agent) -> None:
        """Waits for some line; the agent must live."""
        total = self.lines.total()
        self._read(agent, lambda: self.lines.total() > total)

    def read_all(self, expected: Counter[int], agent: Agent) -> None:
        """Waits until all of these are there."""
        self._read(agent, lambda: expected.keys() <= self.lines.keys())

    def _read(self, agent: Agent, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not enough():
            self.poll()
            agent.check_running()
            assert time.monotonic() < deadline, (self.lines.total(), agent.words())

    def close(self) -> None:
        self._consumer.close()


def accepts(agent: Agent, port: int) -> bool:
    """Whether the agent listens already."""
    agent.check_running()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def send_lines(port: int, lines: range) -> None:
    """To a netcat source: returns when the channel has all of it, for it says OK to each line."""
    with socket.create_connection(("127.0.0.1", port), 60) as sender:
        sender.sendall(b"".join(b"<%d:>\n" % number for number in lines))
        answers = sender.makefile("rb")
        assert [next(answers) for _ in lines] == [b"OK\n"] * len(lines)
