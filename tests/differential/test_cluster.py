"""Three brokers of Ottla answer as three brokers of Apache Kafka 4.3.1 do.

The same cases in the same order on both: all brokers alive, one killed, that one back again.
`OTTLA_DIFFERENTIAL=self` puts a second cluster of Apache Kafka in Ottla's place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests import needs
from tests.apache.cluster import ApacheCluster
from tests.differential import cluster_deaths  # noqa: F401, registers its cases
from tests.differential.allowed import OTHER_ANSWERS
from tests.differential.cluster_cases import CASES, VICTIM, Phase, prepare
from tests.differential.cluster_peer import BROKERS, ClusterPeer, RealCluster
from tests.differential.normal import differences

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("cluster_differential")]

LINES_MAX = 60
PREFIX = "three"
STEMS = {"all": [1, 2, 3], "led": [3, 1, 2], "two": [1, 3], "only": [3]}
SESSION = {"broker_session_timeout_ms": "2000", "broker_heartbeat_interval_ms": "250"}
OPTIONS: dict[str, object] = {
    "broker.session.timeout.ms": 9000,
    "replica.fetch.backoff.ms": 100,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # The records are years old: a round of retention would fall into either cluster's cases.
    "log.initial.task.delay.ms": 3_600_000,
    # No leader moves unless a case asks for it.
    "auto.leader.rebalance.enable": "false",
}
KAFKA_OPTIONS = SESSION | {
    "log_initial_task_delay_ms": "3600000",
    "auto_leader_rebalance_enable": "false",
}


class OttlaCluster:
    """Three brokers of ours, by their ports."""

    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory=directory, **OPTIONS)

    def __enter__(self) -> OttlaCluster:
        self._cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.remove()

    def port(self, node_id: int) -> int:
        return int(self._cluster.address(node_id).rpartition(":")[2])

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def restart(self, node_id: int) -> None:
        self._cluster.restart(node_id)

    def pause(self, node_id: int) -> None:
        self._cluster.pause(node_id)

    def resume(self, node_id: int) -> None:
        self._cluster.resume(node_id)


class Life:
    """One cluster on its way through the phases."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.phase = Phase.ALIVE
        with self.peer(PREFIX) as peer:
            prepare(peer)

    def peer(self, prefix: str) -> ClusterPeer:
        alive = [each for each in BROKERS if self.phase != Phase.DEAD or each != VICTIM]
        peer = ClusterPeer(self.cluster, prefix, alive)
        if prefix == PREFIX and self.phase != Phase.ALIVE:
            peer.learn(*STEMS)
        return peer

    def reach(self, phase: Phase) -> None:
        """Let broker 3 die, or come back; returns when all live brokers know."""
        while self.phase < phase:
            if self.phase == Phase.ALIVE:
                self.cluster.kill(VICTIM)
            else:
                self.cluster.restart(VICTIM)
            self.phase = Phase(self.phase + 1)
            with self.peer(PREFIX) as peer:
                for stem, replicas in STEMS.items():
                    peer.wait_for(peer.name(stem), [replicas])
                peer.wait_for_brokers()


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Life, Life]]:
    """Two fresh clusters: the specification, and who is held to it."""
    needs.apache()
    folder = tmp_path_factory.mktemp("clusters")
    ours: Callable[[Path], ApacheCluster | OttlaCluster] = OttlaCluster
    if os.environ.get("OTTLA_DIFFERENTIAL") == "self":
        ours = lambda path: ApacheCluster(path, **KAFKA_OPTIONS)  # noqa: E731
    with ApacheCluster(folder / "kafka", **KAFKA_OPTIONS) as kafka, ours(folder / "ottla") as ottla:
        yield Life(kafka), Life(ottla)


@pytest.mark.parametrize(
    ("phase", "body"),
    [
        pytest.param(phase, body, id=body.__name__)
        for phase, body in sorted(CASES, key=lambda c: c[0])
    ],
)
def test_same_answers(
    lives: tuple[Life, Life], phase: Phase, body: Callable[[ClusterPeer], None]
) -> None:
    """The decoded answers of both clusters are equal but for the allowed differences."""
    own = body.__name__.replace("_", "-") if phase == Phase.ALIVE else PREFIX
    transcripts = []
    for life in lives:
        life.reach(phase)
        with life.peer(own) as peer:
            body(peer)
            transcripts.append(peer.steps)
    lines = []
    for left, right in zip(*transcripts, strict=False):
        if any(each.covers(f"cluster-{body.__name__}", left.label) for each in OTHER_ANSWERS):
            continue
        lines += [f"{left.label}: {line}" for line in differences(left.answer, right.answer)]
    if len(transcripts[0]) != len(transcripts[1]):
        lines.append(f"{len(transcripts[0])} steps with Kafka, {len(transcripts[1])} with Ottla")
    if lines:
        pytest.fail("\n".join(lines[:LINES_MAX]), pytrace=False)
