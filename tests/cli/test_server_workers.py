"""`ottla server --workers N`: several brokers behind one command."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.failure import Failure
from ottla.cli.server_options import MetricsAddress, read_settings
from ottla.cli.server_workers import Draw, Workers, planned
from ottla.supervisor.plan import ClusterPlan
from ottla.supervisor.ports import free_ports
from ottla.supervisor.processes import send
from ottla.supervisor.state import BrokerState, read_state
from tests.apache.zookeeper import ZooKeeper
from tests.cli.process import ottla, page
from tests.waiting import eventually


def no_draw(count: int) -> list[int]:
    raise AssertionError(f"{count} ids are drawn")


def plan_of(
    directory: Path, *assignments: str, count: int = 2, metrics: MetricsAddress | None = None
) -> ClusterPlan:
    settings = read_settings(None, assignments, str(directory), None)
    return planned(settings, Workers(count, None, assignments, metrics, "info", False), no_draw)


def sets(plan: ClusterPlan, place: int) -> dict[str, str]:
    """What the command of a worker sets."""
    words = plan.command(plan.brokers[place])
    given = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    return dict(each.split("=", 1) for each in given)


def test_workers_have_consecutive_numbers_and_ports(tmp_path: Path) -> None:
    """From node.id, the listener's port and that of --metrics on; the host is their rack."""
    plan = plan_of(
        tmp_path,
        "broker.id=5",
        "listeners=PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners=PLAINTEXT://kafka.example:19092",
        metrics=MetricsAddress("127.0.0.1", 9404),
    )
    assert [each.node_id for each in plan.brokers] == [5, 6]
    second = sets(plan, 1)
    assert second["node.id"] == second["broker.id"] == "6"
    assert second["listeners"] == "PLAINTEXT://0.0.0.0:9093"
    assert second["advertised.listeners"] == "PLAINTEXT://kafka.example:19093"
    assert second["broker.rack"] == socket.gethostname()
    assert second["ottla.cluster.directory"] == str(tmp_path / "metadata")
    assert "127.0.0.1:9405" in plan.command(plan.brokers[1])
    assert "--listen" not in plan.command(plan.brokers[1])


@pytest.mark.parametrize(
    ("count", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (4, "3", "2")]
)
def test_internal_topics_fit_the_workers(
    count: int, factor: str, min_isr: str, tmp_path: Path
) -> None:
    """No more replicas than workers; topics of users have Kafka's default, and options win."""
    given = sets(plan_of(tmp_path, count=count), 0)
    assert given["offsets.topic.replication.factor"] == factor
    assert given["transaction.state.log.replication.factor"] == factor
    assert given["transaction.state.log.min.isr"] == min_isr
    assert "default.replication.factor" not in given
    own = sets(plan_of(tmp_path, "offsets.topic.replication.factor=1", "broker.rack=r"), 0)
    assert own["offsets.topic.replication.factor"] == "1"
    assert own["broker.rack"] == "r"


def test_a_shared_directory_that_is_given_is_used(tmp_path: Path) -> None:
    """Then other brokers of the host belong to the same cluster."""
    shared = f"ottla.cluster.directory={tmp_path / 'shared'}"
    plan = plan_of(tmp_path / "data", "node.id=1", shared)
    assert plan.metadata_directory == tmp_path / "shared"
    assert sets(plan, 0)["ottla.cluster.directory"] == str(tmp_path / "shared")


def test_drawn_ids_stay_with_their_directories(tmp_path: Path) -> None:
    """With ZooKeeper and no id each worker has one that was drawn; more workers draw more."""
    settings = read_settings(None, ("zookeeper.connect=zk:2181",), str(tmp_path), None)
    new = iter((1007, 1003, 1009))

    def draw(count: int) -> list[int]:
        return [next(new) for _ in range(count)]

    def ids(count: int, draws: Draw) -> list[int]:
        plan = planned(settings, Workers(count, None, (), None, "info", False), draws)
        return [each.node_id for each in plan.brokers]

    assert ids(2, draw) == [1003, 1007]
    for name in ("broker-1003", "broker-1007", "broker-1003.replaced-1", "metadata"):
        (tmp_path / name).mkdir()
    assert ids(2, no_draw) == [1003, 1007]
    assert ids(1, no_draw) == [1003]
    assert ids(3, draw) == [1003, 1007, 1009]


