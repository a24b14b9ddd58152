"""Three broker processes and a real ZooKeeper, as the notes set a cluster up; real clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from ottla.cli.kafka_scripts.running import guarded
from ottla.cli.kafka_scripts.topics import run as run_topics
from tests import needs
from tests.apache.zookeeper import Ensemble, ZooKeeper
from tests.apache.zookeeper import folder as zookeeper_jars
from tests.live import Server
from tests.waiting import GIVE_UP_S, eventually

# Far beyond what a test waits for: what happens within it, no session has decided.
SESSION_MS = 60_000
SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 1,
    "delete.topic.enable": "true",
    "replica.fetch.backoff.ms": 100,
}


class ZooKeeperCluster:
    """Three `ottla server` processes, and a look at the tree."""

    def __init__(self, directory: Path, connect: str, **settings: object) -> None:
        from kazoo.client import KazooClient

        self.connect = connect
        self.servers = {
            number: Server(
                directory / f"broker-{number}",
                settings={
                    **SETTINGS,
                    **{name.replace("_", "."): value for name, value in settings.items()},
                    "broker.id": number,
                    "zookeeper.connect": connect,
                },
            )
            for number in (1, 2, 3)
        }
        self.tree = KazooClient(connect)
        self.suspended = 0  # clients do not begin with this one: it accepts, and does not answer

    def start(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(Server.start, self.servers.values()))
        self.tree.start(GIVE_UP_S)

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()
        self.tree.stop()
        self.tree.close()

    @property
    def bootstrap(self) -> str:
        answering = (each for number, each in self.servers.items() if number != self.suspended)
        return ",".join(each.bootstrap for each in answering)

    def read(self, path: str) -> Any:
        return json.loads(self.tree.get(path)[0])

    @property
    def controller(self) -> int:
        return int(self.read("/controller")["brokerid"])

    @property
    def epoch(self) -> int:
        return int(self.read("/controller_epoch"))

    def create(self, topic: str, partitions: int = 1) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        (future,) = client.create_topics([NewTopic(topic, partitions, 3)]).values()
        future.result(GIVE_UP_S)

    @cached_property
    def producer(self) -> ck.Producer:
        """One for all: it has its producer id from the first record on."""
        return ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )

    def produce(self, topic: str, values: range) -> None:
        problems: list[Any] = []
        for value in values:
            self.producer.produce(
                topic, str(value), on_delivery=lambda error, _: error and problems.append(error)
            )
        assert not self.producer.flush(GIVE_UP_S)
        assert not problems, problems[:3]

    def consume(self, topic: str, count: int, group: str = "readers") -> list[int]:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        values: list[int] = []
        while len(values) < count:
            found = consumer.consume(count - len(values), GIVE_UP_S)
            assert found, f"{len(values)} of {count} records"
            values += [int(each.value()) for each in found if each.error() is None]
        consumer.close()
        return values


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper
) -> Iterator[ZooKeeperCluster]:
    """Shared by the tests here: use topics of your own, and leave three brokers behind."""
    directory = tmp_path_factory.mktemp("cluster")
    running = ZooKeeperCluster(directory, f"{zookeeper.connect}/clusters/kafka")
    try:
        running.start()
        yield running
    finally:
        running.stop()


def script(module: str, *arguments: str, **environment: str) -> str:
    """What one of Kafka's scripts prints."""
    code = f"from ottla.cli.kafka_scripts.{module} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=GIVE_UP_S,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_operator_sees_what_kafka_would_write(cluster: ZooKeeperCluster) -> None:
    """Kafka's paths at the top, and its JSON in the nodes; ours are in one place."""
    cluster.create("seen", 2)
    cluster.produce("seen", range(1))  # idempotent: it has a producer id
    assert set(cluster.tree.get_children("/")) == {
        "admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch",
        "delegation_token", "feature", "isr_change_notification", "kafka-acl", "kafka-acl-changes",
        "kafka-acl-extended", "kafka-acl-extended-changes", "latest_producer_id_block",
        "log_dir_event_notification", "ottla",
    }  # fmt: skip
    assert set(cluster.read("/controller")) >= {"version", "brokerid", "timestamp"}
    assert set(cluster.read("/cluster/id")) == {"version", "id"}
    assert set(cluster.read("/brokers/ids/1")) == {
        "features", "listener_security_protocol_map", "endpoints", "jmx_port", "port", "host",
        "version", "timestamp",
    }  # fmt: skip
    assert set(cluster.read("/brokers/topics/seen")) == {
        "version", "topic_id", "partitions", "adding_replicas", "removing_replicas"
    }  # fmt: skip
    assert set(cluster.read("/brokers/topics/seen/partitions/1/state")) == {
        "version", "leader", "leader_epoch", "isr", "controller_epoch"
    }  # fmt: skip


