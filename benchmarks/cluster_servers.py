"""The two clusters under measure: three broker processes each, and what they say of themselves.

Ottla's brokers share a directory, as those of `ottla cluster up` do, with the same options; or keep
the cluster's state in ZooKeeper. Apache Kafka's are broker and controller in one process each. All
have three replicas of everything, two of which acknowledge.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import confluent_kafka as ck
from confluent_kafka import admin as cka

from benchmarks import raw
from benchmarks.servers import READY_TIMEOUT_S, Broker
from ottla.supervisor.plan import ZOOKEEPER_OPTION, BrokerPlan, ClusterPlan, replication_options
from ottla.supervisor.ports import free_ports
from tests.apache import jars, zookeeper
from tests.apache.kafka import DEFAULTS as KAFKA_DEFAULTS
from tests.apache.kafka import format_directory
from tests.crash.namespaces import Namespaces
from tests.live import environment_with

BROKERS = 3
NODE_IDS = tuple(range(1, BROKERS + 1))
REPLICATION_FACTOR = 3
WAIT_S = 120.0
LOOK_AGAIN_S = 0.02
DESCRIBE_QUORUM = 55
METADATA_TOPIC = b"__cluster_metadata"
HOST = "127.0.0.1"


class Member(Broker):
    """One broker of a cluster; started without waiting, for it needs the others."""

    def __init__(self, cluster: Cluster, node_id: int, port: int) -> None:
        self.name = cluster.name
        self.cluster = cluster
        self.node_id = node_id
        self.directory = cluster.directory / f"broker-{node_id}"
        self.directory.mkdir()
        self.settings = {}
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.prepare()

    @property
    def host(self) -> str:
        return self.cluster.host(self.node_id)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        """Where its partitions lie."""
        return self.directory / "data"

    @property
    def running(self) -> bool:
        return self.process is not None

    def launch(self) -> None:
        """Start the process."""
        with open(self.cluster.directory / f"broker-{self.node_id}.txt", "ab") as output:
            self.process = subprocess.Popen(
                [*self.cluster.inside(self.node_id), *self.command()],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=environment_with({}),
            )

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting for the end."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def log_bytes(self, topic: str, partition: int = 0) -> int:
        """The bytes of a partition's segments on this broker's disk."""
        total = 0
        for path in (self.data / f"{topic}-{partition}").glob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total


class OttlaMember(Member):
    def command(self) -> list[str]:
        # Nobody else is on the network of the namespaces.
        options = replication_options(BROKERS) | {"ottla.insecure": "true"} | self.cluster.options
        plan = ClusterPlan(self.cluster.directory, (), options)
        return plan.command(BrokerPlan(self.node_id, self.host, self.port))

    @property
    def data(self) -> Path:
        return self.directory  # the plan's data directory


class KafkaMember(Member):
    """Apache Kafka 4.3.1 as its own start script would run it, with a heap of 1 GB."""

    def prepare(self) -> None:
        cluster = self.cluster
        controller = cluster.ports[BROKERS + self.node_id - 1]
        voters = ",".join(
            f"{each}@{cluster.host(each)}:{cluster.ports[BROKERS + each - 1]}" for each in NODE_IDS
        )
        settings = (
            {name: value for name, value in KAFKA_DEFAULTS.items() if ".topic." not in name}
            | replication_options(BROKERS)
            | {
                "node.id": str(self.node_id),
                "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.host}:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "controller.quorum.voters": voters,
                "log.dirs": str(self.data),
            }
        )
        self.properties = self.directory / "server.properties"
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        format_directory(self.data)
        identity = self.data / "meta.properties"
        lines = {
            "node.id": f"node.id={self.node_id}",
            "directory.id": f"directory.id={directory_id()}",
        }
        found = identity.read_text().splitlines()
        identity.write_text("".join(f"{lines.get(line.split('=')[0], line)}\n" for line in found))

    def command(self) -> list[str]:
        return [
            "java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-cp", jars.classpath(), "kafka.Kafka",
            str(self.properties),
        ]  # fmt: skip


def directory_id() -> str:
    """A new id in Kafka's form: 16 bytes in base64 that do not begin with a dash."""
    while True:
        drawn = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


