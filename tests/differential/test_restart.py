"""After a clean stop and after SIGKILL, Apache Kafka and Ottla answer alike.

The same steps on both: write, stop cleanly, ask and write on, kill, ask again. Leader epochs rise
at every start; by how much is each broker's own affair, so they are compared by their order.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.apache.batches import Record, batch
from tests.apache.kafka import ApacheKafka
from tests.apache.messages import Fields
from tests.differential.normal import Names, differences
from tests.differential.peer import Peer, Step
from tests.live import Server

pytestmark = pytest.mark.apache

PRODUCER = 81_000
# Kafka's controller takes a killed broker back only when its session has run out.
SHORT_SESSION = {"broker_session_timeout_ms": "600", "broker_heartbeat_interval_ms": "100"}
# Of today: Kafka forgets producers whose last record is older than a day when it loads a log.
TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000
SMALL_SEGMENTS = {"segment.bytes": "1048576"}


def test_the_same_after_restarts(tmp_path: Path) -> None:
    """Logs, epochs, producers, configs and topics survive both kinds of end."""
    needs.apache()
    kafka = ApacheKafka(tmp_path / "kafka", **SHORT_SESSION)
    expected = in_rank(lived_through(kafka))
    if os.environ.get("OTTLA_DIFFERENTIAL") == "self":
        found = in_rank(lived_through(ApacheKafka(tmp_path / "second", **SHORT_SESSION)))
    else:
        found = in_rank(lived_through(Server(tmp_path / "ottla", settings={"node.id": 1})))
    lines = []
    for left, right in zip(expected, found, strict=True):
        lines += [f"{left.label}: {line}" for line in differences(left.answer, right.answer)]
    assert not lines, "\n".join(lines[:60])


def lived_through(broker: ApacheKafka | Server) -> list[Step]:
    """All steps of the broker's life."""
    names = Names("restart")
    steps: list[Step] = []

    def phase(act: Any) -> None:
        with Peer(broker.port, "restart") as peer:
            peer.names = names
            for topic in names.topic_ids.values():
                peer.wait_for_topic(topic)
            act(peer)
            steps.extend(peer.steps)

    broker.start()
    try:
        phase(made)
        broker.stop()
        broker.start()
        phase(lambda peer: looked_at(peer, "after a clean stop"))
        phase(lambda peer: written_on(peer, 1))
        broker.kill()
        broker.start()
        phase(lambda peer: looked_at(peer, "after SIGKILL"))
        phase(lambda peer: written_on(peer, 2))
        phase(lambda peer: looked_at(peer, "at the end"))
    finally:
        broker.kill()
    return steps


def made(peer: Peer) -> None:
    log = peer.create_topic("log", configs=SMALL_SEGMENTS | {"retention.ms": "-1"})
    for number in range(8):
        value = Record(value=bytes([number]) * 300_000, timestamp_delta=number)
        peer.produce(log, batch([value], base_timestamp=TIMESTAMP_MS))
    peer.produce(log, sequenced(0))
    peer.produce(log, sequenced(1))
    cut = [{"name": log, "partitions": [{"partition_index": 0, "offset": 2}]}]
    peer.quietly("DeleteRecords", 1, {"topics": cut, "timeout_ms": 5000})
    peer.create_topic("empty")
    gone = peer.create_topic("gone")
    peer.quietly("DeleteTopics", 5, {"topic_names": [gone], "timeout_ms": 5000})
    peer.wait_until_gone(gone)
    peer.names.topic_ids = {k: v for k, v in peer.names.topic_ids.items() if v != gone}


def sequenced(sequence: int) -> bytes:
    identity = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
    return batch(1, base_timestamp=TIMESTAMP_MS, **identity)  # type: ignore[arg-type]


def written_on(peer: Peer, round_: int) -> None:
    """Retries of what was there before are duplicates; the next number is taken."""
    log = peer.name("log")
    for label, sequence in (
        ("the last again", round_),
        ("one left out", round_ + 2),
        ("the next", round_ + 1),
    ):
        data = [{"index": 0, "records": sequenced(sequence)}]
        fields = {"acks": -1, "timeout_ms": 5000}
        topics = {"topic_data": [{"name": log, "partition_data": data}]}
        peer.ask("Produce", 9, fields | topics, f"{label}, round {round_}")


def looked_at(peer: Peer, when: str) -> None:
    log, empty = peer.name("log"), peer.name("empty")
    topics: list[Fields] = [{"name": log}, {"name": empty}, {"name": peer.name("gone")}]
    asked = {"topics": topics, "allow_auto_topic_creation": False}
    peer.ask("Metadata", 12, asked, when)
    for moment in (-2, -1, -3, TIMESTAMP_MS + 3, TIMESTAMP_MS + 100):
        parts = [{"partition_index": 0, "timestamp": moment}]
        fields = {"replica_id": -1, "topics": [{"name": log, "partitions": parts}]}
        peer.ask("ListOffsets", 7, fields, f"{when}, at {moment}")
    fields = {"topics": [{"name": log, "partition_indexes": [0]}]}
    peer.ask("DescribeProducers", 0, fields, when)
    keys = ["retention.ms", "segment.bytes", "flush.ms"]
    resource = {"resource_type": 2, "resource_name": log, "configuration_keys": keys}
    peer.ask("DescribeConfigs", 4, {"resources": [resource]}, when)
    for offset in (0, 2, 7, 8, 9, 10, 11):
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 400}
        named = {"topic": log, "partitions": [part]}
        fields = {"max_wait_ms": 0, "max_bytes": 400, "topics": [named], "session_epoch": -1}
        answer = peer.quietly("Fetch", 11, fields)["responses"][0]["partitions"][0]
        records = answer.pop("records") or b""
        peer.note(f"{when}, fetch at {offset}", answer | {"bytes": len(records)})


def in_rank(steps: list[Step]) -> list[Step]:
    """Leader epochs as the order in which they came: the first, the second."""
    ranks: dict[int, int] = {-1: -1}
    return [Step(step.label, _ranked(step.answer, ranks)) for step in steps]


def _ranked(value: Any, ranks: dict[int, int]) -> Any:
    if isinstance(value, list):
        return [_ranked(item, ranks) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: _ranked(item, ranks) for key, item in value.items()}
    if "leader_epoch" in value:
        result["leader_epoch"] = ranks.setdefault(value["leader_epoch"], len(ranks))
    return result