def test_an_operator_writes_requests(cluster: ZooKeeperCluster) -> None:
    """A topic is deleted, and a config taken, through the tree alone; the requests are removed."""
    cluster.create("doomed")
    cluster.create("configured")
    cluster.tree.create("/admin/delete_topics/doomed")
    cluster.tree.create(
        "/config/topics/configured", b'{"version":1,"config":{"retention.ms":"86400000"}}'
    )
    cluster.tree.create(
        "/config/changes/config_change_",
        b'{"version":2,"entity_path":"topics/configured"}',
        sequence=True,
    )
    tree = cluster.tree
    eventually(lambda: not tree.get_children("/config/changes"), "the note is taken")
    eventually(lambda: not tree.get_children("/admin/delete_topics"), "all have confirmed")
    assert not tree.exists("/brokers/topics/doomed")
    asked = [ConfigResource(ConfigResource.Type.TOPIC, "configured")]
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    (answer,) = client.describe_configs(asked).values()
    assert answer.result(GIVE_UP_S)["retention.ms"].value == "86400000"


def test_the_command_lines_of_old(
    cluster: ZooKeeperCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """kafka-topics.sh and the console consumer find the brokers through ZooKeeper."""
    zookeeper = ("--zookeeper", cluster.connect)

    def topics(*arguments: str) -> str:
        assert guarded(run_topics, [*zookeeper, *arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    create = ("--create", "--replication-factor", "2", "--partitions", "3", "--topic", "first")
    assert "Created topic first." in topics(*create)
    assert "first" in topics("--list").split()
    topics("--alter", "--topic", "first", "--partitions", "6")
    described = topics("--describe", "--topic", "first")
    assert "PartitionCount: 6" in described
    assert "ReplicationFactor: 2" in described
    cluster.produce("first", range(5))
    read = ("--topic", "first", "--from-beginning", "--max-messages", "5")
    assert sorted(script("console_consumer", *zookeeper, *read).split()) == list("01234")
    topics("--delete", "--topic", "first")
    eventually(lambda: not cluster.tree.exists("/brokers/topics/first"), "the topic is gone")


def test_zookeepers_own_shell(cluster: ZooKeeperCluster) -> None:
    """zookeeper-shell.sh runs the real one, where its jars are."""
    home = str(zookeeper_jars().parent)
    said = script("zookeeper_shell", cluster.connect, "ls", "/brokers/ids", ZOOKEEPER_HOME=home)
    assert "[1, 2, 3]" in said


def test_three_brokers_form_a_cluster_and_survive_their_controller(
    cluster: ZooKeeperCluster,
) -> None:
    """Each is registered in a session of its own; a killed controller is replaced at once.

    The records are all read, and the broker that comes back registers again.
    """
    tree = cluster.tree
    ids = {each: tree.get(f"/brokers/ids/{each}") for each in tree.get_children("/brokers/ids")}
    assert sorted(ids) == ["1", "2", "3"]
    assert len({stat.ephemeralOwner for _, stat in ids.values()}) == 3
    for number, (data, _) in ids.items():
        assert json.loads(data)["endpoints"] == [
            f"PLAINTEXT://{cluster.servers[int(number)].bootstrap}"
        ]
    first, epoch = cluster.controller, cluster.epoch
    _, stat = tree.get("/controller")
    assert stat.ephemeralOwner == ids[str(first)][1].ephemeralOwner

    cluster.create("t")
    cluster.produce("t", range(100))
    assert sorted(cluster.read("/brokers/topics/t")["partitions"]["0"]) == [1, 2, 3]
    assert sorted(cluster.read("/brokers/topics/t/partitions/0/state")["isr"]) == [1, 2, 3]

    cluster.servers[first].kill()
    eventually(lambda: tree.exists("/controller") and cluster.controller != first)
    assert cluster.epoch > epoch
    cluster.produce("t", range(100, 200))
    assert cluster.consume("t", 200) == list(range(200))
    cluster.create("u")

    cluster.servers[first].start()
    eventually(lambda: first in cluster.read("/brokers/topics/t/partitions/0/state")["isr"])
    _, again = tree.get(f"/brokers/ids/{first}")
    assert again.ephemeralOwner not in {stat.ephemeralOwner for _, stat in ids.values()}


def test_a_broker_without_an_id_draws_one_and_keeps_it(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    """The first beyond reserved.broker.max.id; it is in meta.properties, as Kafka 3 kept it."""
    settings = {"zookeeper.connect": f"{zookeeper.connect}/drawn", "broker.id": -1}
    server = Server(tmp_path / "broker", settings=settings)
    for _ in range(2):
        with server:
            lines = (server.directory / "meta.properties").read_text().splitlines()
            assert "node.id=1001" in lines


def test_a_controller_is_suspended_beyond_its_session(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """SIGSTOP: the others elect a controller and leaders without it. SIGCONT: it finds its session
    gone, opens another, writes nothing as the controller it was, and copies what it missed.
    """
    cluster = ZooKeeperCluster(
        tmp_path,
        f"{zookeeper.connect}/suspended",
        zookeeper_session_timeout_ms=3000,
        broker_session_timeout_ms=2000,
        broker_heartbeat_interval_ms=400,
        group_initial_rebalance_delay_ms=0,
    )
    try:
        cluster.start()
        tree, victim = cluster.tree, cluster.controller
        cluster.create("t", 3)
        cluster.produce("t", range(100))
        epoch, node = cluster.epoch, f"/brokers/ids/{victim}"
        states = [f"/brokers/topics/t/partitions/{index}/state" for index in range(3)]
        before = tree.get(node)[1].ephemeralOwner
        os.kill(cluster.servers[victim].pid, signal.SIGSTOP)
        try:
            eventually(lambda: cluster.epoch > epoch, "another controller")
            eventually(lambda: all(cluster.read(path)["leader"] != victim for path in states))
            cluster.suspended = victim
            del cluster.producer  # the next one asks the others who leads
            cluster.produce("t", range(100, 200))
            assert all(victim not in cluster.read(path)["isr"] for path in states)
        finally:
            os.kill(cluster.servers[victim].pid, signal.SIGCONT)
        eventually(lambda: all(victim in cluster.read(path)["isr"] for path in states))
        eventually(lambda: tree.exists(node) is not None)
        assert tree.get(node)[1].ephemeralOwner != before
        assert cluster.controller != victim
        assert sorted(cluster.consume("t", 200)) == list(range(200))
    finally:
        for server in cluster.servers.values():
            server.kill()
        cluster.stop()


@pytest.mark.long
def test_zookeeper_is_killed_and_the_data_path_goes_on(tmp_path: Path) -> None:
    """One server of three costs nothing. Without any of them records are acknowledged and read, by
    groups too, and only changes wait; they are made when ZooKeeper is back.

    A new idempotent producer may have to wait too: a broker out of producer ids asks for a block.
    """
    needs.zookeeper_server()
    with Ensemble(tmp_path / "ensemble") as ensemble:
        cluster = ZooKeeperCluster(tmp_path, f"{ensemble.connect}/kafka")
        try:
            cluster.start()
            cluster.create("t")
            cluster.produce("t", range(50))
            assert cluster.consume("t", 50, "before") == list(range(50))
            ensemble.leader.kill()
            cluster.create("u")
            ensemble.kill()
            cluster.produce("t", range(50, 100))
            assert cluster.consume("t", 100, "after") == list(range(100))
            for server in ensemble.servers:
                server.start()
            cluster.create("v")
            assert len(cluster.tree.retry(cluster.tree.get_children, "/brokers/ids")) == 3
        finally:
            cluster.stop()
