"""Brokers with other settings than the defaults: each has the same effect in Kafka and in Ottla."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests import needs
from tests.apache.batches import Record, batch
from tests.apache.kafka import ApacheKafka
from tests.apache.messages import Fields
from tests.differential.cases import fetch, produce
from tests.differential.cases.configs import BROKER, TOPIC, about
from tests.differential.normal import differences
from tests.differential.peer import Peer
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("settings_pair")]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "false",
    "num.partitions": "4",
    "message.max.bytes": "3000",
    "log.message.timestamp.type": "LogAppendTime",
    "log.cleanup.policy": "compact,delete",
    "log.retention.minutes": "90",
    "log.segment.bytes": "2097152",
    "log.index.interval.bytes": "500",
    "fetch.max.bytes": "2048",
    "socket.request.max.bytes": "100000",
    "min.insync.replicas": "1",
    "producer.id.expiration.ms": "3600000",
}
KEYED = [Record(key=b"k", value=b"v" * 700)]


def no_automatic_topics(peer: Peer) -> None:
    """`auto.create.topics.enable`"""
    for version in (3, 4, 12):
        peer.ask("Metadata", version, {"topics": [{"name": peer.name()}]})


def no_deletion(peer: Peer) -> None:
    """`delete.topic.enable`"""
    topic = peer.create_topic()
    for version in (1, 3, 4, 5):
        fields = {"topic_names": [topic, "never"], "timeout_ms": 5000}
        peer.ask("DeleteTopics", version, fields)
    fields = {"topics": [{"name": None, "topic_id": peer.topic_id(topic)}], "timeout_ms": 5000}
    peer.ask("DeleteTopics", 6, fields, "by id")


def counts_by_default(peer: Peer) -> None:
    """`num.partitions`, and every value set shows its source."""
    topic = {"name": peer.name(), "num_partitions": -1, "replication_factor": -1}
    peer.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 5000})
    peer.wait_for_topic(peer.name(), 4)
    fields = about((TOPIC, peer.name(), None), include_synonyms=True)
    peer.ask("DescribeConfigs", 4, fields, "the topic")
    names = [name for name in SETTINGS if not name.startswith(("min.", "socket"))]
    fields = about((BROKER, "1", names), include_synonyms=True)
    peer.ask("DescribeConfigs", 4, fields, "the broker")


def messages_too_large(peer: Peer) -> None:
    """`message.max.bytes` and `log.message.timestamp.type`"""
    topic = peer.create_topic()
    for size in (100, 2900, 3000, 5000):
        made = batch([Record(key=b"k", value=b"v" * size)])
        peer.ask("Produce", 9, produce.one(peer, 9, topic, made), f"{size} bytes")
    produce.fetched(peer, topic)
    made = batch([Record(key=None)])
    peer.ask("Produce", 9, produce.one(peer, 9, topic, made), "compacted by default")


def little_at_once(peer: Peer) -> None:
    """`fetch.max.bytes` caps what a client asks for."""
    topic = peer.create_topic()
    for _ in range(5):
        peer.produce(topic, batch(KEYED))
    asked = fetch.topic_of(peer, 11, topic, fetch.part(0))
    answer = peer.quietly("Fetch", 11, fetch.request(11, asked, max_bytes=1 << 20))
    peer.note("bytes", len(answer["responses"][0]["partitions"][0]["records"]))


def small_requests(peer: Peer) -> None:
    """`socket.request.max.bytes`"""
    for size in (99_000, 101_000):
        name = "x" * 240
        topics = [{"name": name} for _ in range(size // 242)]
        answer = peer.ask("DescribeTopicPartitions", 0, {"topics": topics}, f"about {size} bytes")
        peer.note("answered", bool(answer))


CASES: tuple[Callable[[Peer], None], ...] = (
    no_automatic_topics,
    no_deletion,
    counts_by_default,
    messages_too_large,
    little_at_once,
    small_requests,
)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Both brokers with these settings."""
    needs.apache()
    folder = tmp_path_factory.mktemp("settings")
    kafkas = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with ApacheKafka(folder / "kafka", **kafkas) as kafka:
        if os.environ.get("OTTLA_DIFFERENTIAL") == "self":
            with ApacheKafka(folder / "second", **kafkas) as second:
                yield kafka.port, second.port
        else:
            settings: Fields = SETTINGS | {"node.id": "1"}
            with Server(folder / "ottla", settings=settings) as ottla:
                yield kafka.port, ottla.port


@pytest.mark.parametrize("case", CASES)
def test_same_effect(ports: tuple[int, int], case: Callable[[Peer], None]) -> None:
    """The answers of both brokers under these settings are equal."""
    prefix = f"settings-{case.__name__}".replace("_", "-")
    transcripts = []
    for port in ports:
        with Peer(port, prefix) as peer:
            case(peer)
            transcripts.append(peer.steps)
    lines = []
    for left, right in zip(*transcripts, strict=True):
        lines += [f"{left.label}: {line}" for line in differences(left.answer, right.answer)]
    if lines:
        pytest.fail("\n".join(lines[:40]), pytrace=False)
