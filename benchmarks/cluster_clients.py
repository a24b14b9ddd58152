"""Clients of a cluster whose brokers die: when was each record acknowledged, each topic made."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Self

import confluent_kafka as ck

from benchmarks import raw
from benchmarks.cluster_servers import Cluster, until

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 4
FIND_COORDINATOR = 10
GIVE_UP_S = 120.0
# One request of a client that makes topics: who has no answer by then asks another broker.
CREATE_TIMEOUT_S = 5.0
RETRY_S = 0.005


def longest_gap_s(times_s: list[float], since_s: float, until_s: float) -> float:
    """The longest time without an event between two moments; events are in order."""
    inside = [each for each in times_s if since_s < each < until_s]
    edges = [since_s, *inside, until_s]
    return max(later - earlier for earlier, later in pairwise(edges))


class FlowingClient(threading.Thread):
    """Works in a thread of its own as long as its `with` lasts, which begins once it gets on."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        self.flows()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def flows(self, seconds: float = 1.0) -> None:
        """Return when it gets on, and has for so long from now on."""
        raise NotImplementedError


class SteadyProducer(FlowingClient):
    """confluent-kafka with acks=all and idempotence: so many records a second, round robin.

    Client options are the defaults but for those given, and the time after which a record is given
    up.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, per_second: int, **options: object
    ) -> None:
        super().__init__()
        self.acknowledged_s: dict[int, list[float]] = defaultdict(list)
        self.failed = 0
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": int(GIVE_UP_S * 1000),
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
                **options,
            }
        )

    def run(self) -> None:
        producer, began_s, sent = self._producer, time.monotonic(), 0
        value = b"x" * 100
        while not self._ended.is_set():
            due = int((time.monotonic() - began_s) * self._per_second)
            for number in range(sent, due):
                producer.produce(
                    self._topic,
                    value,
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
                )
            sent = max(sent, due)
            producer.poll(0.001)
        self.failed += producer.flush(GIVE_UP_S)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged_s[message.partition()].append(time.monotonic())

    def flows(self, seconds: float = 1.0) -> None:
        """Return when every partition has been acknowledged for so long from now on."""
        since_s = time.monotonic()
        for partition in range(self._partitions):
            times_s = self.acknowledged_s[partition]
            until(
                lambda times_s=times_s: bool(times_s) and times_s[-1] > since_s,  # type: ignore[misc]
                f"nothing is acknowledged in partition {partition}",
                GIVE_UP_S,
            )
        time.sleep(seconds)

    def longest_gap_s(self, since_s: float) -> float:
        """Of all partitions, from a moment on until now."""
        now_s = time.monotonic()
        return max(
            longest_gap_s(self.acknowledged_s[each], since_s, now_s)
            for each in range(self._partitions)
        )


class TopicCreator(FlowingClient):
    """Makes one topic after the other through any broker that answers, as fast as it can."""

    def __init__(self, cluster: Cluster, *, pause_s: float = 0.02) -> None:
        super().__init__()
        self.made_s: list[float] = []
        self._cluster = cluster
        self._pause_s = pause_s

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            ports = [each.port for each in self._cluster.members.values() if each.running]
            with contextlib.suppress(OSError), connected(ports[number % len(ports)]) as sock:
                while not self._ended.is_set():
                    number += 1
                    sock.sendall(create_frame(f"made-{time.monotonic_ns()}"))
                    if create_error(raw.receive(sock)) == 0:
                        self.made_s.append(time.monotonic())
                        time.sleep(self._pause_s)
                    else:
                        break
            number += 1
            time.sleep(RETRY_S)

    def flows(self, seconds: float = 1.0) -> None:
        """Return when topics are made, and have been for so long from now on."""
        since_s = time.monotonic()
        until(
            lambda: bool(self.made_s) and self.made_s[-1] > since_s, "no topic is made", GIVE_UP_S
        )
        time.sleep(seconds)


def connected(port: int) -> socket.socket:
    sock = raw.connect(port)
    sock.settimeout(CREATE_TIMEOUT_S)
    return sock


def create_frame(topic: str) -> bytes:
    """One partition with two replicas: two brokers are left when one has died."""
    body = struct.pack(">i", 1) + raw.text(topic) + struct.pack(">ihii", 1, 2, 0, 0)
    body += struct.pack(">ib", int(CREATE_TIMEOUT_S * 1000), 0)
    return raw.frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, body)


def create_error(answer: bytes) -> int:
    """The error code of one topic: after correlation id, throttle time, count and name."""
    size = struct.unpack_from(">h", answer, 12)[0]
    return int(struct.unpack_from(">h", answer, 14 + size)[0])


def coordinator(port: int, group: str) -> int:
    """The broker that coordinates a group; -1 while there is none. FindCoordinator v0."""
    with raw.connect(port) as sock:
        sock.sendall(raw.frame(FIND_COORDINATOR, 0, raw.text(group)))
        error, node_id = struct.unpack_from(">hi", raw.receive(sock), 4)
    return -1 if error else int(node_id)


def group_coordinated_by(cluster: Cluster, node_id: int) -> str:
    """The name of a group whose coordinator is this broker."""
    port = cluster.members[node_id].port
    until(lambda: coordinator(port, "any") >= 0, "there is no coordinator")
    for number in range(1000):
        if coordinator(port, f"group-{number}") == node_id:
            return f"group-{number}"
    raise RuntimeError(f"broker {node_id} coordinates no group")


@contextlib.contextmanager
def group_member(cluster: Cluster, group: str, topic: str) -> Iterator[None]:
    """A consumer of this group that reads and commits while the block runs."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.commit.interval.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    until(lambda: bool(consumer.consume(100, 0.1) and consumer.assignment()), "no assignment")
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            consumer.consume(1000, 0.1)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
        consumer.close()
