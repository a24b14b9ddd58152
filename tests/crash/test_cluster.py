"""Three broker processes of one host: killed, suspended and started again under real clients.

What was acknowledged with acks=all is read back once and in order, whoever died meanwhile, and a
broker that comes back is in sync again. `ottla.testing.history` judges what all clients saw.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from ottla.testing.history import History, check
from tests import needs
from tests.waiting import GIVE_UP_S, eventually

TOPIC = "survivor"
PARTITIONS = 3
KEYS = 12
RECORDS_BETWEEN_FAULTS = 300
# Kafka's session time-out: with 3 s a controller on a busy machine was taken for suspended, and
# killed, while another broker was down.
OPTIONS = {"broker_session_timeout_ms": 9000, "replica_fetch_backoff_ms": 100}
# Where brokers are killed and nothing else: dialling proves their death, and no session has to end.
# A disk that stands still for longer than a session gets a controller killed by its parent.
KILLS = {**OPTIONS, "broker_session_timeout_ms": 60_000}


def create_topic(cluster: Cluster, name: str = TOPIC, partitions: int = PARTITIONS) -> None:
    """With the cluster's defaults: three replicas, two of which acknowledge."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    (future,) = client.create_topics([NewTopic(name, partitions)]).values()
    future.result(GIVE_UP_S)


class Writer(threading.Thread):
    """One idempotent producer over all keys; sends until it is stopped."""

    def __init__(self, servers: str, history: History, **options: object) -> None:
        super().__init__(name="writer", daemon=True)
        self.acknowledged: list[tuple[int, str]] = []  # partition and value
        self.longest_gap_s = 0.0  # between two acknowledgements; a test may begin anew
        self._acknowledged_s = time.monotonic()
        self.problems: list[str] = []
        self._history = history
        self._ended = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 1000,
                "message.timeout.ms": 60_000,
                "log_level": 0,
                **options,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            key, value = f"key {number % KEYS}", f"{number}"
            self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)
        if self._producer.flush(GIVE_UP_S):
            self.problems.append("sends were never answered")

    def finish(self) -> None:
        self._ended.set()
        self.join()
        assert not self.problems, self.problems[:5]

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        value = message.value().decode()
        if error is not None:
            self.problems.append(f"{value}: {error}")
            return
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._acknowledged_s)
        self._acknowledged_s = now_s
        self._history.sent("writer", message.partition(), value, offset=message.offset())
        self.acknowledged.append((message.partition(), value))

    def write_more(self, count: int = RECORDS_BETWEEN_FAULTS) -> None:
        """Return when each partition has acknowledged that many more, or as many as it gets."""
        before = len(self.acknowledged)
        eventually(
            lambda: (
                self.problems
                or (
                    len(self.acknowledged) >= before + count
                    and len({each for each, _ in self.acknowledged[before:]}) == PARTITIONS
                )
            ),
            "records are acknowledged in every partition",
        )
        assert not self.problems, self.problems[:5]


class Reader(threading.Thread):
    """Reads all partitions from their beginning, and notes the keys of what it reads."""

    def __init__(self, servers: str, history: History, name: str, **options: object) -> None:
        super().__init__(name=name, daemon=True)
        self.keys: dict[str, list[int]] = defaultdict(list)
        self.reached: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._history = history
        self._ended = threading.Event()
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **options,
            }
        )
        self._consumer.assign([ck.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])

    def run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is not None:
                    continue  # a leader that is gone; what follows is read from the next one
                partition, value = message.partition(), message.value().decode()
                self._history.polled(self.name, partition, [(message.offset(), value)])
                self.keys[message.key().decode()].append(int(value))
                self.reached[partition] = message.offset() + 1
        self._consumer.close()

    def finish(self) -> None:
        self._ended.set()
        self.join()


class Servers(Protocol):
    """A cluster, as far as its clients know it."""

    bootstrap_servers: str


