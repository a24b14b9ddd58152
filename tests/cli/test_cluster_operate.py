"""Operating a cluster: `status`, `why`, `restart --rolling`, `replace` on three real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla import Consumer, NewTopic, Producer, TopicPartition
from ottla.cli.cluster_disk import Repair
from ottla.cli.cluster_restart import not_in_sync, only_at, rolling_order, set_aside
from ottla.cli.cluster_status import Found
from ottla.cli.main import run
from ottla.client.admin.reassignments import OngoingReassignment
from ottla.testing import Cluster


class Operator:
    """Runs `ottla cluster …` on a cluster, in this process."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.capsys = capsys

    def __call__(self, *words: str) -> str:
        """What a command says; it must succeed."""
        code = run(["cluster", *words, "--dir", str(self.cluster.directory)])
        said = self.capsys.readouterr()
        assert code == 0, said
        return said.out

    def refused(self, *words: str) -> str:
        assert run(["cluster", *words, "--dir", str(self.cluster.directory)]) != 0
        return self.capsys.readouterr().err

    def why(self, partition: str) -> Any:
        return json.loads(self("why", partition, "--json"))

    def from_elsewhere(self, broker: int, *words: str) -> Any:
        """What a command says that knows the address of one broker, and neither files nor
        processes."""
        address = self.cluster.address(broker)
        assert run(["cluster", *words, "--json", "--bootstrap-server", address]) == 0
        return json.loads(self.capsys.readouterr().out)


def produce(cluster: Cluster, values: range) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for value in values:
            producer.send("orders", value=b"%d" % value, partition=0)
        producer.flush(60)


def consumed(cluster: Cluster) -> list[int]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        partition = TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: list[int] = []
        while consumer.position(partition) < end:
            for records in consumer.poll(1000).values():
                found += [int(record.value) for record in records]
        return found


