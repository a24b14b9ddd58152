"""Brokers that are killed or restarted: how long their clients are held up."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks.cluster_clients import (
    SteadyProducer,
    TopicCreator,
    group_coordinated_by,
    group_member,
    longest_gap_s,
)
from benchmarks.cluster_run import ClusterRun, Kinds, both
from benchmarks.cluster_servers import (
    NODE_IDS,
    Cluster,
    KafkaCluster,
    OttlaCluster,
    OttlaOnZooKeeper,
    until,
)
from benchmarks.servers import STOP_TIMEOUT_S

PER_SECOND = 500
ENGINES = tuple(kind.engine for kind in (OttlaCluster, OttlaOnZooKeeper))
KILL_LEADER = "SIGKILL of a leader{}: longest gap, s"
KILL_ALL_IN_ONE = "SIGKILL of leader, controller and coordinator in one{}: longest gap, s"
KILL_CONTROLLER = "controller killed{}: longest gap in topic creation, s"
PARTITIONS = 3  # of the topic that is written to in a rolling restart


def each_engine(kinds: Kinds) -> Kinds:
    """Ottla on ZooKeeper as well."""
    return (*kinds, OttlaOnZooKeeper) if OttlaCluster in kinds else kinds


def record(run: ClusterRun, row: str, cluster: Cluster, value: float) -> None:
    """Kafka has one engine: its figure stands beside each of Ottla's."""
    for engine in ENGINES if cluster.name == KafkaCluster.name else (cluster.engine,):
        run.record(row.format(engine), cluster.name, value)


def kill_leader(run: ClusterRun, kinds: Kinds) -> None:
    """SIGKILL of a broker that leads, and is neither controller nor coordinator of anybody."""
    with both(each_engine(kinds)) as clusters:
        for number in run.numbers():
            for cluster in clusters:
                controller = cluster.controller()
                leader = next(each for each in NODE_IDS if each != controller)
                gap_s = kill_gap_s(cluster, leader, f"leader-{number}")
                record(run, KILL_LEADER, cluster, gap_s)


def kill_all_in_one(run: ClusterRun, kinds: Kinds) -> None:
    """SIGKILL of the broker that leads, is the controller, and coordinates a group at work."""
    with both(each_engine(kinds)) as clusters:
        for number in run.numbers():
            for cluster in clusters:
                controller = cluster.controller()
                gap_s = kill_gap_s(cluster, controller, f"all-{number}", coordinates=True)
                record(run, KILL_ALL_IN_ONE, cluster, gap_s)


def kill_gap_s(cluster: Cluster, victim: int, topic: str, *, coordinates: bool = False) -> float:
    """Kill a broker that leads a topic under a steady producer; it is back at the end."""
    others = [each for each in NODE_IDS if each != victim]
    cluster.make_topic(topic, replicas=(victim, *others))
    with ExitStack() as stack:
        producer = SteadyProducer(cluster.bootstrap, topic, 1, per_second=PER_SECOND)
        stack.enter_context(producer)
        if coordinates:
            group = group_coordinated_by(cluster, victim)
            stack.enter_context(group_member(cluster, group, topic))
            producer.flows()
        killed_s = time.monotonic()
        cluster.members[victim].kill()
        producer.flows(2.0)
        gap_s = producer.longest_gap_s(killed_s)
    cluster.restart(victim)
    cluster.wait_for_isr(topic)
    return gap_s


def kill_controller(run: ClusterRun, kinds: Kinds) -> None:
    """SIGKILL of the controller while topics are made through all brokers."""
    with both(each_engine(kinds)) as clusters:
        for _ in run.numbers():
            for cluster in clusters:
                victim = cluster.controller()
                record(run, KILL_CONTROLLER, cluster, takeover_gap_s(cluster, victim))
                cluster.restart(victim)


def takeover_gap_s(cluster: Cluster, controller: int) -> float:
    """Kill the controller; the longest time without a new topic until others have made some."""
    with TopicCreator(cluster) as creator:
        killed_s = time.monotonic()
        cluster.members[controller].kill()
        creator.flows(2.0)
        return longest_gap_s(creator.made_s, killed_s, time.monotonic())


def rolling_restart(run: ClusterRun, kinds: Kinds) -> None:
    """Each broker in turn stopped cleanly and started again, under a producer that retries."""
    with both(kinds) as clusters:
        for number in run.numbers():
            for cluster in clusters:
                topic = f"rolled-{number}"
                cluster.make_topic(topic, PARTITIONS)
                producer = SteadyProducer(
                    cluster.bootstrap, topic, PARTITIONS, per_second=PER_SECOND
                )
                with producer:
                    began_s = time.monotonic()
                    for node_id in NODE_IDS:
                        roll(cluster, node_id, topic)
                        producer.flows()
                    gap_s = producer.longest_gap_s(began_s)
                run.record("rolling restart: failed requests", cluster.name, producer.failed)
                run.record("rolling restart: longest gap, s", cluster.name, gap_s)


def roll(cluster: Cluster, node_id: int, topic: str) -> None:
    """Stop one broker and start it; return when it is in all ISRs."""
    member = cluster.members[node_id]
    process = member.process
    assert process is not None
    member.ask_to_stop()
    until(lambda: process.poll() is not None, f"broker {node_id} does not stop", STOP_TIMEOUT_S)
    member.process = None
    cluster.restart(node_id)
    cluster.wait_for_isr(topic)


FAULTS = {
    "kill-leader": kill_leader,
    "kill-all-in-one": kill_all_in_one,
    "kill-controller": kill_controller,
    "rolling-restart": rolling_restart,
}
