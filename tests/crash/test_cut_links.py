"""A leader whose links are cut, really: each broker is in a network namespace of its own.

While a producer sends, the leader loses its links in one way or another. Others lead, and nothing
that was acknowledged is lost, doubled or out of order, whatever the one that is cut off believes.
The longest time without an acknowledgement is reported, not judged: it is to stay below the session
time-out and a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.admin import NewTopic
from ottla.testing.history import History
from tests import needs
from tests.crash.namespaces import CLIENTS, NamespaceCluster, Namespaces, available
from tests.crash.test_cluster import PARTITIONS, TOPIC, load
from tests.waiting import eventually

SESSION_TIMEOUT_MS = 3000
OPTIONS = {
    "broker_session_timeout_ms": str(SESSION_TIMEOUT_MS),
    "replica_lag_time_max_ms": "5000",
    "replica_fetch_backoff_ms": "100",
}
# Clients that wait longer for an answer than the cluster needs to elect would hide the election.
CLIENTS_OPTIONS = {"socket.timeout.ms": 1000, "reconnect.backoff.max.ms": 100}

Cut = Callable[[Namespaces, int], None]


def both_ways(network: Namespaces, leader: int) -> None:
    """Nobody reaches it, and it reaches nobody."""
    network.cut(leader)


def from_brokers(network: Namespaces, leader: int) -> None:
    """It is cut off from the other brokers; clients reach it, and it them."""
    for other in network.brokers:
        if other != leader:
            network.block(leader, other)
            network.block(other, leader)


def cannot_send(network: Namespaces, leader: int) -> None:
    """What others send reaches it, and what it sends reaches nobody."""
    for other in (CLIENTS, *network.brokers):
        if other != leader:
            network.block(leader, other)


def cannot_receive(network: Namespaces, leader: int) -> None:
    """What it sends reaches everyone, and nothing reaches it."""
    for other in (CLIENTS, *network.brokers):
        if other != leader:
            network.block(other, leader)


CUTS: tuple[Cut, ...] = (both_ways, cannot_send, from_brokers)
if needs.LONG:
    CUTS = (*CUTS, cannot_receive) * 3


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_when_a_leader_is_cut_off(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Cut off both ways, from brokers only, and one way: all that was acknowledged is read once."""
    available()
    with Namespaces(3) as network, NamespaceCluster(network, tmp_path, **OPTIONS) as cluster:
        # A controller that is cut off keeps the lock of the directory: another fault, not this one.
        controller = cluster.controller()
        one, two = (each for each in network.brokers if each != controller)
        places = {index: [one, two, controller] for index in range(PARTITIONS)}
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, replica_assignments=places)])
        cluster.wait_for_isr(TOPIC)
        with load(cluster, History(), **CLIENTS_OPTIONS) as writer:
            for cut in CUTS:
                writer.write_more()
                leader = cluster.wait_for_preferred_leaders(TOPIC)
                with healed(network):
                    writer.longest_gap_s = 0.0
                    cut(network, leader)
                    eventually(
                        lambda old=leader: cluster.leader_seen_by(controller, TOPIC) != old,  # type: ignore[misc]
                        "another broker leads",
                    )
                    writer.write_more()
                    gap_s = writer.longest_gap_s
                record_property(f"gap_{cut.__name__}_s", round(gap_s, 2))
                print(f"leader {leader}, {cut.__name__}: {gap_s:.2f} s without acknowledgements")
                cluster.wait_for_isr(TOPIC)


@contextmanager
def healed(network: Namespaces) -> Iterator[None]:
    """Whatever is cut inside is whole again afterwards."""
    try:
        yield
    finally:
        network.heal()
