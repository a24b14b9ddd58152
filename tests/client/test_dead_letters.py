"""Dead letters of share groups as Kafka 4.4 writes them (KIP-1191), on a live broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla import AcknowledgeType, ShareConsumer
from ottla.client.admin import OffsetSpec, UpdateFeatureType
from ottla.client.consumer import Consumer
from ottla.client.structs import ConsumerRecord
from tests.client.test_share_consumer import SETTINGS, polled, produce
from tests.live import Server
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("python-shares")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker whose operator has raised share.version to 2."""
    settings = {**SETTINGS, "group.share.delivery.count.limit": 2}
    with Server(tmp_path_factory.mktemp("dead-letters") / "data", settings=settings) as server:
        with ottla.Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.update_features({"share.version": (2, UpdateFeatureType.UPGRADE)})
        yield server


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


def group_with(bootstrap: str, name: str, **configs: str) -> None:
    """A topic of two partitions, and a group of the same name that begins at its first record."""
    given = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
    given |= {
        f"errors.deadletterqueue.{each.replace('_', '.')}": text for each, text in configs.items()
    }
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(name, 2, 1)])
        admin.alter_configs([ottla.ConfigResource("group", name, given)])


def letters_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    given = {"errors.deadletterqueue.group.enable": "true"}
    given |= {each.replace("_", "."): text for each, text in configs.items()}
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(name, partitions, 1, topic_configs=given)])


def refuse(bootstrap: str, name: str, count: int, kind: AcknowledgeType, times: int = 1) -> None:
    """Say this of all records, so often, and see that none comes again."""
    with ShareConsumer[Any, bytes](
        name,
        bootstrap_servers=bootstrap,
        group_id=name,
        share_acknowledgement_mode="explicit",
    ) as reader:
        for _ in range(times):
            for record in polled(reader, count):
                reader.acknowledge(record, kind)
            assert set(reader.commit_sync().values()) == {None}
        assert reader.poll(200) == []


def letters(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    found: list[ConsumerRecord] = []

    def enough() -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend(records)
        return len(found) >= count

    eventually(enough)
    consumer.close()
    return found


def lag(bootstrap: str, group: str) -> list[int | None]:
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_share_group_offsets(group)[group].values()
        return [each.lag if each is not None else None for each in offsets]


def test_rejected_records_become_letters(bootstrap: str) -> None:
    """A letter says whence and why, in the partition of the source's number, without a copy."""
    group_with(bootstrap, "rejected", topic_name="dlq.rejected")
    letters_topic(bootstrap, "dlq.rejected", 2)
    produce(bootstrap, "rejected", 6)
    refuse(bootstrap, "rejected", 6, AcknowledgeType.REJECT)
    found = letters(bootstrap, "dlq.rejected", 6)
    assert len(found) == 6
    for each in found:
        assert (each.key, each.value) == (None, None)
        headers = dict(each.headers)
        assert headers == {
            "__dlq.errors.topic": b"rejected",
            "__dlq.errors.partition": b"%d" % each.partition,
            "__dlq.errors.offset": headers["__dlq.errors.offset"],
            "__dlq.errors.group": b"rejected",
            "__dlq.errors.delivery.count": b"1",
            "__dlq.errors.message": b"Offset rejected by client.",
        }
    places = {(each.partition, dict(each.headers)["__dlq.errors.offset"]) for each in found}
    assert places == {(number, b"%d" % offset) for number in (0, 1) for offset in range(3)}
    eventually(lambda: lag(bootstrap, "rejected") == [0, 0])


def test_copies_of_what_was_delivered_too_often(bootstrap: str) -> None:
    """After the last attempt the letter has key and value, if the group wants it so."""
    group_with(bootstrap, "copied", topic_name="dlq.copied", copy_record_enable="true")
    letters_topic(bootstrap, "dlq.copied", max_message_bytes="1000")
    with ottla.Producer(bootstrap_servers=bootstrap, compression_type="gzip") as producer:
        for number in range(20):
            value = b"v%d" % number + b"." * (3000 if number == 7 else 100)
            producer.send("copied", value, b"k", partition=0)
    refuse(bootstrap, "copied", 20, AcknowledgeType.RELEASE, times=2)
    found = letters(bootstrap, "dlq.copied", 20)
    by_offset = {int(dict(each.headers)["__dlq.errors.offset"] or b""): each for each in found}
    for offset, each in by_offset.items():
        headers = dict(each.headers)
        assert headers["__dlq.errors.delivery.count"] == b"2"
        assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
        if offset == 7:  # too large for that topic with its copy
            assert each.value is None
        else:
            assert (each.key, each.value) == (b"k", b"v%d" % offset + b"." * 100)
    assert set(by_offset) == set(range(20))


@pytest.mark.parametrize(
    ("name", "topic", "reason"),
    [
        ("refusing", "dlq.nowhere", "DLQ topic does not exist and auto create is disabled"),
        ("prefixed", "letters", "does not comply with the DLQ topic prefix"),
        ("internal", "__letters", "cannot start with __"),
        ("unwilling", "dlq.plain", "DLQ is not enabled on configured DLQ topic"),
    ],
)
def test_a_topic_that_takes_no_letters(server: Server, name: str, topic: str, reason: str) -> None:
    """The records are given up without letters, the log says why, and the group goes on."""
    bootstrap = server.bootstrap
    group_with(bootstrap, name, topic_name=topic)
    if name == "unwilling":
        with ottla.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(topic, 1, 1)])
    produce(bootstrap, name, 2)
    refuse(bootstrap, name, 2, AcknowledgeType.REJECT)
    eventually(lambda: lag(bootstrap, name) == [0, 0])
    assert reason in server.errors()