@contextmanager
def load(cluster: Servers, history: History, **options: object) -> Iterator[Writer]:
    """A writer and a reader at work; at the end everything acknowledged was read, and is sound.

    `options` are more of both clients'.
    """
    writer = Writer(cluster.bootstrap_servers, history, **options)
    reader = Reader(cluster.bootstrap_servers, history, "reader", **options)
    writer.start()
    reader.start()
    try:
        yield writer
    finally:
        writer.finish()
    ends = {
        partition: max(
            event.offset + 1
            for event in history.events
            # librdkafka knows none of records that a later acknowledgement covers.
            if getattr(event, "offset", None) is not None and event.partition == partition
        )
        for partition in range(PARTITIONS)
    }
    eventually(lambda: all(reader.reached[each] >= ends[each] for each in ends), "all is read")
    reader.finish()
    late = Reader(cluster.bootstrap_servers, history, "late reader", **options)
    late.start()
    eventually(lambda: all(late.reached[each] >= ends[each] for each in ends), "all is read again")
    late.finish()
    report = check(history)
    assert report, str(report)
    assert report.unseen == 0, str(report)
    assert report.acknowledged == len(writer.acknowledged) > 0
    for each in (reader, late):
        for key, values in each.keys.items():
            assert values == sorted(set(values)), f"{key} is out of order or doubled"


@pytest.mark.ottla(**KILLS)
def test_nothing_acknowledged_is_lost_when_leaders_and_controllers_die(
    ottla_cluster: Cluster,
) -> None:
    """SIGKILL of a leader, then of the controller, amid an idempotent producer's sends.

    Every acknowledged record is read once, in order per key. Each killed broker comes back and is
    in sync again.
    """
    cluster = ottla_cluster
    create_topic(cluster)
    with load(cluster, History()) as writer:
        writer.write_more()
        for victim_of in (lambda: cluster.leader(TOPIC, 0), cluster.controller):
            victim = victim_of()
            cluster.kill(victim)
            writer.write_more()
            assert cluster.leader(TOPIC, 0) not in (victim, -1)
            cluster.restart(victim)
            for partition in range(PARTITIONS):
                cluster.wait_for_isr(TOPIC, partition)
            writer.write_more()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.ottla(**OPTIONS)
def test_nothing_acknowledged_is_lost_under_many_faults(ottla_cluster: Cluster) -> None:
    """Kills, pauses and restarts of any broker, one at a time, while records are sent."""
    cluster, chance = ottla_cluster, random.Random(20_28)
    create_topic(cluster)
    with load(cluster, History()) as writer:
        for _ in range(needs.rounds(5, 60)):
            writer.write_more(chance.randint(1, RECORDS_BETWEEN_FAULTS))
            victim = chance.choice((cluster.controller(), cluster.leader(TOPIC), *cluster.node_ids))
            fault = chance.choice(("kill", "restart", "pause", "crash"))
            if fault == "kill":
                cluster.restart(victim, kill=True)
            elif fault == "restart":
                cluster.restart(victim)
            elif fault == "pause":
                cluster.pause(victim)
                writer.write_more(1)
                if cluster.running(victim):
                    cluster.resume(victim)
            else:
                cluster.kill(victim)
                writer.write_more()
            if not cluster.running(victim):
                cluster.restart(victim)
            for partition in range(PARTITIONS):
                cluster.wait_for_isr(TOPIC, partition)


@pytest.mark.ottla(**OPTIONS)
def test_a_suspended_controller_is_replaced(ottla_cluster: Cluster) -> None:
    """SIGSTOP of the broker that holds the lock: it is killed after the session time-out.

    Another broker is the controller then, and topics are created again. The commands for a cluster
    on this host tell what is going on.
    """
    cluster = ottla_cluster
    create_topic(cluster)
    before = cluster.controller()
    cluster.pause(before)
    eventually(lambda: not cluster.running(before), "the suspended controller is killed")
    eventually(lambda: status(cluster)["controller"] not in (before, None), "another controller")
    states = {row["broker"]: row["state"] for row in status(cluster)["brokers"]}
    assert states == {each: "down" if each == before else "running" for each in (1, 2, 3)}
    create_topic(cluster, "another")
    assert ottla(cluster, "restart", str(before)).startswith(f"broker {before} is ready")
    cluster.wait_for_isr(TOPIC)
    found = status(cluster)
    assert found["offline"] == 0
    assert cluster.stop() == 0
    cluster.start()
    assert cluster.leader("another") in (1, 2, 3)


def ottla(cluster: Cluster, *arguments: str) -> str:
    """The output of `ottla cluster …`."""
    command = [sys.executable, "-m", "ottla", "cluster", *arguments]
    done = subprocess.run(
        [*command, "--dir", str(cluster.directory)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(cluster: Cluster) -> dict[str, object]:
    found: dict[str, object] = json.loads(ottla(cluster, "status", "--json"))
    return found
