"""An agent and its broker killed at random moments: each line of the files arrives once.

A writer appends numbered lines to a log and rotates it by renaming. Judged by a recount: the files
are read at the end, and the topic must have the same lines.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition
from ottla.testing.broker import Broker
from tests import needs

ROUNDS = 40 if needs.LONG else 10
BROKER_KILL_EVERY = 4  # rounds
TIMEOUT_S = 120.0
TOPIC = "lines"


class Writer:
    """Appends numbered lines, and rotates."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self.chance = chance
        self.lines = 0
        self.files = 0
        directory.mkdir()

    def write(self) -> None:
        count = self.chance.randrange(1, 400)
        with (self.directory / "app.log").open("ab") as log:
            for _ in range(count):
                log.write(b"%d %s\n" % (self.lines, b"x" * self.chance.randrange(50)))
                self.lines += 1
        if self.chance.random() < 0.4:
            self.files += 1
            (self.directory / "app.log").rename(self.directory / f"app.log.{self.files}")

    def recount(self) -> list[bytes]:
        """All lines of all files."""
        return [
            line
            for path in self.directory.iterdir()
            for line in path.read_bytes().splitlines(keepends=False)
        ]


class Agent:
    """`ottla agent run` as a process."""

    def __init__(self, directory: Path, broker: Broker, channel: str) -> None:
        self.directory = directory
        self.config = directory / "agent.conf"
        self.config.write_text(
            "a1.sources = r1\na1.channels = c1\na1.sinks = k1\n"
            "a1.sources.r1.type = TAILDIR\na1.sources.r1.filegroups = f1\n"
            f"a1.sources.r1.filegroups.f1 = {directory}/logs/app.log.*\n"
            "a1.sources.r1.channels = c1\n"
            f"{channel}"
            "a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink\n"
            f"a1.sinks.k1.kafka.topic = {TOPIC}\n"
            f"a1.sinks.k1.kafka.bootstrap.servers = {broker.bootstrap_servers}\n"
            "a1.sinks.k1.channel = c1\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        data = str(self.directory / "data")
        command = [sys.executable, "-m", "ottla", "agent", "run", str(self.config), "-n", "a1"]
        with (self.directory / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", data], stdout=log, stderr=log, env=dict(os.environ)
            )

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "agent.log").read_text()[-3000:]
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Reader:
    """Reads what is committed, through restarts of the broker."""

    def __init__(self, broker: Broker) -> None:
        self.lines: list[bytes] = []
        self._consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.assign([TopicPartition(TOPIC, 0)])

    def poll(self) -> None:
        try:
            for records in self._consumer.poll(timeout_ms=50).values():
                self.lines += [record.value for record in records if record.value is not None]
        except KafkaError as problem:
            if not problem.retriable:
                raise

    def read_until(self, lines: int, agent: Agent) -> None:
        """Waits for so many lines; the agent must live."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.lines) < lines:
            self.poll()
            assert agent.process is not None
            log = agent.directory / "agent.log"
            assert agent.process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, (len(self.lines), lines, log.read_text()[-3000:])

    def close(self) -> None:
        self._consumer.close()


CHANNELS = {
    "memory": "a1.channels.c1.type = memory\n",
    "file": "a1.channels.c1.type = file\na1.channels.c1.minimumRequiredSpace = 0\n",
}


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.timeout(600)
def test_each_line_arrives_once_whoever_is_killed(
    ottla_own_broker: Broker, tmp_path: Path, channel: str
) -> None:
    """SIGKILL of the agent in each round and of the broker in some, while files are rotated."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    writer = Writer(tmp_path / "logs", chance)
    agent = Agent(tmp_path, ottla_own_broker, CHANNELS[channel])
    reader = Reader(ottla_own_broker)
    for number in range(ROUNDS):
        writer.write()
        agent.start()
        if chance.random() < 0.7:  # else it may be killed while it starts
            reader.read_until(len(reader.lines) + 1, agent)
        for _ in range(chance.randrange(3)):
            writer.write()
            time.sleep(chance.random() * 0.05)
        if number % BROKER_KILL_EVERY == BROKER_KILL_EVERY - 1:
            ottla_own_broker.kill()
            if chance.random() < 0.5:
                agent.kill()
                ottla_own_broker.start()
                continue
            ottla_own_broker.start()
            time.sleep(chance.random() * 0.1)
        agent.kill()
    writer.write()
    agent.start()
    expected = Counter(writer.recount())
    reader.read_until(expected.total(), agent)
    agent.kill()
    assert expected.total() == writer.lines
    found = Counter(reader.lines)
    doubled = (found - expected).total()
    missing = (expected - found).total()
    assert (doubled, missing) == (0, 0), f"seed {seed}: {doubled} doubled, {missing} missing"
    reader.close()
