"""A leader whose link is cut: how long its producers are held up.

Each broker is in a network namespace of its own; needs root. What is cut off says nothing any more,
so both clusters wait for the end of its session, which is 9 s by default in both.
"""

from __future__ import annotations

import contextlib
import time

import confluent_kafka as ck

from benchmarks.cluster_clients import SteadyProducer
from benchmarks.cluster_faults import PER_SECOND
from benchmarks.cluster_run import ClusterRun, Kinds, both
from benchmarks.cluster_servers import NODE_IDS, Cluster, until
from tests.crash.namespaces import Namespaces

ROUNDS_MAX = 3
# Clients that wait longer for an answer than the cluster needs to elect would hide the election.
CLIENT_OPTIONS = {"socket.timeout.ms": 1000, "reconnect.backoff.max.ms": 100}
ROW = "link of a leader cut: longest gap, s"


def cut_leader(run: ClusterRun, kinds: Kinds) -> None:
    """The leader, which is not the controller, is cut off from everyone."""
    for kind in kinds:
        with Namespaces(len(NODE_IDS)) as network:
            inside: type[Cluster] = type(kind.__name__, (kind,), {"network": network})
            with both((inside,)) as (cluster,):
                for number in run.numbers(ROUNDS_MAX):
                    gap_s = cut_gap_s(cluster, network, f"cut-{number}")
                    run.record(ROW, cluster.name, gap_s)


def cut_gap_s(cluster: Cluster, network: Namespaces, topic: str) -> float:
    """Cut a leader off under a steady producer; it is back in the ISR at the end."""
    controller = cluster.controller()
    leader, other = (each for each in NODE_IDS if each != controller)
    cluster.make_topic(topic, replicas=(leader, other, controller))
    producer = SteadyProducer(cluster.bootstrap, topic, 1, per_second=PER_SECOND, **CLIENT_OPTIONS)
    try:
        with producer:
            cut_s = time.monotonic()
            network.cut(leader)
            until(lambda: leads_elsewhere(cluster, topic, leader), "nobody else leads")
            producer.flows(2.0)
            gap_s = producer.longest_gap_s(cut_s)
            network.heal()
    finally:
        network.heal()
    cluster.wait_for_isr(topic)
    return gap_s


def leads_elsewhere(cluster: Cluster, topic: str, leader: int) -> bool:
    """Whether another broker leads, as those that are not cut off know it."""
    with contextlib.suppress(ck.KafkaException):
        return cluster.leader(topic) not in (leader, -1)
    return False


LINKS = {"cut-link": cut_leader}