@pytest.mark.timeout(300)
def test_a_cluster_is_explained_restarted_and_repaired(
    ottla_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other on one cluster: what `status` and `why` say of each state, a rolling
    restart, a replaced disk; nothing that was acknowledged is lost."""
    cluster, operate = ottla_cluster, Operator(ottla_cluster, capsys)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic("orders", replica_assignments={0: [1, 2, 3]})])
    produce(cluster, range(10))
    cluster.wait_for_isr("orders")

    healthy = operate.why("orders-0")
    assert healthy["state"] == "healthy"
    assert [row["end"] for row in healthy["replicas"]] == [10, 10, 10]
    assert "nothing is wrong with orders-0" in operate("why", "orders-0")
    for wrong, fact in (
        ("orders", "a partition is a topic's name, a hyphen and a number (got 'orders')"),
        ("nothing-0", "there is no topic nothing"),
        ("orders-3", "orders has no partition 3"),
    ):
        assert fact in operate.refused("why", wrong)

    # A follower dies, and misses what comes.
    cluster.kill(3)
    produce(cluster, range(10, 15))
    behind = operate.why("orders-0")
    assert behind["state"] == "under replicated"
    assert behind["replicas"][2] == {
        "replica": 3,
        "broker": "down",
        "role": "behind",
        "end": 10,
        "lag": 5,
        "needs": "to be started: ottla cluster restart 3",
    }
    elsewhere = operate.from_elsewhere(1, "why", "orders-0")
    start = f"kafka-server-start.sh on the host of broker 3, {cluster.address(3)}"
    assert elsewhere["replicas"][2] == behind["replicas"][2] | {
        "end": None, "lag": None, "needs": f"to be started: {start}",
    }  # fmt: skip
    assert elsewhere["replicas"][:2] == behind["replicas"][:2]
    seen = operate.from_elsewhere(2, "status")
    assert [(each["broker"], each["state"]) for each in seen["brokers"]] == [
        (1, "running"), (2, "running"), (3, "down"),
    ]  # fmt: skip
    assert seen["under_replicated"] >= 1
    assert "broker 3 is down" in operate.refused("restart", "--rolling")

    # So do the others, and only the one that misses something comes back.
    cluster.kill(2)
    cluster.kill(1)
    assert "is not running" in operate.refused("why", "orders-0")
    operate("restart", "3")
    offline = operate.why("orders-0")
    assert offline["state"] == "offline"
    assert offline["leader"] is None
    assert 3 not in offline["isr"] + offline["eligible"]
    lost = offline["unclean_election"]
    assert (lost["leader"], lost["first"], lost["end"], lost["offsets"]) == (3, 10, 15, 5)
    elsewhere = operate.from_elsewhere(3, "why", "orders-0")
    assert {**elsewhere, "unclean_election": None, "replicas": []} == {
        **offline, "unclean_election": None, "replicas": [],
    }  # fmt: skip
    assert elsewhere["unclean_election"]["unknown"] == [1, 2]
    words = operate("why", "orders-0")
    assert "would make broker 3 the leader and lose offsets 10 to 14 (5)" in words
    assert json.loads(operate("status", "--json"))["offline"] >= 1
    assert "its records would be lost" in operate.refused("replace", "1")

    operate("restart", "1")
    operate("restart", "2")
    cluster.wait_for_isr("orders")
    said = operate("restart", "--rolling")
    assert said.count("is ready on") == 3
    said = operate("replace", "1")
    assert "broker 1 is in every ISR" in said
    assert (cluster.directory / "broker-1.replaced-1" / "orders-0").is_dir()
    assert [row["end"] for row in operate.why("orders-0")["replicas"]] == [15, 15, 15]
    assert consumed(cluster) == list(range(15))


def test_wrong_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing or too much, before anything is stopped."""
    for words, fact in (
        (["restart"], "either one broker, or all of them with --rolling"),
        (["restart", "1", "--rolling"], "either one broker, or all of them with --rolling"),
        (["restart", "--rolling"], f"there is no cluster in {tmp_path}"),
        (["replace", "1"], f"there is no cluster in {tmp_path}"),
        (["why", "orders-0"], f"there is no cluster in {tmp_path}"),
        (["why", "orders"], "a partition is a topic's name"),
        (["replace", "x"], "'x' is not a valid integer"),
    ):
        assert run(["cluster", *words, "--dir", str(tmp_path)]) != 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2, lines
        assert fact in lines[0]
        assert lines[1].startswith("Try: ")


def test_what_moves_is_named() -> None:
    """Replicas that a reassignment adds and removes, and those that copy; none without a leader."""
    described = topic(p0=([1, 2, 3, 4], [1, 2, 3]), p1=([1, 2], [1, 2]), p2=([2, 3], [2]))
    for each, leader in zip(described["partitions"], (1, 1, -1), strict=True):
        each["leader_id"] = leader
    moving: dict[TopicPartition, OngoingReassignment] = {
        TopicPartition("t", 0): {
            "replicas": [1, 2, 3, 4],
            "adding_replicas": [4],
            "removing_replicas": [3],
        }
    }
    cluster = {"cluster_id": "c", "controller_id": 1}
    ends: dict[int, dict[TopicPartition, int]] = {
        broker: {TopicPartition("t", 0): end} for broker, end in ((1, 90), (4, 60))
    }
    found = Found(cluster, [described], ends, [1, 2, 3, 4], moving)
    assert [row["moves"] for row in found.rows()] == ["adds 4; removes 3; 4 catches up", None, None]
    assert [row["lag"] for row in found.rows()] == [30, None, None]
    assert found.counts() == {"partitions": 3, "moving": 1, "offline": 1, "under_replicated": 2}


def test_a_repair_is_named() -> None:
    """Beside those that catch up; nobody is asked for it where all replicas are in sync."""
    described = topic(p0=([1, 2, 3], [1]), p1=([1, 2], [1, 2]))
    for each in described["partitions"]:
        each["leader_id"] = 1
    asked = []

    def repair_of(broker: int, partition: str) -> Repair | None:
        asked.append((broker, partition))
        return Repair(((3, 5),), "") if broker == 3 else None

    cluster = {"cluster_id": "c", "controller_id": 1}
    found = Found(cluster, [described], {}, [1, 2, 3], {}, repair_of)
    moves = [row["moves"] for row in found.rows()]
    assert moves == ["3 repairs offsets 3 to 4; 2 catches up", None]
    assert asked == [(each, "t-0") for each in (1, 2, 3)]


def topic(**partitions: tuple[list[int], list[int]]) -> dict[str, Any]:
    return {
        "name": "t",
        "partitions": [
            {"partition_index": int(name[1:]), "replica_nodes": replicas, "isr_nodes": isr}
            for name, (replicas, isr) in partitions.items()
        ],
    }


def test_what_a_broker_alone_has_is_known() -> None:
    """A partition is lost with a broker if no other replica is in its ISR."""
    topics = [topic(p0=([1, 2], [1, 2]), p1=([1, 2], [1]), p2=([2], [2]), p3=([1, 2], []))]
    assert not_in_sync(topics, None) == ["t-1", "t-3"]
    assert not_in_sync(topics, 2) == ["t-1", "t-3"]
    assert not_in_sync(topics, 1) == ["t-3"]
    assert only_at(topics, 1) == ["t-1", "t-3"]
    assert only_at(topics, 2) == ["t-2", "t-3"]
    assert only_at(topics, 3) == []


def test_the_controller_is_restarted_last() -> None:
    """So it moves once."""
    assert rolling_order([1, 2, 3], 2) == [1, 3, 2]
    assert rolling_order([3, 1], 9) == [1, 3]


def test_a_replaced_directory_is_kept(tmp_path: Path) -> None:
    """Under a name that is free; where there is none, nothing happens."""
    data = tmp_path / "broker-1"
    assert set_aside(data) is None
    for number in (1, 2):
        data.mkdir()
        assert set_aside(data) == tmp_path / f"broker-1.replaced-{number}"
    assert not data.exists()
