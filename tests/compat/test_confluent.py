"""confluent-kafka (librdkafka), unmodified, on a live broker: produce, consume, administer."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck
import pytest
from confluent_kafka import admin as cka

from tests.compat.conftest import LARGE_VALUE_BYTES

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 60.0


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    topic = cka.NewTopic(name, partitions, 1, config=config)
    client.create_topics([topic])[name].result(WAIT_S)


def produce(bootstrap: str, topic: str, records: list[dict[str, object]], **config: object) -> None:
    failures: list[object] = []
    producer = ck.Producer({"bootstrap.servers": bootstrap, **config})
    for record in records:
        producer.produce(topic, on_delivery=lambda e, _: e and failures.append(e), **record)
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume(
    bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **config: object
) -> list[ck.Message]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-assign",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **config,
        }
    )
    try:
        consumer.assign([ck.TopicPartition(topic, partition, offset)])
        found: list[ck.Message] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), WAIT_S)
            assert messages, f"only {len(found)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
            found += messages
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_in_every_compression(
    bootstrap: str, new_name: Callable[[str], str], codec: str
) -> None:
    """Keys, values, headers and timestamps come back as sent, whatever the compression."""
    topic = new_name(f"confluent-{codec}")
    make_topic(bootstrap, topic)
    records = [
        {
            "key": f"key-{i}".encode(),
            "value": f"value-{i}".encode() * 20,
            "headers": [("number", str(i).encode()), ("empty", b""), ("none", None)],
            "timestamp": 1_700_000_000_000 + i,
        }
        for i in range(500)
    ]
    produce(bootstrap, topic, records, **{"compression.type": codec})
    for i, message in enumerate(consume(bootstrap, topic, 500)):
        assert message.offset() == i
        assert message.key() == records[i]["key"]
        assert message.value() == records[i]["value"]
        assert message.headers() == records[i]["headers"]
        assert message.timestamp() == (ck.TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + i)


def test_null_keys_and_values(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Null is not empty: both survive, in key and in value."""
    topic = new_name("confluent-null")
    make_topic(bootstrap, topic)
    pairs = [(None, b"v"), (b"k", None), (b"", b""), (None, None)]
    produce(bootstrap, topic, [{"key": key, "value": value} for key, value in pairs])
    assert [(m.key(), m.value()) for m in consume(bootstrap, topic, 4)] == pairs


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acks(bootstrap: str, new_name: Callable[[str], str], acks: str) -> None:
    """Records arrive in order with acks 0, 1 and all."""
    topic = new_name(f"confluent-acks-{acks}")
    make_topic(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(1000)], acks=acks)
    assert [m.value() for m in consume(bootstrap, topic, 1000)] == [b"%d" % i for i in range(1000)]