@pytest.mark.parametrize(
    ("assignments", "fact"),
    [
        (("log.dirs=/a,/b",), "--workers takes one data directory"),
        (("listeners=A://:1,B://:2", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
          "inter.broker.listener.name=A"), "--workers takes one listener"),
        (("listeners=PLAINTEXT://:65535",), "2 workers need the ports from 65535 on"),
    ],
)  # fmt: skip
def test_what_workers_cannot_have_is_refused(assignments: tuple[str, ...], fact: str) -> None:
    """With what to give instead."""
    settings = read_settings(None, assignments, None, None)
    with pytest.raises(Failure, match=re.escape(fact)):
        planned(settings, Workers(2, None, assignments, None, "info", False), no_draw)


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    """Both are ready, one is killed and comes back; SIGTERM stops all with exit code 0."""
    for wrong in ("0", "101"):
        refused = ottla("server", "--workers", wrong, "--data-dir", tmp_path / "none")
        assert refused.said(f"--workers: must be between 1 and 100 (got {wrong})"), refused
    first_port, metrics_port = free_ports(2), free_ports(2)
    data = tmp_path / "data"
    command = [
        *(sys.executable, "-m", "ottla", "server", "--workers", "2", "--data-dir", str(data)),
        *("--listen", f"127.0.0.1:{first_port}", "--metrics", f"127.0.0.1:{metrics_port}"),
    ]
    servers = f"127.0.0.1:{first_port},127.0.0.1:{first_port + 1}"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert f" ready on {servers}, data in {data}" in process.stdout.readline()
            for place in (0, 1):
                assert page(f"127.0.0.1:{metrics_port + place}", "/readyz") == (200, "ok\n")
            described = ottla("cluster", "describe", "-b", servers, "--json")
            racks = [each["rack"] for each in json.loads(described.out)["brokers"]]
            assert racks == [socket.gethostname()] * 2
            before = second_worker(data)
            assert ottla("cluster", "kill", "2", "--dir", data).code == 0
            eventually(
                lambda: second_worker(data).ready and second_worker(data).process != before.process,
                "the worker is started again",
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            state = read_state(data)
            for broker in state.brokers if state is not None else ():
                send(broker.process, signal.SIGKILL)
    assert (data / "broker-2" / ".kafka_cleanshutdown").exists()


def test_workers_of_several_hosts_meet_in_zookeeper(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """One properties file for all hosts, without an id: each worker draws one, and keeps it."""
    file = tmp_path / "server.properties"
    file.write_text(f"zookeeper.connect={zookeeper.connect}/workers\n")
    data = tmp_path / "data"
    first_port = free_ports(2)
    command = [
        *(sys.executable, "-m", "ottla", "server", "--workers", "2", "--config", str(file)),
        *("--data-dir", str(data), "--listen", f"127.0.0.1:{first_port}"),
    ]
    servers = f"127.0.0.1:{first_port},127.0.0.1:{first_port + 1}"
    for _ in range(2):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert f" ready on {servers}, data in {data}" in process.stdout.readline()
                described = ottla("cluster", "describe", "-b", servers, "--json")
                ids = [each["broker"] for each in json.loads(described.out)["brokers"]]
                assert ids == [1001, 1002]
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
                state = read_state(data)
                for broker in state.brokers if state is not None else ():
                    send(broker.process, signal.SIGKILL)


def second_worker(data: Path) -> BrokerState:
    state = read_state(data)
    assert state is not None
    return state.brokers[1]
