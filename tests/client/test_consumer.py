"""The consumer on a live broker; the core of it on Apache Kafka too."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Consumer, OffsetAndMetadata, Producer, TopicPartition
from ottla.client import errors
from ottla.client.structs import ConsumerRecord

names = itertools.count(1)


@pytest.fixture
def produce(any_bootstrap: str) -> Iterator[Callable[..., None]]:
    """Write values to a topic, and wait until they are there."""
    with Producer(bootstrap_servers=any_bootstrap, linger_ms=0) as producer:

        def write(topic: str, values: Any, **more: Any) -> None:
            futures = [producer.send(topic, value, **more) for value in values]
            producer.flush()
            for each in futures:
                each.get(60)

        yield write


def consumer_of(bootstrap: str, *topics: str, **options: Any) -> Consumer:
    options.setdefault("auto_offset_reset", "earliest")
    return Consumer(*topics, bootstrap_servers=bootstrap, **options)


def read(consumer: Consumer, count: int, timeout_s: float = 20) -> list[ConsumerRecord]:
    """So many records, by polling."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for records in consumer.poll(200).values():
            found += records
    return found


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def test_all_that_was_written_is_read_in_order(
    any_bootstrap: str, produce: Callable[..., None], topic: str
) -> None:
    """Key, value, headers, timestamp and offset of every record arrive as they were sent."""
    produce(topic, numbers(700))
    produce(topic, [None], key=b"key", headers=[("a", b"1"), ("b", None)], timestamp_ms=123)
    with consumer_of(any_bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        records = read(consumer, 701)
        assert [each.offset for each in records] == list(range(701))
        assert [each.value for each in records[:700]] == numbers(700)
        last = records[-1]
        assert (last.key, last.value, last.timestamp) == (b"key", None, 123)
        assert last.headers == [("a", b"1"), ("b", None)]
        assert (last.topic, last.partition, last.timestamp_type) == (topic, 0, 0)
        assert (last.serialized_key_size, last.serialized_value_size) == (3, -1)
        assert consumer.position(partition) == 701
        assert consumer.lag(partition) == 0
        assert consumer.highwater(partition) == 701
        assert consumer.end_offsets([partition]) == {partition: 701}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.partitions_for_topic(topic) == {0}
        assert topic in consumer.topics()


def test_seek_sets_the_position(
    any_bootstrap: str, produce: Callable[..., None], topic: str
) -> None:
    """After a seek the next record is the one sought, also back, to the ends and by time."""
    for n in range(10):
        produce(topic, [b"%d" % n], timestamp_ms=1000 + n * 10)
    partition = TopicPartition(topic, 0)
    with consumer_of(any_bootstrap) as consumer:
        consumer.assign([partition])
        read(consumer, 10)
        consumer.seek(partition, 4)
        assert [each.offset for each in read(consumer, 6)] == [4, 5, 6, 7, 8, 9]
        consumer.seek_to_beginning()
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 10
        assert consumer.poll(50) == {}
        found = consumer.offsets_for_times({partition: 1045})[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (5, 1050)
        assert consumer.offsets_for_times({partition: 5000}) == {partition: None}
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek(TopicPartition(topic, 1), 0)


def test_iteration_and_position(
    any_bootstrap: str, produce: Callable[..., None], topic: str
) -> None:
    """While iterating, the position is the record after the one at hand; a seek takes effect at
    the next record; what an interrupted iteration left comes later."""
    produce(topic, numbers(50))
    partition = TopicPartition(topic, 0)
    with consumer_of(any_bootstrap) as consumer:
        consumer.assign([partition])
        seen = []
        for record in consumer:
            assert consumer.position(partition) == record.offset + 1
            seen.append(record.offset)
            if record.offset == 9:
                break
        assert next(consumer).offset == 10
        assert [each.offset for each in read(consumer, 5)][:5] == [11, 12, 13, 14, 15]
        consumer.seek(partition, 45)
        assert [record.offset for record in itertools.islice(consumer, 5)] == [45, 46, 47, 48, 49]
        consumer.seek(partition, 0)
        for record in consumer:
            if record.offset == 3:
                consumer.seek(partition, 48)
            assert record.offset < 4 or record.offset >= 48
            if record.offset == 49:
                break
        assert consumer.position(partition) == 50


def test_pause_and_resume(any_bootstrap: str, produce: Callable[..., None], topic: str) -> None:
    """A paused partition gives nothing, also in an iteration, and later goes on where it was."""
    produce(topic, numbers(20))
    partition = TopicPartition(topic, 0)
    with consumer_of(any_bootstrap, consumer_timeout_ms=1000) as consumer:
        consumer.assign([partition])
        first = [record.offset for record in itertools.islice(consumer, 5)]
        consumer.pause(partition)
        assert consumer.paused() == {partition}
        assert list(consumer) == []
        consumer.resume(partition)
        rest = [record.offset for record in itertools.islice(consumer, 15)]
        assert first + rest == list(range(20))


def test_commits_are_where_the_next_consumer_begins(
    any_bootstrap: str, produce: Callable[..., None], topic: str
) -> None:
    """The committed offset is the next to read, with its metadata; without one, the policy."""
    produce(topic, numbers(10))
    partition = TopicPartition(topic, 0)
    group = f"group-of-{topic}"
    with consumer_of(any_bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        assert consumer.committed(partition) is None
        read(consumer, 10)
        consumer.commit()
        assert consumer.committed(partition) == 10
        consumer.commit({partition: OffsetAndMetadata(4, "by hand")})
        found = consumer.committed(partition, metadata=True)
        assert (found.offset, found.metadata) == (4, "by hand")
        outcomes: list[Any] = []
        for offset in (5, 6, 7):
            consumer.commit_async(
                {partition: OffsetAndMetadata(offset)}, lambda o, e: outcomes.append((o, e))
            )
        consumer.commit({partition: 8})  # type: ignore[dict-item]
        assert [(o[partition].offset, e) for o, e in outcomes] == [(5, None), (6, None), (7, None)]
    with consumer_of(any_bootstrap, group_id=group) as consumer:
        consumer.assign([partition])
        assert [each.offset for each in read(consumer, 2)] == [8, 9]


def test_automatic_commits_never_run_ahead(
    any_bootstrap: str, produce: Callable[..., None], topic: str
) -> None:
    """Trap 33: only what polls returned is committed, not what was fetched ahead; on close, too;
    after a loop that raised, nothing."""
    produce(topic, numbers(100))
    partition = TopicPartition(topic, 0)
    group = f"group-of-{topic}"
    options = {"group_id": group, "auto_commit_interval_ms": 50}
    with consumer_of(any_bootstrap, **options) as consumer:
        consumer.assign([partition])
        while not consumer.poll(100, max_records=7):
            pass
        time.sleep(0.1)
        assert sum(len(each) for each in consumer.poll(1000, max_records=3).values()) == 3
        deadline = time.monotonic() + 60
        while consumer.committed(partition) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert consumer.committed(partition) == 7
    with consumer_of(any_bootstrap, **options) as consumer:
        assert consumer.committed(partition) == 10
        consumer.assign([partition])
        for record in consumer:
            if record.offset == 20:
                break

    def fail_in_the_middle() -> None:
        with consumer_of(any_bootstrap, group_id=group) as consumer:
            consumer.assign([partition])
            assert next(consumer).offset == 21
            raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        fail_in_the_middle()
    with consumer_of(any_bootstrap, group_id=group) as consumer:
        assert consumer.committed(partition) == 21


def test_the_reset_policies(any_bootstrap: str, produce: Callable[..., None], topic: str) -> None:
    """earliest, latest, and none, which tells the caller; also for an offset out of range."""
    produce(topic, numbers(5))
    partition = TopicPartition(topic, 0)
    with consumer_of(any_bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        assert consumer.position(partition) == 5
        produce(topic, [b"new"])
        assert read(consumer, 1)[0].value == b"new"
        consumer.seek(partition, 1000)
        deadline = time.monotonic() + 60
        while consumer.position(partition) == 1000 and time.monotonic() < deadline:
            consumer.poll(50)
        assert consumer.position(partition) == 6
    with consumer_of(any_bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        with pytest.raises(errors.NoOffsetForPartitionError, match="seek"):
            consumer.poll(60_000)
        consumer.seek(partition, 1000)
        with pytest.raises(errors.OffsetOutOfRangeError, match="no offset 1000"):
            consumer.poll(60_000)
        consumer.seek(partition, 5)
        assert read(consumer, 1)[0].value == b"new"


def test_an_iteration_goes_on_after_an_error(
    any_bootstrap: str, produce: Callable[..., None], topic: str
) -> None:
    """What a loop over the consumer raises ends that loop, not the next one."""
    produce(topic, numbers(3))
    with consumer_of(any_bootstrap, auto_offset_reset="none") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        with pytest.raises(errors.NoOffsetForPartitionError):
            next(consumer)
        consumer.seek(partition, 1)
        assert [record.value for record in itertools.islice(consumer, 2)] == numbers(2, 1)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression(bootstrap: str, topic: str, codec: str) -> None:
    """Batches of all codecs are opened, from the middle too."""
    with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=50) as producer:
        for n in range(500):
            producer.send(topic, b"value %d" % n)
    partition = TopicPartition(topic, 0)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([partition])
        assert [each.value for each in read(consumer, 500)] == [b"value %d" % n for n in range(500)]
        consumer.seek(partition, 123)
        assert read(consumer, 1)[0].offset == 123


def test_committed_records_only(any_bootstrap: str, topic: str) -> None:
    """read_committed leaves out aborted transactions and waits for open ones; the markers of the
    broker are never seen."""
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=any_bootstrap, transactional_id=f"tx-{topic}") as producer:
        producer.init_transactions()
        for n in range(6):
            producer.begin_transaction()
            for _ in range(3):
                producer.send(topic, b"%s %d" % (b"yes" if n % 2 == 0 else b"no", n))
            if n % 2 == 0:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"open").get(60)
        with consumer_of(any_bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign([partition])
            wanted = [b"yes %d" % n for n in (0, 0, 0, 2, 2, 2, 4, 4, 4)]
            assert [each.value for each in read(consumer, 9)] == wanted
            assert consumer.poll(200) == {}
            assert consumer.lag(partition) == 0
            producer.commit_transaction()
            assert read(consumer, 1)[0].value == b"open"
        with consumer_of(any_bootstrap) as consumer:
            consumer.assign([partition])
            assert len(read(consumer, 19)) == 19
            assert consumer.poll(100) == {}


def test_many_partitions_share_a_poll(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """No partition starves: with one full and nine small ones, all come soon."""
    make_topic(topic, 10)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(20_000):
            producer.send(topic, b"x" * 100, partition=0)
        for n in range(1, 10):
            producer.send(topic, b"small", partition=n)
    with consumer_of(bootstrap, max_poll_records=100) as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(10)])
        seen: set[int] = set()
        polls = 0
        while len(seen) < 10:
            polls += 1
            assert polls < 150
            seen |= {each.partition for each in consumer.poll(500)}


def test_fetching_ahead_is_bounded(bootstrap: str, topic: str) -> None:
    """A consumer that does not poll holds a few fetches of a partition, not the log."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(3000):
            producer.send(topic, b"x" * 1000)
    with consumer_of(bootstrap, max_partition_fetch_bytes=100_000, max_poll_records=1) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read(consumer, 1)
        time.sleep(0.3)
        state = consumer._subscription.state(TopicPartition(topic, 0))
        assert 0 < state.queued_bytes <= 1_000_000
        assert len(read(consumer, 2999)) == 2999


def test_deserializers(bootstrap: str, topic: str) -> None:
    """Functions, names and objects; one that fails names the record, and the others still come."""

    class Upper:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
            return f"{topic}:{data.decode().upper()}"

    with Producer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        for value in (b"1", b"2", b"x", b"4"):
            producer.send(topic, value, key=b"k")
    partition = TopicPartition(topic, 0)
    with consumer_of(bootstrap, value_deserializer=int, key_deserializer="str") as consumer:
        consumer.assign([partition])
        records = read(consumer, 2)
        assert [(each.key, each.value) for each in records] == [("k", 1), ("k", 2)]
        with pytest.raises(errors.SerializationError, match=r"value of offset 2 .*\n.*seek"):
            consumer.poll(60_000)
        assert consumer.position(partition) == 2
        consumer.seek(partition, 3)
        assert read(consumer, 1)[0].value == 4
    with consumer_of(bootstrap, value_deserializer=Upper()) as consumer:
        consumer.assign([partition])
        assert read(consumer, 4)[2].value == f"{topic}:X"


def test_interceptors(bootstrap: str, topic: str) -> None:
    """They see what is handed out and committed, may change it, and may fail without harm."""
    seen: list[Any] = []

    class Failing:
        def on_consume(self, records: Any) -> Any:
            raise RuntimeError("mine")

    class Counting:
        def configure(self, options: Any) -> None:
            seen.append(options["group_id"])

        def on_consume(self, records: Any) -> Any:
            return {p: [r for r in found if r.value != b"2"] for p, found in records.items()}

        def on_commit(self, offsets: Any) -> None:
            seen.append(offsets)

        def close(self) -> None:
            seen.append("closed")

    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in numbers(4):
            producer.send(topic, value)
    partition = TopicPartition(topic, 0)
    with consumer_of(
        bootstrap,
        group_id=f"g-{topic}",
        interceptors=[Failing(), Counting],
        consumer_timeout_ms=500,
    ) as consumer:
        consumer.assign([partition])
        assert [each.value for each in consumer] == [b"0", b"1", b"3"]
        consumer.seek(partition, 0)
        assert [each.value for each in read(consumer, 3)] == [b"0", b"1", b"3"]
        consumer.commit()
    assert seen[0] == f"g-{topic}"
    assert seen[1][partition].offset == 4
    assert seen[-1] == "closed"


def test_errors_say_what_to_do(bootstrap: str) -> None:
    """Wrong options, arguments and states raise errors that say what to do."""
    with pytest.raises(errors.KafkaConfigurationError, match="did you mean 'group_id'"):
        Consumer(bootstrap_servers=bootstrap, group_idd="x")
    with pytest.raises(errors.KafkaConfigurationError, match="auto_offset_reset must be"):
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="smart")
    with pytest.raises(errors.KafkaConfigurationError, match="needs a group_id"):
        Consumer(bootstrap_servers=bootstrap, group_instance_id="x")
    with pytest.raises(errors.KafkaConfigurationError, match="less than session_timeout_ms"):
        Consumer(bootstrap_servers=bootstrap, heartbeat_interval_ms=50_000)
    with pytest.raises(errors.NoBrokersAvailable, match="ottla server"):
        Consumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        with pytest.raises(errors.IllegalStateError, match="subscribe"):
            consumer.poll()
        with pytest.raises(errors.IllegalStateError, match="group_id"):
            consumer.commit()
        with pytest.raises(TypeError, match="TopicPartition"):
            consumer.assign(["orders"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="list of names"):
            consumer.subscribe("orders")
        with pytest.raises(ValueError, match="no name for a topic"):
            consumer.subscribe(["a b"])
        with pytest.raises(TypeError, match="on_partitions_revoked"):
            consumer.subscribe(["a"], listener=object())
        consumer.assign([TopicPartition("a", 0)])
        with pytest.raises(errors.IllegalStateError, match="unsubscribe"):
            consumer.subscribe(["a"])
    with pytest.raises(errors.IllegalStateError, match="closed"):
        consumer.poll()
    consumer.close()


def test_a_topic_that_is_not_there(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer says so once, what to do, and reads the topic as soon as it is there."""
    options = {"allow_auto_create_topics": False, "consumer_timeout_ms": 3000}
    with consumer_of(bootstrap, topic, **options) as consumer:
        with caplog.at_level(logging.WARNING, "ottla.client"):
            assert consumer.poll(100) == {}
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"here").get(60)
        assert next(consumer).value == b"here"
    with consumer_of(bootstrap, allow_auto_create_topics=False) as consumer:
        consumer.assign([TopicPartition(f"{topic}-not", 0)])
        with caplog.at_level(logging.WARNING, "ottla.client"):
            assert consumer.poll(700) == {}
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="topics --create"):
            consumer.end_offsets([TopicPartition(f"{topic}-not", 0)], timeout_ms=300)


def test_a_child_process_must_make_its_own(bootstrap: str, topic: str) -> None:
    """After a fork the parent's consumer refuses in the child, with advice."""
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()

        def child() -> None:
            try:
                consumer.poll(100)
            except errors.IllegalStateError as problem:
                queue.put(str(problem))
            else:
                queue.put("nothing raised")

        process = context.Process(target=child)
        process.start()
        process.join(60)
        assert "child process" in queue.get()


def test_exit_without_close_does_not_hang(bootstrap: str, topic: str) -> None:
    """A script that forgets to close its consumer ends at once."""
    script = (
        "from ottla import Consumer\n"
        f"c = Consumer({topic!r}, bootstrap_servers={bootstrap!r}, group_id='forgotten')\n"
        "c.poll(200)\nprint('end')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=20, env=dict(os.environ)
    )
    assert (done.stdout, done.returncode) == (b"end\n", 0), done.stderr