def test_large_message(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """A record of megabytes passes where limits allow, and is read whatever the fetch size."""
    topic = new_name("confluent-large")
    make_topic(bootstrap, topic)
    value = bytes(range(256)) * (LARGE_VALUE_BYTES // 256)
    produce(bootstrap, topic, [{"value": value}], **{"message.max.bytes": 9_000_000})
    [message] = consume(bootstrap, topic, 1, **{"max.partition.fetch.bytes": 1000})
    assert message.value() == value


def test_too_large_message_is_refused(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Over max.message.bytes the producer learns MSG_SIZE_TOO_LARGE and the log stays empty."""
    topic = new_name("confluent-too-large")
    make_topic(bootstrap, topic, **{"max.message.bytes": "1000"})
    errors: list[ck.KafkaError] = []
    producer = ck.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in errors] == [ck.KafkaError.MSG_SIZE_TOO_LARGE]
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), WAIT_S) == (0, 0)
    consumer.close()


def test_auto_creation_by_the_first_produce(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Producing to a topic nobody made creates it, and the first record is not lost."""
    topic = new_name("confluent-auto")
    produce(bootstrap, topic, [{"value": b"first", "partition": 0}])
    assert consume(bootstrap, topic, 1)[0].value() == b"first"


def test_offsets_by_time_and_watermarks(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """offsets_for_times finds the first record at or after a time, also in compressed batches."""
    topic = new_name("confluent-times")
    make_topic(bootstrap, topic)
    base = 1_700_000_000_000
    records = [{"value": b"x", "timestamp": base + i * 10} for i in range(100)]
    produce(bootstrap, topic, records, **{"compression.type": "lz4", "linger.ms": 50})
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    partition = ck.TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, WAIT_S) == (0, 100)
    for asked, expected in [(base, 0), (base + 451, 46), (base + 990, 99), (base + 991, -1)]:
        [found] = consumer.offsets_for_times([ck.TopicPartition(topic, 0, asked)], WAIT_S)
        assert found.offset == expected, asked
    consumer.close()


def test_offset_out_of_range_is_said(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Reading past the end with auto.offset.reset=error names the fault."""
    topic = new_name("confluent-range")
    make_topic(bootstrap, topic)
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.assign([ck.TopicPartition(topic, 0, 42)])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error().code() == ck.KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_admin_topics_partitions_configs_records(
    bootstrap: str, new_name: Callable[[str], str]
) -> None:
    """The admin client creates, lists, grows, configures, trims and deletes topics."""
    topic = new_name("confluent-admin")
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    make_topic(bootstrap, topic, 2, **{"retention.ms": "123456"})
    client.create_partitions([cka.NewPartitions(topic, 5)])[topic].result(WAIT_S)
    assert len(client.list_topics(topic, WAIT_S).topics[topic].partitions) == 5

    resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic)
    configs = client.describe_configs([resource])[resource].result(WAIT_S)
    assert configs["retention.ms"].value == "123456"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    change = cka.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=cka.AlterConfigOpType.SET
    )
    resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic, incremental_configs=[change])
    client.incremental_alter_configs([resource])[resource].result(WAIT_S)
    configs = client.describe_configs([resource])[resource].result(WAIT_S)
    assert configs["cleanup.policy"].value == "compact"
    assert configs["retention.ms"].value == "123456"

    produce(bootstrap, topic, [{"key": b"k", "value": b"v", "partition": 3} for _ in range(10)])
    trim = ck.TopicPartition(topic, 3, 4)
    with pytest.raises(ck.KafkaException) as raised:
        client.delete_records([trim])[trim].result(WAIT_S)
    assert raised.value.args[0].code() == ck.KafkaError.POLICY_VIOLATION

    client.delete_topics([topic])[topic].result(WAIT_S)
    assert topic not in client.list_topics(timeout=WAIT_S).topics


def test_delete_records_moves_the_log_start(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """After DeleteRecords the low watermark is where it was asked to be."""
    topic = new_name("confluent-trim")
    make_topic(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(10)])
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    trim = ck.TopicPartition(topic, 0, 4)
    assert client.delete_records([trim])[trim].result(WAIT_S).low_watermark == 4
    assert consume(bootstrap, topic, 1, offset=4)[0].value() == b"4"
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), WAIT_S) == (4, 10)
    consumer.close()


def test_admin_errors_are_kafkas(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """A topic made twice, a bad name, a bad config, an unknown topic: each has its own error."""
    topic = new_name("confluent-errors")
    make_topic(bootstrap, topic)
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    wrong = {
        topic: (cka.NewTopic(topic, 1, 1), ck.KafkaError.TOPIC_ALREADY_EXISTS),
        "bad name!": (cka.NewTopic("bad name!", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        "bad-config": (
            cka.NewTopic("bad-config", 1, 1, config={"no.such": "1"}),
            ck.KafkaError.INVALID_CONFIG,
        ),
        "bad-factor": (cka.NewTopic("bad-factor", 1, 3), ck.KafkaError.INVALID_REPLICATION_FACTOR),
    }
    for name, future in client.create_topics([new for new, _ in wrong.values()]).items():
        with pytest.raises(ck.KafkaException) as raised:
            future.result(WAIT_S)
        assert raised.value.args[0].code() == wrong[name][1], name
    with pytest.raises(ck.KafkaException) as raised:
        client.delete_topics(["never-was"])["never-was"].result(WAIT_S)
    assert raised.value.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_cluster(bootstrap: str) -> None:
    """The cluster describes itself: one node, which is the controller, at the address we used."""
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    cluster = client.describe_cluster().result(WAIT_S)
    assert cluster.cluster_id
    assert cluster.controller.id == cluster.nodes[0].id
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == bootstrap
