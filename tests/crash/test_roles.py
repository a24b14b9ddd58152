"""Every role of a broker, killed and suspended, under clients of three kinds; rolling restarts.

Three broker processes with a ZooKeeper ensemble of three, one server of which dies too, or with the
directory of one host. What is killed or suspended is the leader of a partition, a follower, the
controller or the coordinator of groups, while librdkafka, Apache's Java clients and ours write and
read, in groups of the classic protocol and of the new one (KIP-848). The history checker judges
what each of them saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.testing import Cluster
from ottla.testing.history import History
from tests import needs
from tests.apache.zookeeper import Ensemble
from tests.crash.group_clients import (
    CLASSIC,
    NEW,
    ConfluentClients,
    GroupClients,
    JavaClients,
    OwnClients,
)
from tests.crash.test_cluster import PARTITIONS, TOPIC, Writer, create_topic, load, ottla
from tests.waiting import eventually

OPTIONS = {
    "broker_session_timeout_ms": 6000,
    "zookeeper_session_timeout_ms": 6000,
    "replica_lag_time_max_ms": 5000,
    "replica_fetch_backoff_ms": 100,
    "offsets_topic_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
}
# Clients that wait longer for an answer than the cluster needs to elect would hide the election.
CLIENTS_OPTIONS = {"socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 100}
ROLES: dict[str, Callable[[Cluster], int]] = {
    "leader": lambda cluster: cluster.leader(TOPIC),
    "follower": lambda cluster: another(cluster, cluster.leader(TOPIC), cluster.controller()),
    "controller": lambda cluster: cluster.controller(),
    "coordinator": lambda cluster: cluster.leader("__consumer_offsets"),
}
# What tests of one engine have elsewhere is left to long runs: kills and a suspended controller in
# `test_cluster.py`, a suspended controller with ZooKeeper in `test_zookeeper_cluster.py`.
FAULTS = {
    "local": [("pause", "leader"), ("pause", "follower"), ("pause", "coordinator")],
    "zookeeper": [("kill", "leader"), ("kill", "coordinator")],
}
if needs.LONG:
    ALL = [(fault, role) for fault in ("kill", "pause") for role in ROLES]
    FAULTS = {"local": ALL, "zookeeper": ALL}


def another(cluster: Cluster, *others: int) -> int:
    return next(each for each in cluster.node_ids if each not in others)


@contextmanager
def started(engine: str, folder: Path) -> Iterator[Cluster]:
    """With ZooKeeper one of its three servers dies as soon as the cluster is there."""
    if engine == "local":
        with Cluster(directory=folder / "cluster", **OPTIONS) as cluster:
            yield cluster
        return
    needs.zookeeper_server()
    with Ensemble(folder / "ensemble") as ensemble:
        options = {**OPTIONS, "zookeeper_connect": f"{ensemble.connect}/roles"}
        with Cluster(directory=folder / "cluster", **options) as cluster:
            ensemble.leader.kill()
            yield cluster


class Clients:
    """All of them at once."""

    def __init__(self, cluster: Cluster, writer: Writer, others: list[GroupClients]) -> None:
        self._cluster = cluster
        self._writer = writer
        self._others = others

    def go_on(self, victim: int | None = None) -> None:
        """Return when each has written and read more than before; the victim stays as it is.

        A busy machine may have made another broker seem suspended: that one is started again.
        """
        conditions = [each.progress() for each in self._others]

        def all_have() -> bool:
            for each in self._cluster.node_ids:
                if each != victim and not self._cluster.running(each):
                    self._cluster.restart(each)
            return all(each() for each in conditions)

        self._writer.write_more(50)
        eventually(all_have, "groups write and read on")
        for each in self._others:
            assert not each.problems, each.problems[:3]

    def wait_until_in_sync(self) -> None:
        for partition in range(PARTITIONS):
            self._cluster.wait_for_isr(TOPIC, partition)
        for each in self._others:
            self._cluster.wait_for_isr(each.topic)
        self._cluster.wait_for_isr("__consumer_offsets")


def strike(cluster: Cluster, clients: Clients, fault: str, victim: int) -> None:
    if fault == "kill":
        cluster.kill(victim)
        clients.go_on(victim)
    else:
        cluster.pause(victim)
        clients.go_on(victim)
        # A controller of one host that keeps the lock has been killed meanwhile.
        if cluster.running(victim):
            cluster.resume(victim)
    if not cluster.running(victim):
        cluster.restart(victim)
    clients.wait_until_in_sync()
    clients.go_on()


def clients_of(servers: str, engine: str) -> list[GroupClients]:
    """Each kind of client; each with both protocols, with one engine or the other."""
    ours, javas = (NEW, CLASSIC) if engine == "zookeeper" else (CLASSIC, NEW)
    if not needs.LONG:
        return [
            OwnClients(servers, ours),
            JavaClients(servers, javas),
            ConfluentClients(servers, NEW),
        ]
    return [
        made(servers, protocol)
        for made in (OwnClients, JavaClients, ConfluentClients)
        for protocol in (CLASSIC, NEW)
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["local", "zookeeper"])
def test_whoever_dies_or_stands_still(engine: str, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, doubled or out of order, groups go on; so they do while all
    brokers are restarted one by one."""
    with started(engine, tmp_path) as cluster:
        create_topic(cluster)
        others = clients_of(cluster.bootstrap_servers, engine)
        for each in others:
            create_topic(cluster, each.topic, 1)
        try:
            with load(cluster, History(), **CLIENTS_OPTIONS) as writer:
                for each in others:
                    each.start()
                clients = Clients(cluster, writer, others)
                clients.go_on()
                for fault, role in FAULTS[engine]:
                    strike(cluster, clients, fault, ROLES[role](cluster))
                assert ottla(cluster, "restart", "--rolling").count("is ready on") == 3
                clients.go_on()
                for each in others:
                    each.finish()
        finally:
            for each in others:
                each.stop()
