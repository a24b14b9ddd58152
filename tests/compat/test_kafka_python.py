"""kafka-python 3, unmodified, on a live broker: produce, consume by assign, administer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 60


def consume(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[object]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    target = TopicPartition(topic, partition)
    consumer.assign([target])
    consumer.seek_to_beginning(target)
    found: list[object] = []
    while len(found) < count:
        records = consumer.poll(timeout_ms=WAIT_S * 1000).get(target, [])
        assert records, f"only {len(found)} of {count} came"
        found += records
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_in_every_compression(
    bootstrap: str, new_name: Callable[[str], str], codec: str | None
) -> None:
    """Keys, values, headers and timestamps come back as sent, whatever the compression."""
    topic = new_name(f"kafka-python-{codec}")
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20)
    futures = [
        producer.send(
            topic,
            key=b"k%d" % i,
            value=b"v%d" % i * 10,
            headers=[("h", b"%d" % i)],
            timestamp_ms=1_700_000_000_000 + i,
            partition=0,
        )
        for i in range(200)
    ]
    assert [future.get(WAIT_S).offset for future in futures] == list(range(200))
    producer.close()
    for i, record in enumerate(consume(bootstrap, topic, 200)):
        assert (record.offset, record.key, record.value) == (i, b"k%d" % i, b"v%d" % i * 10)
        assert [tuple(header) for header in record.headers] == [("h", b"%d" % i)]
        assert record.timestamp == 1_700_000_000_000 + i


def test_offsets_of_beginning_end_and_time(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """beginning_offsets, end_offsets and offsets_for_times agree with what was written."""
    topic = new_name("kafka-python-offsets")
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(20):
        producer.send(topic, b"x", partition=1, timestamp_ms=1_700_000_000_000 + i * 100)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    target = TopicPartition(topic, 1)
    assert consumer.beginning_offsets([target]) == {target: 0}
    assert consumer.end_offsets([target]) == {target: 20}
    found = consumer.offsets_for_times({target: 1_700_000_000_550})
    assert (found[target].offset, found[target].timestamp) == (6, 1_700_000_000_600)
    consumer.close()


def test_admin(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Topics are created, listed, described, configured and deleted by kafka-python's admin."""
    topic = new_name("kafka-python-admin")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "99"})])
    assert topic in admin.list_topics()
    [described] = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "'99'" in str(answer)
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
