"""Clusters, topics and brokers that go and come again under the same name: nothing of the old one
is taken for the new one's."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.client.admin import Admin
from ottla.console.collecting.collector import CollectedCluster
from ottla.console.collecting.known import Known
from ottla.console.collecting.questions import BROKER_KEPT_MS, Round
from ottla.structs import OffsetAndMetadata
from tests.live import Server
from tests.waiting import eventually

OLD_MS = 1_500_000_000_000


def fill(bootstrap: str, records: int, time_ms: int | None) -> None:
    """A topic with so many records, of which a group has read none."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        keeps = {"retention.ms": "-1"}
        admin.create_topics({"orders": {"num_partitions": 1, "configs": keeps}})
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(records):
            producer.send("orders", b"x", timestamp_ms=time_ms)
        producer.flush()
    with Consumer(bootstrap_servers=bootstrap, group_id="web", enable_auto_commit=False) as reader:
        reader.assign([TopicPartition("orders", 0)])
        reader.commit({TopicPartition("orders", 0): OffsetAndMetadata(0, "")})


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "data")


def test_a_cluster_at_the_address_of_another(server: Server) -> None:
    """Its id, offsets, rates and lag in time are its own; requests of pages reach it too."""
    cluster = CollectedCluster("main", {}, interval_s=0.1)
    try:
        with server:
            cluster._properties = {"bootstrap_servers": server.bootstrap}
            fill(server.bootstrap, 500, OLD_MS)
            cluster.start()
            eventually(lambda: cluster.picture.groups and lag_ms_of(cluster) is not None)
            assert (lag_ms_of(cluster) or 0) > 1_000_000_000
            assert "orders" in cluster.admin().list_topics()
            first = cluster.picture.cluster_id
        shutil.rmtree(server.data)
        with server:
            fill(server.bootstrap, 800, None)
            eventually(lambda: cluster.picture.cluster_id not in (None, first))
            eventually(lambda: cluster.picture.groups and lag_ms_of(cluster) is not None)
            assert (lag_ms_of(cluster) or 0) < 1_000_000_000
            [part] = cluster.picture.topics["orders"].partitions
            assert part.end_offset == 800
            eventually(lambda: cluster.picture.topics["orders"].records_in_rate == 0)
            assert "orders" in cluster.admin().list_topics()
            assert not [each for each in cluster.picture.problems if each.about == "cluster"]
    finally:
        cluster.close()


def lag_ms_of(cluster: CollectedCluster) -> int | None:
    return cluster.picture.groups["web"].lag_ms


class Answers:
    """An admin that knows metadata alone."""

    def __init__(self) -> None:
        self.brokers = [0, 1]
        self.ids = {"a": b"1" * 16, "b": b"2" * 16}
        self.replicas = [0, 1]

    def survey_metadata(self, timeout_ms: float) -> Any:
        part = SimpleNamespace(
            partition_index=0, leader_id=0, leader_epoch=0, replica_nodes=self.replicas,
            isr_nodes=[0],
        )  # fmt: skip
        return SimpleNamespace(
            cluster_id="c", controller_id=0,
            brokers=[SimpleNamespace(node_id=each, host="h", port=1, rack=None)
                     for each in self.brokers],
            topics=[SimpleNamespace(name=name, topic_id=ident, is_internal=False, error_code=0,
                                    partitions=[part]) for name, ident in self.ids.items()],
        )  # fmt: skip


def test_a_topic_that_is_made_again_has_none_of_the_old_offsets() -> None:
    """Only that one's; a topic that stayed keeps its own."""
    answers, known = Answers(), Known()
    asked = Round(cast(Any, answers), known, lambda: 1000)
    asked.metadata()
    here = {TopicPartition("a", 0): 5, TopicPartition("b", 0): 7}
    known.starts, known.ends, known.leader_sizes = dict(here), dict(here), dict(here)
    answers.ids["a"] = b"3" * 16
    asked.metadata()
    assert known.made_again == [TopicPartition("a", 0)]
    assert known.ends == known.starts == known.leader_sizes == {TopicPartition("b", 0): 7}
    asked.metadata()
    assert known.made_again == []


def test_a_broker_that_was_replaced_is_forgotten() -> None:
    """After a while, and only when no replica counts on it; until then it is shown as down."""
    answers, known, now = Answers(), Known(), [1000]
    asked = Round(cast(Any, answers), known, lambda: now[0])
    asked.metadata()
    answers.brokers = [0, 2]
    asked.metadata()
    asked.finish()
    assert sorted(known.brokers) == [0, 1, 2]
    assert [each.about for each in known.problems.all()] == ["broker 1"]
    now[0] += BROKER_KEPT_MS
    asked.metadata()
    asked.finish()
    assert sorted(known.brokers) == [0, 1, 2]  # a replica is there
    answers.replicas = [0, 2]
    asked.metadata()
    asked.finish()
    assert sorted(known.brokers) == [0, 2]
    assert known.problems.all() == ()
    answers.brokers = [0, 1, 2]
    asked.metadata()
    answers.brokers = [0, 2]
    asked.metadata()
    asked.finish()
    assert sorted(known.brokers) == [0, 1, 2]  # gone anew, for no long time