class Cluster:
    """Brokers 1 to 3 in a directory of their own; the subclasses say which broker it is."""

    name: str
    engine = ""  # of the tree, where it is not the default: in the name of a measure
    options: ClassVar[dict[str, str]] = {}  # of every broker
    member: type[Member]
    network: Namespaces | None = None  # where each broker has a network namespace of its own

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-cluster-{self.name}-"))
        first = free_ports(2 * BROKERS)
        self.ports = range(first, first + 2 * BROKERS)
        self.members = {
            node_id: self.member(self, node_id, self.ports[node_id - 1]) for node_id in NODE_IDS
        }
        self.bootstrap = ",".join(member.bootstrap for member in self.members.values())
        self._admin: cka.AdminClient | None = None

    def host(self, node_id: int) -> str:
        """The address of a broker."""
        return HOST if self.network is None else self.network.address(node_id)

    def inside(self, node_id: int) -> list[str]:
        """What a broker's command begins with."""
        return ["ip", "netns", "exec", self.network.name(node_id)] if self.network else []

    # Processes

    def start(self) -> None:
        """Start all; return when each of them knows all three."""
        for member in self.members.values():
            member.launch()
        for member in self.members.values():
            self.wait_until_known(member)

    def restart(self, node_id: int) -> None:
        """Start a broker that has ended; return when it serves."""
        self.members[node_id].launch()
        self.wait_until_known(self.members[node_id])

    def remove(self) -> None:
        for member in self.members.values():
            member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def wait_until_known(self, member: Member) -> None:
        """Until this broker names all that run in its metadata, itself among them."""
        wanted = {each.node_id for each in self.members.values() if each.running}

        def known() -> bool:
            assert member.process is not None
            if member.process.poll() is not None:
                raise RuntimeError(f"broker {member.node_id} ended, {self.directory}")
            with contextlib.suppress(ck.KafkaException):
                client = cka.AdminClient({"bootstrap.servers": member.bootstrap, "log_level": 0})
                return wanted <= set(client.list_topics(timeout=2).brokers)
            return False

        until(known, f"broker {member.node_id} does not serve", READY_TIMEOUT_S)

    def cpu_s(self) -> float:
        """CPU seconds so far of the brokers that run, helper processes included."""
        return sum(member.cpu_s() for member in self.members.values() if member.running)

    def memory_mb(self) -> float:
        """Resident memory of the brokers that run."""
        return sum(member.memory_mb() for member in self.members.values() if member.running)

    # Topics

    @property
    def admin(self) -> cka.AdminClient:
        if self._admin is None:
            self._admin = cka.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def make_topic(
        self, topic: str, partitions: int = 1, *, replicas: tuple[int, ...] = (), **config: str
    ) -> None:
        """With three replicas, or one partition with these; return when all are in sync."""
        new = cka.NewTopic(topic, partitions, REPLICATION_FACTOR, config=config)
        if replicas:
            new = cka.NewTopic(topic, 1, replica_assignment=[list(replicas)], config=config)
        self.admin.create_topics([new])[topic].result(WAIT_S)
        until(lambda: self.is_led(topic, partitions), f"{topic} has no leaders")
        self.wait_for_isr(topic)

    def is_led(self, topic: str, partitions: int) -> bool:
        found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WAIT_S)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition."""
        found: int = self.partitions(topic)[partition].leader
        return found

    def partitions(self, topic: str) -> dict[int, ck.admin.PartitionMetadata]:
        return dict(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def wait_for_isr(self, topic: str, size: int = REPLICATION_FACTOR) -> None:
        """Until so many replicas are in sync in each partition."""

        def reached() -> bool:
            with contextlib.suppress(ck.KafkaException):
                return all(len(each.isrs) >= size for each in self.partitions(topic).values())
            return False

        until(reached, f"the ISR of {topic} does not grow", WAIT_S)

    def controller(self) -> int:
        """The broker that is the active controller."""
        raise NotImplementedError


class OttlaCluster(Cluster):
    name = "ottla"
    member = OttlaMember

    def controller(self) -> int:
        found: int = self.admin.list_topics(timeout=10).controller_id
        return found


class OttlaOnZooKeeper(OttlaCluster):
    """Brokers that share nothing but a ZooKeeper server, which outlives them."""

    engine = ", on ZooKeeper"

    def start(self) -> None:
        zookeeper.fetch()
        self.zookeeper = zookeeper.ZooKeeper(self.directory / "zookeeper")
        self.zookeeper.start()
        self.zookeeper.wait_until_serving()
        self.options = {ZOOKEEPER_OPTION: self.zookeeper.connect}
        super().start()

    def remove(self) -> None:
        if hasattr(self, "zookeeper"):
            self.zookeeper.kill()
        super().remove()


class KafkaCluster(Cluster):
    name = "kafka"
    member = KafkaMember

    def controller(self) -> int:
        """From DescribeQuorum: what Kafka's Metadata calls the controller is any broker."""
        member = next(member for member in self.members.values() if member.running)
        return quorum_leader(member.host, member.port)


BOTH: tuple[type[Cluster], ...] = (KafkaCluster, OttlaCluster)


def quorum_leader(host: str, port: int) -> int:
    """DescribeQuorum v0, which is a flexible version from the beginning."""
    partition = struct.pack(">i", 0) + b"\0"
    name = bytes([len(METADATA_TOPIC) + 1]) + METADATA_TOPIC
    body = b"\2" + name + b"\2" + partition + b"\0" + b"\0"
    head = struct.pack(">hhi", DESCRIBE_QUORUM, 0, 7) + raw.text("bench") + b"\0"
    with raw.connect(port, host) as sock:
        sock.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = raw.receive(sock)
    # Correlation id and tags, an error, one topic with its name, one partition: index, error.
    error, at = struct.unpack_from(">h", answer, 5)[0], 5 + 2 + 1 + len(name) + 1
    _, partition_error, leader = struct.unpack_from(">ihi", answer, at)
    assert (error, partition_error) == (0, 0)
    return int(leader)


def until(reached: Callable[[], bool], otherwise: str, timeout_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline_s:
            raise TimeoutError(otherwise)
        time.sleep(LOOK_AGAIN_S)
