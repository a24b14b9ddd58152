"""The producer on a live broker: ours, and Apache Kafka where a test says so."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

import kafka.future
import pytest

from ottla import KafkaProducer, Producer
from ottla.client import errors
from ottla.client.interceptors import Counting, ProducerInterceptor, ProducerRecord, TimestampHeader
from ottla.client.producer.partitioners import RoundRobinPartitioner, murmur2
from ottla.client.structs import RecordMetadata, TopicPartition
from tests.client.reading import make_topic, read_all

WAIT_S = 60


def test_a_record_and_all_it_carries_arrives(any_bootstrap: str, topic: str) -> None:
    """Key, value, headers and timestamp are read as they were sent, and the metadata is true."""
    with Producer(bootstrap_servers=any_bootstrap) as producer:
        sent = producer.send(
            topic, b"value", b"key", [("a", b"1"), ("b", None), ("a", b"")], timestamp_ms=1234567
        )
        metadata = sent.get(WAIT_S)
    (record,) = read_all(any_bootstrap, topic)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1234567)
    assert record.headers == [("a", b"1"), ("b", None), ("a", b"")]
    assert metadata[:5] == (topic, 0, TopicPartition(topic, 0), 0, 1234567)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)
    assert metadata.serialized_header_size > 0


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_others(any_bootstrap: str, topic: str, codec: str | None) -> None:
    """Thousands of records in batches of each codec come out whole and in order."""
    values = [b"%d " % index * 20 for index in range(3000)]
    with Producer(
        bootstrap_servers=any_bootstrap, compression_type=codec, batch_size=20_000
    ) as producer:
        futures = [producer.send(topic, value) for value in values]
    assert [future.get(0).offset for future in futures] == list(range(3000))
    assert [record.value for record in read_all(any_bootstrap, topic)] == values


@pytest.mark.parametrize("acks", [0, 1, "all", -1])
def test_every_kind_of_acknowledgement(any_bootstrap: str, topic: str, acks: Any) -> None:
    """With acks=0 nobody says where the record is; with the others the offset is known."""
    make_topic(any_bootstrap, topic)
    with Producer(bootstrap_servers=any_bootstrap, acks=acks) as producer:
        offset = producer.send(topic, b"x").get(WAIT_S).offset
    assert offset == (-1 if acks == 0 else 0)
    deadline = time.monotonic() + WAIT_S
    while not read_all(any_bootstrap, topic) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [record.value for record in read_all(any_bootstrap, topic)] == [b"x"]


def test_keys_choose_partitions_as_java_does(bootstrap: str, topic: str) -> None:
    """The partition of a key is murmur2 of it, modulo the number of partitions."""
    make_topic(bootstrap, topic, partitions=7)
    with Producer(bootstrap_servers=bootstrap, key_serializer="str") as producer:
        keys = [f"key-{index}" for index in range(100)]
        found = [producer.send(topic, b"", key) for key in keys]
        assert [future.get(WAIT_S).partition for future in found] == [
            murmur2(key.encode()) % 7 for key in keys
        ]
        assert (
            producer.send(topic, b"", "foobar").get(WAIT_S).partition
            == (-790332482 & 2**31 - 1) % 7
        )
        assert producer.partitions_for(topic) == set(range(7))


def test_without_a_key_a_batch_is_filled_before_the_next_partition(
    bootstrap: str, topic: str
) -> None:
    """Sticky: few changes of partition, and yet all partitions in the long run."""
    make_topic(bootstrap, topic, partitions=4)
    with Producer(bootstrap_servers=bootstrap, batch_size=2000, linger_ms=100) as producer:
        futures = [producer.send(topic, b"x" * 100) for _ in range(2000)]
        producer.flush()
        partitions = [future.get(0).partition for future in futures]
    changes = sum(a != b for a, b in itertools.pairwise(partitions))
    assert set(partitions) == {0, 1, 2, 3}
    assert changes < 2000 / 10


def test_round_robin_and_a_function_choose_partitions(bootstrap: str, topic: str) -> None:
    """Round-robin takes the next partition each time; a function may decide by the key."""
    make_topic(bootstrap, topic, partitions=3)
    with Producer(bootstrap_servers=bootstrap, partitioner=RoundRobinPartitioner()) as producer:
        found = [producer.send(topic, b"") for _ in range(9)]
        partitions = [future.get(WAIT_S).partition for future in found]
    assert partitions == [(partitions[0] + index) % 3 for index in range(9)]
    with Producer(
        bootstrap_servers=bootstrap, partitioner=lambda key, all_, available: all_[-1]
    ) as producer:
        assert producer.send(topic, b"", b"k").get(WAIT_S).partition == 2


def test_partitioners_of_kafka_python_work(bootstrap: str, topic: str) -> None:
    """An object with its partition() method is asked as kafka-python asks it."""
    from kafka.partitioner.default import DefaultPartitioner

    make_topic(bootstrap, topic, partitions=5)
    with KafkaProducer(bootstrap_servers=bootstrap, partitioner=DefaultPartitioner()) as producer:
        assert producer.send(topic, b"", b"foobar").get(WAIT_S).partition == murmur2(b"foobar") % 5
        producer.send(topic, b"").get(WAIT_S)


def test_callbacks_get_success_and_failure(bootstrap: str, topic: str) -> None:
    """on_delivery and kafka-python's callbacks; what they raise breaks nothing."""
    received: list[Any] = []
    with Producer(bootstrap_servers=bootstrap, max_request_size=1000) as producer:
        producer.send(topic, b"x", on_delivery=lambda m, e: received.append((m, e))).get(WAIT_S)
        future = producer.send(topic, b"x", on_delivery=lambda m, e: 1 / 0)
        future.add_callback(received.append).add_errback(received.append)
        future.add_both(lambda tag, outcome: received.append(tag), "both")
        producer.flush()
        large = producer.send(topic, b"x" * 2000, on_delivery=lambda m, e: received.append((m, e)))
    (first, error), second, both, (nothing, refusal) = received
    assert (first.offset, error, second.offset, both) == (0, None, 1, "both")
    assert nothing is None
    assert isinstance(refusal, errors.MessageSizeTooLargeError)
    assert (large.failed(), large.retriable(), large.is_done) == (True, False, True)
    with pytest.raises(errors.MessageSizeTooLargeError, match="max_request_size=1000"):
        large.get()
    assert future.succeeded()
    assert future.value is not None
    assert future.exception is None