def test_letters_wait_for_their_topic(bootstrap: str) -> None:
    """With auto creation the topic is made; its configs say that it is one of letters."""
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        name = "errors.deadletterqueue.auto.create.topics.enable"
        admin.alter_configs([ottla.ConfigResource("broker", "", {name: "true"})])
    group_with(bootstrap, "made", topic_name="dlq.made")
    produce(bootstrap, "made", 2)
    refuse(bootstrap, "made", 2, AcknowledgeType.REJECT)
    assert len(letters(bootstrap, "dlq.made", 2)) == 2
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        configs = admin.describe_configs([ottla.ConfigResource("topic", "dlq.made")])
        assert "errors.deadletterqueue.group.enable" in str(configs)
        others = admin.describe_configs([ottla.ConfigResource("topic", "made")])
        assert "errors.deadletterqueue" not in str(others)  # as in Kafka 4.3
        admin.alter_configs([ottla.ConfigResource("broker", "", {name: "false"})])


def test_off_by_default(tmp_path: Path) -> None:
    """With share.version 1, as in a new cluster, records are given up as in Kafka 4.3."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        group_with(server.bootstrap, "off", topic_name="dlq.off")
        letters_topic(server.bootstrap, "dlq.off")
        produce(server.bootstrap, "off", 2)
        refuse(server.bootstrap, "off", 2, AcknowledgeType.REJECT)
        assert lag(server.bootstrap, "off") == [0, 0]
        with ottla.Admin(bootstrap_servers=server.bootstrap) as admin:
            place = ottla.TopicPartition("dlq.off", 0)
            ends = admin.list_partition_offsets({place: OffsetSpec.LATEST})
            assert ends[place].offset == 0
            # What was given up before is no letter; what is given up from now on is.
            admin.update_features({"share.version": 2})
        produce(server.bootstrap, "off", 2)
        refuse(server.bootstrap, "off", 2, AcknowledgeType.REJECT)
        found = letters(server.bootstrap, "dlq.off", 2)
        assert [dict(each.headers)["__dlq.errors.offset"] for each in found] == [b"1", b"1"]
