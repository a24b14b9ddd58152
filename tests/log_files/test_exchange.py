"""A data directory goes from Apache Kafka to Ottla, and a partition's segments back again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ottla
from tests import needs
from tests.apache.kafka import ApacheKafka
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("exchange")]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = "1048576"
TOPICS = {"plain": 3, "committed": 1, "returned": 1}
Read = tuple[int, int, bytes | None, bytes | None, tuple[Any, ...], tuple[int, int]]


class Groups(NamedTuple):
    """What a broker says of the groups of the new protocols."""

    consumers: list[Any]
    committed: list[tuple[str, int, int]]
    shares: list[tuple[str, int, int, int | None]]


@dataclass
class Exchange:
    """What was read where, by topic and isolation level."""

    by_kafka: dict[tuple[str, str], list[Read]]
    by_ottla: dict[tuple[str, str], list[Read]]
    returned_by_ottla: list[Read]
    returned_by_kafka: list[Read]
    epochs: list[int]
    groups_in_kafka: Groups
    groups_in_ottla: Groups
    shared_by_ottla: list[bytes]


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    """Kafka writes and stops, Ottla takes over a copy and writes on, Kafka gets a topic back."""
    needs.apache()
    folder = tmp_path_factory.mktemp("exchange")
    kafka = ApacheKafka(folder / "kafka", log_segment_bytes=SEGMENT_BYTES)
    with kafka:
        write_in_kafka(kafka.bootstrap)
        use_groups(kafka.bootstrap)
        groups_in_kafka = groups(kafka.bootstrap)
        by_kafka = read_everything(kafka.bootstrap)
    shutil.copytree(kafka.data, folder / "ottla")
    with Server(folder / "ottla", settings={"log.segment.bytes": SEGMENT_BYTES}) as server:
        groups_in_ottla = groups(server.bootstrap)
        shared_by_ottla = [each.value for each in shared(server.bootstrap, 2)]
        by_ottla = read_everything(server.bootstrap)
        write_in_ottla(server.bootstrap)
        returned_by_ottla = read(server.bootstrap, "returned", 1, "read_committed")
        epochs = leader_epochs(server.port)
    give_back(folder / "ottla" / "returned-0", kafka.data / "returned-0")
    with kafka:
        returned_by_kafka = read(kafka.bootstrap, "returned", 1, "read_committed")
    return Exchange(
        by_kafka,
        by_ottla,
        returned_by_ottla,
        returned_by_kafka,
        epochs,
        groups_in_kafka,
        groups_in_ottla,
        shared_by_ottla,
    )


def test_everything_that_kafka_wrote_is_read(exchange: Exchange) -> None:
    """Offsets, keys, values, headers and times are the same, whoever serves the files."""
    assert exchange.by_ottla == exchange.by_kafka
    assert len(exchange.by_kafka["plain", "read_committed"]) == len(CODECS) * 60


def test_aborted_records_stay_hidden(exchange: Exchange) -> None:
    """The transaction index of Kafka's segments is honoured."""
    all_of_it = exchange.by_ottla["committed", "read_uncommitted"]
    committed = exchange.by_ottla["committed", "read_committed"]
    assert {row[3] for row in all_of_it} - {row[3] for row in committed} == {b"aborted"}
    assert len(committed) == 40


def test_our_segments_are_read_by_kafka(exchange: Exchange) -> None:
    """Segments put into a stopped Kafka's topic are consumed there to the last record."""
    assert exchange.returned_by_kafka == exchange.returned_by_ottla
    assert len(exchange.returned_by_ottla) == len(CODECS) * 60


def test_leader_epochs_go_on(exchange: Exchange) -> None:
    """An adopted partition is led under a later epoch than any in its files."""
    assert all(epoch >= 1 for epoch in exchange.epochs)


def test_groups_of_the_new_protocols_go_on(exchange: Exchange) -> None:
    """A consumer group's static member, its epochs and assignment, committed offsets, and what a
    share group is done with: Kafka's records of them are read (KIP-848, KIP-932)."""
    assert exchange.groups_in_ottla == exchange.groups_in_kafka
    [group] = exchange.groups_in_kafka.consumers
    assert [each.group_instance_id for each in group.members] == ["resident"]
    assert exchange.groups_in_kafka.committed == [("queue", 0, 6)]
    # Of six records four were accepted, and not those in front.
    assert exchange.shared_by_ottla == [b"0", b"1"]


