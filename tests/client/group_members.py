"""Members of one group, of four kinds of clients: each polls until `stop`."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from ottla import Consumer, Producer
from tests.apache import java
from tests.kafka_python import subscribed

MEMBER = Path(__file__).with_name("Member.java")

FAST = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 30_000,  # nobody's session ends, however busy the machine is
    "heartbeat_interval_ms": 100,
    "auto_commit_interval_ms": 100,
}


class Polling:
    """A consumer that polls in a thread of its own until it is stopped."""

    def __init__(self, consumer: Any, poll: Callable[[Any], Sequence[tuple[int, int]]]) -> None:
        self.consumer = consumer
        self.poll = poll
        self.records: list[tuple[int, int]] = []
        self.from_callbacks: set[int] | None = None  # the assignment, for confluent-kafka
        self.stopping = False
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            while not self.stopping:
                self.records += self.poll(self.consumer)
            self.consumer.close()
        except BaseException as problem:
            self.problem = problem

    def assigned(self) -> set[int]:
        if self.from_callbacks is not None:
            return set(self.from_callbacks)
        return {each.partition for each in self.consumer.assignment()}

    def stop(self) -> None:
        self.end()
        assert not self.thread.is_alive(), "close hangs"
        assert self.problem is None, self.problem

    def end(self) -> None:
        self.stopping = True
        self.thread.join(60)


def poll_ours(consumer: Any) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for found in consumer.poll(50).values() for each in found]


def poll_confluent(consumer: Any) -> list[tuple[int, int]]:
    return [
        (each.partition(), each.offset())
        for each in consumer.consume(100, 0.05)
        if each.error() is None
    ]


class JavaMember:
    """Apache's consumer in a JVM of its own, which says what it has and reads; like `Polling`."""

    def __init__(self, bootstrap: str, topic: str, assignor: str) -> None:
        command = java.program_command(MEMBER, bootstrap, topic, f"g-{topic}", assignor)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.have: set[int] = set()
        self.records: list[tuple[int, int]] = []
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "assigned" in said:
                self.have = set(said["assigned"])
            else:
                self.records.append((said["partition"], said["offset"]))

    def assigned(self) -> set[int]:
        return self.have

    def stop(self) -> None:
        """Let it close, which commits and leaves."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write("stop")
            self.process.stdin.close()
            assert self.process.wait(60) == 0
        finally:
            self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join(60)


Member = Polling | JavaMember


def ours(bootstrap: str, topic: str, listener: Any = None, **options: Any) -> Polling:
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=f"g-{topic}", **{**FAST, **options})
    consumer.subscribe([topic], listener=listener)
    return Polling(consumer, poll_ours)


def confluent(bootstrap: str, topic: str, strategy: str) -> Polling:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": FAST["session_timeout_ms"],
            "heartbeat.interval.ms": 100,
            "auto.commit.interval.ms": 100,
        }
    )
    # Its assignment() must not be called while another thread polls: the two wait for each other.
    have: set[int] = set()
    consumer.subscribe(
        [topic],
        on_assign=lambda _, got: have.update(each.partition for each in got),
        on_revoke=lambda _, gone: have.difference_update(each.partition for each in gone),
    )
    member = Polling(consumer, poll_confluent)
    member.from_callbacks = have
    return member


def kafka_python(bootstrap: str, topic: str, strategy: type) -> Polling:
    consumer = subscribed(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"g-{topic}",
        partition_assignment_strategy=[strategy],
        **FAST,
    )
    return Polling(consumer, poll_ours)


def split(members: Sequence[Member], count: int) -> bool:
    """Whether the members have all partitions, each exactly one."""
    have = [number for each in members for number in each.assigned()]
    return sorted(have) == list(range(count))


def fill(bootstrap: str, topic: str, partitions: int, each: int = 20, start: int = 0) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(start, start + each):
            for partition in range(partitions):
                producer.send(topic, b"%d" % n, partition=partition)
