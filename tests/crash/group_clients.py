"""Clients that write a topic and read it in a group, while brokers die: ours, Apache's Java and
confluent-kafka, in groups of the classic protocol or of the new one (KIP-848).

Each has a topic of one partition. What was acknowledged is read by the group, at least once; the
history of both is sound. A rewind to the committed offset begins another reader of the history.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import confluent_kafka as ck

from ottla import Consumer, Producer
from ottla.client.errors import KafkaError
from ottla.testing.history import History, check
from tests import needs
from tests.apache import java
from tests.waiting import GIVE_UP_S, eventually

CLASSIC, NEW = "classic", "consumer"  # Kafka's names of the protocols
PROGRAM = Path(__file__).with_name("GroupClients.java")
PAUSE_S = 0.005  # between two records: the load is not what is tested
# Shorter than the cluster needs to notice: a broker that is suspended holds nobody up for longer.
QUICK = {"request_timeout_ms": 3000, "metadata_max_age_ms": 1000, "reconnect_backoff_max_ms": 100}


class GroupClients:
    """What both have in common: what was sent and read so far, and the judgement."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.problems: list[str] = []
        self.acknowledged = 0
        self.end = 0  # beyond the last acknowledged record
        self.position = 0  # of the group
        self._history = History()
        self._readers = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to write and read."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write no more, read all, and judge it."""
        raise NotImplementedError

    def stop(self) -> None:
        """End, whatever the state is."""
        raise NotImplementedError

    def sent(self, offset: int, value: str) -> None:
        with self._lock:
            self._history.sent("producer", self.topic, value, offset=offset)
            self.acknowledged += 1
            self.end = max(self.end, offset + 1)

    def read(self, offset: int, value: str) -> None:
        with self._lock:
            self._readers += offset < self.position
            self._history.polled(f"member {self._readers}", self.topic, [(offset, value)])
            self.position = offset + 1

    def progress(self) -> Callable[[], bool]:
        """Whether, since now, records were acknowledged, and then read by the group."""
        acknowledged, end = self.acknowledged, self.end
        return lambda: (
            bool(self.problems) or (self.acknowledged > acknowledged + 3 and self.position > end)
        )

    def judge(self) -> None:
        """All that was acknowledged has been read, in order and as it was sent."""
        assert not self.problems, self.problems[:3]
        report = check(self._history)
        assert report, str(report)
        assert report.unseen == 0, f"{self.topic}: {report}"
        assert report.acknowledged == self.acknowledged > 0


class OwnClients(GroupClients):
    """`ottla.Producer` and `ottla.Consumer`, in threads."""

    def __init__(self, servers: str, protocol: str = CLASSIC, name: str = "ours") -> None:
        super().__init__(f"{name}-{protocol}")
        self._servers = servers
        self._protocol = protocol
        self._sending, self._reading = threading.Event(), threading.Event()
        both = (self._produce, self._consume)
        self._threads = [threading.Thread(target=each, daemon=True) for each in both]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        producer, consumer = self._threads
        self._sending.set()
        producer.join(GIVE_UP_S)
        eventually(lambda: self.problems or self.position >= self.end, "the group reads all")
        self.stop()
        consumer.join(GIVE_UP_S)
        self.judge()

    def stop(self) -> None:
        self._sending.set()
        self._reading.set()

    def _produce(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self._servers, acks="all", **QUICK) as producer:
            while not self._sending.is_set():
                try:
                    kept = producer.send(self.topic, b"%d" % number, partition=0).get(120)
                except KafkaError as error:
                    self.problems.append(f"{number}: {error!r}")
                    return
                self.sent(kept.offset, f"{number}")
                number += 1
                time.sleep(PAUSE_S)

    def _consume(self) -> None:
        with Consumer(
            self.topic,
            bootstrap_servers=self._servers,
            group_id=self.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_protocol=self._protocol,
            **QUICK,
        ) as consumer:
            while not self._reading.is_set():
                for records in consumer.poll(200).values():
                    for record in records:
                        self.read(record.offset, record.value.decode())
                try:
                    consumer.commit()
                except KafkaError:
                    pass  # the next poll joins again; what was not committed is read again


class ConfluentClients(OwnClients):
    """The same with confluent-kafka's consumer."""

    def __init__(self, servers: str, protocol: str = CLASSIC) -> None:
        super().__init__(servers, protocol, "confluent")

    def _consume(self) -> None:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self.topic,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "socket.timeout.ms": 3000,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self._reading.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error():
                    continue
                value = message.value()
                assert value is not None
                self.read(message.offset() or 0, value.decode())
                try:
                    consumer.commit(message, asynchronous=True)
                except ck.KafkaException:
                    pass  # what was not committed is read again
        finally:
            consumer.close()


class JavaClients(GroupClients):
    """Apache's clients in a JVM."""

    def __init__(self, servers: str, protocol: str = CLASSIC) -> None:
        super().__init__(f"java-{protocol}")
        needs.apache()
        self._all_sent = threading.Event()
        self._command = java.program_command(PROGRAM, servers, self.topic, protocol)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._follow, args=(self._process.stdout,), daemon=True).start()

    def finish(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        eventually(lambda: self.problems or self._all_sent.is_set(), "the producer ends")
        eventually(lambda: self.problems or self.position >= self.end, "the group reads all")
        self._process.stdin.close()
        self._process.wait(GIVE_UP_S)
        self.judge()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _follow(self, lines: IO[str]) -> None:
        for line in lines:
            what, offset, value = line.rstrip("\n").split(" ", 2)
            if what == "failed":
                self.problems.append(value)
            elif what == "done":
                self._all_sent.set()
            elif what == "sent":
                self.sent(int(offset), value)
            else:
                self.read(int(offset), value)