def use_groups(bootstrap: str) -> None:
    """A static member that commits and stays; a share group that leaves two of six records."""
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("queue", 1, 1)])
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ottla.ConfigResource("group", "sharing", configs)])
    with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(6):
            producer.send("queue", b"%d" % number)
    consumer = ottla.Consumer(
        "queue",
        bootstrap_servers=bootstrap,
        group_id="modern",
        group_protocol="consumer",
        group_instance_id="resident",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found = 0
    while found < 6:
        found += sum(map(len, consumer.poll(timeout_ms=500).values()))
    consumer.commit()
    consumer.close()
    shared(bootstrap, 6, accepted=range(2, 6))


def shared(
    bootstrap: str, count: int, accepted: Iterable[int] = ()
) -> list[ottla.ShareRecord[Any, bytes]]:
    """So many records of the share group, of which these offsets are accepted."""
    found: list[ottla.ShareRecord[Any, bytes]] = []
    with ottla.ShareConsumer[Any, bytes](
        "queue",
        bootstrap_servers=bootstrap,
        group_id="sharing",
        share_acknowledgement_mode="explicit",
    ) as consumer:
        while len(found) < count:
            found += consumer.poll_more(500)
        for each in found:
            kind = ottla.AcknowledgeType.ACCEPT
            if each.offset not in accepted:
                kind = ottla.AcknowledgeType.RELEASE
            consumer.acknowledge(each, kind)
        assert set(consumer.commit_sync().values()) == {None}
    return found


def groups(bootstrap: str) -> Groups:
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        described = list(admin.describe_consumer_groups(["modern"]).values())
        committed = admin.list_group_offsets("modern")["modern"]
        shares = admin.list_share_group_offsets("sharing")["sharing"]
    return Groups(
        described,
        [(each.topic, each.partition, at.offset) for each, at in committed.items()],
        [
            (each.topic, each.partition, at.start_offset, at.lag)
            for each, at in shares.items()
            if at is not None
        ],
    )


def write_in_kafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
    for future in made.values():
        future.result(60)
    fill(bootstrap, "plain")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "teller"})
    producer.init_transactions(10)
    for number in range(8):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("committed", value=b"committed" if number % 2 else b"aborted")
        producer.flush(10)
        if number % 2:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)


def write_in_ottla(bootstrap: str) -> None:
    fill(bootstrap, "returned")


def fill(bootstrap: str, topic: str) -> None:
    """Several segments, every codec, from idempotent producers."""
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        for number in range(60):
            producer.produce(
                topic,
                key=f"{codec}-{number}".encode() if number % 2 else None,
                value=number.to_bytes(2, "big") * 25_000 if number % 7 else None,
                headers=[("codec", codec.encode()), ("null", None)],
                timestamp=1_700_000_000_000 + number,
                partition=number % TOPICS[topic],
            )
        assert producer.flush(20) == 0


def read_everything(bootstrap: str) -> dict[tuple[str, str], list[Read]]:
    return {
        (topic, level): read(bootstrap, topic, TOPICS[topic], level)
        for topic in ("plain", "committed")
        for level in ("read_committed", "read_uncommitted")
    }


def read(bootstrap: str, topic: str, partitions: int, level: str) -> list[Read]:
    """All records from the beginning to the end, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": level,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[Read] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None, f"{topic} stops after {len(found)} records"
        error = message.error()
        if error is None:
            found.append(row(message))
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended += 1
    consumer.close()
    return sorted(found, key=lambda each: each[:2])


def row(message: Any) -> Read:
    headers = tuple(message.headers() or ())
    place = (message.partition(), message.offset())
    return (*place, message.key(), message.value(), headers, message.timestamp())


def leader_epochs(port: int) -> list[int]:
    from tests.apache.client import RawClient

    with RawClient(port) as client:
        asked = {"topics": [{"name": name} for name in TOPICS]}
        answer = client.ask("Metadata", 12, asked)
    return [part["leader_epoch"] for topic in answer["topics"] for part in topic["partitions"]]


def give_back(ours: Path, theirs: Path) -> None:
    """Our files in place of theirs, also our `partition.metadata` with the same topic id.

    It has a line that Kafka's has not, with the topic's configs: Kafka must not mind it.
    """
    metadata = "partition.metadata"
    assert (ours / metadata).read_text().startswith((theirs / metadata).read_text().strip())
    assert "\nconfigs: {" in (ours / metadata).read_text()
    for path in theirs.iterdir():
        path.unlink()
    for path in ours.iterdir():
        shutil.copy(path, theirs)