def test_another_future_can_be_chained(bootstrap: str, topic: str) -> None:
    """kafka-python's `chain`, to its futures and to those of the standard library."""
    with Producer(bootstrap_servers=bootstrap, max_request_size=1000) as producer:
        sent = producer.send(topic, b"x")
        standard: Future[Any] = Future()
        theirs = kafka.future.Future()
        assert sent.chain(standard).chain(theirs) is sent
        assert standard.result(WAIT_S) == theirs.value == sent.get(WAIT_S)
        refused: Future[Any] = Future()
        producer.send(topic, b"x" * 2000).chain(refused)
        with pytest.raises(errors.MessageSizeTooLargeError):
            refused.result(WAIT_S)


def test_interceptors_run_in_order_and_may_fail(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """on_send before serializing; on_acknowledgement before the callback, in its thread."""
    order: list[Any] = []

    class Upper(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value.upper())

        def on_acknowledgement(
            self, metadata: RecordMetadata | None, error: Exception | None
        ) -> None:
            order.append(("ack", threading.current_thread() is not threading.main_thread()))

    class Broken(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("broken")

        on_acknowledgement = on_send  # type: ignore[assignment]

    with Producer(
        bootstrap_servers=bootstrap,
        value_serializer="str",
        interceptors=[Broken(), Upper(), TimestampHeader("at"), Counting()],
    ) as producer:
        producer.send(topic, "value", on_delivery=lambda m, e: order.append("callback")).get(WAIT_S)
        producer.flush()
        time.sleep(0.05)
    (record,) = read_all(bootstrap, topic)
    assert record.value == b"VALUE"
    assert record.headers[0][0] == "at"
    assert abs(int(record.headers[0][1] or 0) - time.time() * 1000) < 60_000
    assert order == [("ack", True), "callback"]
    assert "1 succeeded, 0 failed" in capsys.readouterr().out


def test_interceptors_of_every_shape(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An object with one method is enough; one that forgets to return the record changes nothing;
    all get a record that could not even be serialized."""

    class OnlySend:
        def on_send(self, record: ProducerRecord) -> None:
            """Forgets to return it."""

    class OnlyAcknowledged:
        received: list[Any] = []  # noqa: RUF012

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Any) -> None:
            self.received.append(type(error))

    counting = Counting(io.StringIO())
    with Producer(
        bootstrap_servers=bootstrap,
        value_serializer="json",
        interceptors=[OnlySend(), OnlyAcknowledged, counting],
    ) as producer:
        producer.send(topic, 1).get(WAIT_S)
        with pytest.raises(errors.SerializationError):
            producer.send(topic, object())
    assert OnlyAcknowledged.received == [type(None), errors.SerializationError]
    assert (counting.succeeded, counting.failed) == (1, 1)
    assert "OnlySend.on_send gave nothing back" in caplog.text
    assert "failed" not in caplog.text
    assert [record.value for record in read_all(bootstrap, topic)] == [b"1"]


@pytest.mark.parametrize(
    ("serializer", "value", "expected"),
    [
        ("str", "žluť", "žluť".encode()),
        ("int", 300, bytes(6) + b"\x01\x2c"),
        ("float", 1.5, bytes.fromhex("3ff8000000000000")),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("org.apache.kafka.common.serialization.StringSerializer", "a", b"a"),
        (lambda value: value.encode(), "x", b"x"),
        (None, bytearray(b"x"), b"x"),
        ("json", None, None),
    ],
)
def test_serializers(
    bootstrap: str, topic: str, serializer: Any, value: Any, expected: bytes | None
) -> None:
    """Each form of serializer gives the bytes that are stored; None stays None."""
    with Producer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, value, b"k").get(WAIT_S)
    assert [record.value for record in read_all(bootstrap, topic)] == [expected]


def test_a_value_that_is_not_bytes_says_what_to_do(bootstrap: str, topic: str) -> None:
    """Without a serializer a string is refused at once, with advice; a failing serializer too."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(TypeError, match="value_serializer"):
            producer.send(topic, "text")
        with pytest.raises(TypeError, match="key_serializer"):
            producer.send(topic, b"", key=5)
        with pytest.raises(TypeError, match="topic must be a string"):
            producer.send(5, b"")  # type: ignore[arg-type]
    with (
        Producer(bootstrap_servers=bootstrap, value_serializer="str") as producer,
        pytest.raises(errors.SerializationError, match="value_serializer failed on int 5"),
    ):
        producer.send(topic, 5)


def test_a_partition_or_topic_that_is_not_there(bootstrap: str, topic: str) -> None:
    """Wrong partitions, names and topics are named together with what would be right."""
    make_topic(bootstrap, topic, partitions=2)
    with Producer(bootstrap_servers=bootstrap, allow_auto_create_topics=False) as producer:
        with pytest.raises(ValueError, match="no partition 2: it has 2, from 0 to 1"):
            producer.send(topic, b"", partition=2)
        with pytest.raises(errors.InvalidTopicError, match="no name for a topic"):
            producer.send("not a name", b"")
        producer.config["max_block_ms"] = 300
        with pytest.raises((errors.UnknownTopicOrPartitionError, errors.KafkaTimeoutError)):
            producer.send(f"{topic}-missing", b"")


def test_a_batch_too_large_for_the_topic_is_split(any_bootstrap: str, topic: str) -> None:
    """A topic takes less than our batch: it is halved until it fits, in order, futures and all."""
    make_topic(any_bootstrap, topic, max_message_bytes=2000)
    with Producer(bootstrap_servers=any_bootstrap, batch_size=30_000, linger_ms=200) as producer:
        offsets: list[int] = []
        futures = [
            producer.send(
                topic,
                b"%d" % index,
                on_delivery=lambda m, e: offsets.append(m.offset if m else -1),
            )
            for index in range(1000)
        ]
        producer.flush()
        assert [future.get(WAIT_S).offset for future in futures] == list(range(1000))
        assert sorted(offsets) == list(range(1000))
        assert producer.metrics()["producer-metrics"]["splits"] > 0
        alone = producer.send(topic, b"x" * 3000)
        with pytest.raises(errors.MessageSizeTooLargeError):
            alone.get(WAIT_S)
        assert producer.send(topic, b"after").get(WAIT_S).offset == 1000
    values = [record.value for record in read_all(any_bootstrap, topic)]
    assert values == [b"%d" % index for index in range(1000)] + [b"after"]


def test_many_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    """Each thread's records of one partition stay in its order, and none is lost."""
    make_topic(bootstrap, topic, partitions=3)
    with Producer(bootstrap_servers=bootstrap, batch_size=5000) as producer:

        def work(number: int) -> None:
            for index in range(2000):
                producer.send(topic, b"%d" % index, b"%d" % number, partition=number % 3)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    seen = read_all(bootstrap, topic)
    for number in range(6):
        mine = [int(record.value or b"") for record in seen if record.key == b"%d" % number]
        assert mine == list(range(2000))


def test_a_full_buffer_makes_send_wait_and_then_give_up(bootstrap: str, topic: str) -> None:
    """More than buffer_memory waits for a release; none in max_block_ms is an error with advice."""
    with Producer(
        bootstrap_servers=bootstrap, buffer_memory=40_000, batch_size=4000, max_block_ms=5000
    ) as producer:
        for _ in range(300):
            producer.send(topic, b"x" * 1000)
        producer.flush()
        assert producer.metrics()["producer-metrics"]["buffer-bytes-used"] == 0
        producer._client.loop.call_soon(time.sleep, 1.0)
        producer.config["max_block_ms"] = 100
        with pytest.raises(errors.KafkaTimeoutError, match="buffer_memory=40000"):
            deque((producer.send(topic, b"x" * 1000) for _ in range(100)), maxlen=0)


def test_a_batch_that_others_filled_is_sent_for_its_memory(bootstrap: str, topic: str) -> None:
    """One thread begins a batch, another fills it first, and all memory is in it."""
    filled: list[Any] = []
    with Producer(bootstrap_servers=bootstrap, buffer_memory=4096, max_block_ms=20_000) as producer:
        producer.partitions_for(topic)
        add_reserved = producer._add_reserved

        def add_and_fill(*arguments: Any) -> bool:
            begun = add_reserved(*arguments)
            if begun and not filled:
                other = threading.Thread(
                    target=lambda: filled.append(producer.send(topic, b"b" * 3000))
                )
                other.start()
                other.join(WAIT_S)
            return begun

        producer._add_reserved = add_and_fill  # type: ignore[method-assign]
        last = producer.send(topic, b"a" * 3000)
        assert (filled[0].get(WAIT_S).offset, last.get(WAIT_S).offset) == (0, 1)


def test_without_lingering_nothing_is_left_behind(bootstrap: str, topic: str) -> None:
    """linger_ms=0: each record goes by itself, though nobody waits or flushes."""
    for turn in range(10):
        with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            futures = [producer.send(f"{topic}-{turn}", b"") for _ in range(3)]
            deadline = time.monotonic() + WAIT_S
            while not all(future.is_done for future in futures):
                assert time.monotonic() < deadline, "a record was never sent"
                time.sleep(0.002)


def test_waiting_for_one_record_does_not_linger(bootstrap: str, topic: str) -> None:
    """get() and flush() send at once, however long linger_ms is."""
    with Producer(
        bootstrap_servers=bootstrap, linger_ms=600_000, delivery_timeout_ms=1_200_000
    ) as producer:
        producer.send(topic, b"").get(WAIT_S)
        producer.send(topic, b"")
        producer.flush(WAIT_S)


def test_a_closed_producer_refuses_and_close_flushes(bootstrap: str, topic: str) -> None:
    """close() sends what waits; afterwards send() is refused; close(0) fails what waits."""
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=10_000)
    future = producer.send(topic, b"")
    producer.close()
    producer.close()
    assert future.get(0).offset == 0
    with pytest.raises(errors.IllegalStateError, match="closed"):
        producer.send(topic, b"")
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=10_000)
    dropped = producer.send(topic, b"")
    producer.close(0)
    with pytest.raises(errors.KafkaError, match="closed before the record was sent"):
        dropped.get(1)


def test_waiting_inside_a_callback_is_refused_not_a_deadlock(bootstrap: str, topic: str) -> None:
    """A callback that calls what waits gets an error that says so."""
    problems: list[BaseException] = []
    with Producer(bootstrap_servers=bootstrap) as producer:

        def callback(metadata: RecordMetadata | None, error: Exception | None) -> None:
            producer.send(topic, b"from a callback")
            try:
                producer.send(f"{topic}-other", b"")
            except errors.IllegalStateError as problem:
                problems.append(problem)

        producer.send(topic, b"", on_delivery=callback).get(WAIT_S)
        producer.flush()
        time.sleep(0.1)
        producer.flush()
    assert "may not wait" in str(problems[0])
    assert len(read_all(bootstrap, topic)) == 2
