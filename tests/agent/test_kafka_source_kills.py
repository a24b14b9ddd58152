"""Agents that share a consumer group, killed, stopped and frozen at random moments: each record of
the source's topic is in the sink's topic once."""

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

from ottla.client.admin import Admin
from ottla.client.admin.types import NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.client.structs import TopicPartition
from ottla.testing.broker import Broker
from tests import needs

PARTITIONS = 4
TIMEOUT_S = 120.0
ROUNDS = needs.rounds(5, 60)
CONFIG = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = org.apache.flume.source.kafka.KafkaSource
a1.sources.r1.channels = c1
a1.sources.r1.kafka.bootstrap.servers = SERVERS
a1.sources.r1.kafka.topics = in
a1.sources.r1.kafka.consumer.group.id = shared
a1.sources.r1.kafka.consumer.auto.offset.reset = earliest
a1.sources.r1.kafka.consumer.session.timeout.ms = 2000
a1.sources.r1.kafka.consumer.heartbeat.interval.ms = 200
a1.sources.r1.kafka.consumer.partition.assignment.strategy = STRATEGY
a1.sources.r1.batchSize = 50
a1.channels.c1.type = CHANNEL
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.channel = c1
a1.sinks.k1.kafka.bootstrap.servers = SERVERS
a1.sinks.k1.kafka.topic = out
a1.sinks.k1.allowTopicOverride = false
a1.sinks.k1.kafka.producer.transaction.timeout.ms = 2000
"""


class Agent:
    """An instance of its own, as a process."""

    def __init__(self, directory: Path, config: Path) -> None:
        self.directory = directory
        self.config = config
        self.log = directory / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def start(self) -> None:
        command = [sys.executable, "-m", "ottla", "agent", "run", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(self.directory)],
                stdout=log, stderr=log, env=dict(os.environ),
            )  # fmt: skip

    def check_running(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def signal(self, number: signal.Signals) -> None:
        self.check_running()
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        self.signal(number)
        assert self.process is not None
        self.process.wait()


class Topics:
    """Numbers into the one topic, what is committed out of the other."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("in", PARTITIONS, 1), NewTopic("out", 1, 1)])
        self.chance = chance
        self.sent = 0
        self.arrived: Counter[int] = Counter()
        self._producer = Producer(bootstrap_servers=servers, enable_idempotence=True, acks="all")
        self._consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.assign([TopicPartition("out", 0)])

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 500)):
            partition = self.chance.randrange(PARTITIONS)
            self._producer.send("in", b"%d" % self.sent, partition=partition)
            self.sent += 1
        self._producer.flush()

    def poll(self) -> None:
        try:
            for records in self._consumer.poll(timeout_ms=50).values():
                self.arrived.update(int(record.value) for record in records)
        except KafkaError as problem:
            if not problem.retriable:
                raise

    def wait(self, count: int, *agents: Agent) -> None:
        """Until so many different numbers have arrived."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.arrived) < count:
            self.poll()
            for agent in agents:
                agent.check_running()
            logs = "\n".join(agent.log.read_text()[-2000:] for agent in agents)
            assert time.monotonic() < deadline, (len(self.arrived), count, logs)

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


@pytest.mark.ottla(
    group_min_session_timeout_ms=1000,
    group_initial_rebalance_delay_ms=0,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=200,
)
@pytest.mark.timeout(900)
def test_each_record_arrives_once_whoever_has_its_partition(
    ottla_own_broker: Broker, tmp_path: Path
) -> None:
    """SIGKILL with a restart, SIGTERM, an agent that stays away until the other has its partitions,
    one that is frozen for so long and goes on (a zombie), and the broker killed: judged by a
    recount. One of them has a file channel."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    text = CONFIG.replace("SERVERS", ottla_own_broker.bootstrap_servers)
    text = text.replace("STRATEGY", chance.choice(["range", "cooperative-sticky"]))
    topics = Topics(ottla_own_broker, chance)
    agents = []
    for channel in ("memory", "file\na1.channels.c1.minimumRequiredSpace = 0"):
        config = tmp_path / f"{channel[:4]}.conf"
        config.write_text(text.replace("CHANNEL", channel))
        agents.append(Agent(tmp_path / channel[:4], config))
    topics.send()
    for agent in agents:
        agent.start()
    topics.wait(topics.sent, *agents)
    actions = ["kill", "stop", "away", "freeze", "broker"]
    for number in range(ROUNDS):
        agent, other = chance.sample(agents, 2)
        topics.send()
        time.sleep(chance.random() * 0.1)
        action = actions[number] if number < len(actions) else chance.choice(actions)
        if action == "broker":
            ottla_own_broker.kill()
            ottla_own_broker.start()
        elif action == "freeze":
            agent.signal(signal.SIGSTOP)
            topics.send()
            topics.wait(topics.sent, other)
            agent.signal(signal.SIGCONT)
        else:
            agent.end(signal.SIGTERM if action == "stop" else signal.SIGKILL)
            topics.send()
            if action == "away":
                topics.wait(topics.sent, other)
            agent.start()
        topics.send()
        if chance.random() < 0.5:
            topics.wait(topics.sent, *agents)
    topics.wait(topics.sent, *agents)
    for agent in agents:
        agent.end(signal.SIGTERM)
    topics.poll()
    doubled = sorted(number for number, count in topics.arrived.items() if count > 1)
    missing = topics.sent - len(topics.arrived)
    topics.close()
    assert (doubled, missing) == ([], 0), f"seed {seed}"
