"""`spark.read.format("ottla")` against a live broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ottla import Admin, Producer, TopicPartition
from ottla.testing import Broker
from ottla.testing import broker as start_broker

from .helpers import make_topic, plain_read, produce, read, rows_of

# A fetch at the log's end is held for longer than any read takes, and longer than it may.
HELD = {"kafka_fetch_max_wait_ms": "500000", "kafka_request_timeout_ms": "600000"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def mixed(broker: Broker) -> str:
    """A topic with every compression, headers, and keys and values that are null or empty."""
    name = "source-mixed"
    make_topic(broker, name)
    for codec in CODECS:
        values = [b"%s %d" % (codec.encode(), number) for number in range(200)]
        options = {} if codec == "none" else {"compression_type": codec}
        produce(broker, name, [None, b"", *values], **options)
    return name


def test_the_columns_are_those_of_sparks_connector(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    """Nobody registered the source: Spark finds it, with the names and types of its own."""
    make_topic(broker, topic)
    frame = read(spark, broker, topic, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert frame.collect() == []


def test_a_batch_is_what_a_consumer_reads(spark: SparkSession, broker: Broker, mixed: str) -> None:
    """Every compression, headers, null and empty keys and values: all rows equal."""
    found = rows_of(read(spark, broker, mixed, includeHeaders=True))
    assert found == plain_read(broker, mixed)
    assert len(found) == len(CODECS) * 202


def test_columns_are_left_out(spark: SparkSession, broker: Broker, mixed: str) -> None:
    """`columns` gives these alone, in this order, with the same content."""
    frame = read(spark, broker, mixed, columns="offset,value,headers")
    assert frame.columns == ["offset", "value", "headers"]
    plain = plain_read(broker, mixed)
    assert sorted((row.offset, bytes(row.value or b"")) for row in frame.collect()) == sorted(
        (each[4], each[1] or b"") for each in plain
    )
    assert frame.where("headers is not null").count() == sum(each[7] is not None for each in plain)


def test_stretches_by_offset(spark: SparkSession, broker: Broker, mixed: str) -> None:
    """startingOffsets and endingOffsets cut exactly there, inside of batches too; -1 and -2."""
    plain = plain_read(broker, mixed)
    ends = {p: max(row[4] for row in plain if row[3] == p) + 1 for p in range(4)}
    start = {0: 7, 1: -2, 2: ends[2] - 3, 3: 0}
    end = {0: 11, 1: 5, 2: -1, 3: 0}
    found = rows_of(
        read(
            spark, broker, mixed, includeHeaders=True,
            startingOffsets=f'{{"{mixed}": {json_of(start)}}}',
            endingOffsets=f'{{"{mixed}": {json_of(end)}}}',
        )
    )  # fmt: skip
    low, high = {**start, 1: 0}, {**end, 2: ends[2]}
    assert found == [row for row in plain if low[row[3]] <= row[4] < high[row[3]]]
    assert [sum(row[3] == p for row in found) for p in range(4)] == [4, 5, 3, 0]


def json_of(offsets: dict[int, int]) -> str:
    return "{" + ", ".join(f'"{each}": {offset}' for each, offset in offsets.items()) + "}"


def test_partitions_by_name_and_topics_by_pattern(
    spark: SparkSession, broker: Broker, mixed: str, topic: str
) -> None:
    """`assign` reads these partitions; `subscribePattern` all topics that match."""
    plain = plain_read(broker, mixed)
    found = read(spark, broker, None, assign=f'{{"{mixed}": [1, 3]}}', includeHeaders=True)
    assert rows_of(found) == [row for row in plain if row[3] in (1, 3)]
    produce(broker, f"{topic}-a", [b"1", b"2"])
    produce(broker, f"{topic}-b", [b"3"])
    found = read(spark, broker, None, subscribePattern=f"{topic}-[ab]")
    assert sorted(bytes(row.value) for row in found.collect()) == [b"1", b"2", b"3"]


def test_stretches_by_time(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Times mean the first record at or after them; the strategy decides where there is none."""
    make_topic(broker, topic, 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000 + number)
        producer.send(topic, b"early", partition=1, timestamp_ms=500)

    def values(**options: object) -> list[bytes]:
        found = read(spark, broker, topic, **options).orderBy("partition", "offset").collect()
        return [bytes(row.value) for row in found]

    numbers = [b"%d" % number for number in range(20)]
    assert values(endingTimestamp=1_010) == [*numbers[:10], b"early"]
    with pytest.raises(Exception, match=r"(?s)nothing is that late in .*-1\n.*TimestampStrategy"):
        values(startingTimestamp=1_005)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(startingTimestamp=1_005, **latest) == numbers[5:]
    times = f'{{"{topic}": {{"0": 1018, "1": 0}}}}'
    assert values(startingOffsetsByTimestamp=times) == [b"18", b"19", b"early"]


def test_as_many_tasks_as_wished_for(spark: SparkSession, broker: Broker, mixed: str) -> None:
    """One task for each partition, more with minPartitions or maxRecordsPerPartition; same rows."""
    plain = plain_read(broker, mixed)
    for options, least in ({}, 4), ({"minPartitions": 9}, 8), ({"maxRecordsPerPartition": 100}, 10):
        frame = read(spark, broker, mixed, includeHeaders=True, **options)
        count = frame.rdd.getNumPartitions()
        assert count >= least
        assert options or count == 4
        assert rows_of(frame) == plain


def test_aborted_records_are_not_read_when_committed_ones_are_asked_for(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    """The range ends in markers, where no record sits: it is read to its end, and both isolation
    levels equal the consumer's."""
    make_topic(broker, topic, 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for outcome in "commit", "abort", "commit", "abort":
            producer.begin_transaction()
            for number in range(50):
                producer.send(topic, f"{outcome} {number}".encode())
            producer.flush()
            if outcome == "commit":
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    for level, count in ("read_committed", 100), ("read_uncommitted", 200):
        found = rows_of(
            read(
                spark, broker, topic, includeHeaders=True, kafka_isolation_level=level, **HELD
            )
        )  # fmt: skip
        assert found == plain_read(broker, topic, isolation_level=level)
        assert len(found) == count


def test_gaps_of_compaction(spark: SparkSession, topic: str) -> None:
    """A compacted topic is read over its gaps, also when a range begins or ends in one."""
    with start_broker(log_cleaner_backoff_ms=100, log_initial_task_delay_ms=100) as own:
        make_topic(
            own, topic, 1, cleanup_policy="compact", segment_ms="50",
            min_cleanable_dirty_ratio="0.01",
        )  # fmt: skip
        for turn in range(3):
            with Producer(bootstrap_servers=own.bootstrap_servers) as producer:
                producer.send(topic, b"first", key=b"first %d" % turn)
                for number in range(100):
                    producer.send(topic, b"%d %d" % (turn, number), key=b"%d" % (number % 20))
            time.sleep(0.06)
        with Producer(bootstrap_servers=own.bootstrap_servers) as producer:
            producer.send(topic, b"last", key=b"last")
        deadline = time.monotonic() + 60
        while len(plain := plain_read(own, topic)) > 60 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(plain) <= 60
        assert rows_of(read(spark, own, topic, includeHeaders=True)) == plain
        gap = next(a[4] + 1 for a, b in pairwise(plain) if b[4] > a[4] + 2)
        part = read(
            spark, own, topic, includeHeaders=True, endingOffsets=f'{{"{topic}": {{"0": {gap}}}}}'
        )
        assert rows_of(part) == [row for row in plain if row[4] < gap]


def test_the_logs_own_time(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A topic with LogAppendTime has type 1 and the broker's time."""
    make_topic(broker, topic, 1, message_timestamp_type="LogAppendTime")
    produce(broker, topic, [b"x", b"y"])
    found = rows_of(read(spark, broker, topic, includeHeaders=True))
    assert found == plain_read(broker, topic)
    assert {row[6] for row in found} == {1}


def test_records_that_retention_took(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Offsets that are not there (any more, or yet) are an error that names them, or left out."""
    make_topic(broker, topic, 1)
    produce(broker, topic, [b"%d" % number for number in range(10)])
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    stretch = {
        "startingOffsets": f'{{"{topic}": {{"0": 2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 99}}}}',
    }
    with pytest.raises(Exception, match=r"(?s)offsets 2 to 99 of .*it has 4 to 10.*failOnDataLoss"):
        read(spark, broker, topic, **stretch).collect()
    found = read(spark, broker, topic, failOnDataLoss=False, **stretch)
    assert [row.offset for row in found.collect()] == list(range(4, 10))
    assert read(spark, broker, topic).count() == 6


@contextmanager
def pushing(spark: SparkSession) -> Iterator[None]:
    """Filter pushdown switched on."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("query", "taken", "tasks"),
    [
        ("partition = 2 and offset >= 5 and offset < 9", True, 1),
        ("partition in (0, 1) and topic = 'source-mixed' and offset = 3", True, 2),
        ("topic = 'another'", True, 1),
        ("timestamp >= timestamp'2020-01-01'", False, 4),
        ("timestamp >= timestamp'2020-01-01' and key is null and partition != 3", False, 4),
    ],
)
def test_filters_reduce_what_is_read(
    spark: SparkSession, broker: Broker, mixed: str, query: str, taken: bool, tasks: int
) -> None:
    """With filter pushdown switched on, topic, partition and offset are filtered by the source and
    not by Spark any more; without it (Spark's default) the same query works as well."""
    frame = read(spark, broker, mixed, includeHeaders=True).where(query)
    expected = rows_of(frame)
    with pushing(spark):
        frame = read(spark, broker, mixed, includeHeaders=True).where(query)
        assert rows_of(frame) == expected
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert ("Filter (" not in plan) == taken
        assert frame.rdd.getNumPartitions() == tasks


def test_a_filter_on_time_moves_the_start(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Only what can be late enough is read, and a record behind it that is older is still left
    out."""
    make_topic(broker, topic, 2)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for minutes in 0, 1, 2, 0, 3:
            at = now + timedelta(minutes=minutes)
            producer.send(
                topic, b"%d" % minutes, partition=0, timestamp_ms=int(at.timestamp() * 1000)
            )
        producer.send(topic, b"old", partition=1, timestamp_ms=0)
    with pushing(spark):
        frame = read(spark, broker, topic, columns="value,timestamp").where(
            "timestamp >= timestamp'2026-01-01 00:01:00Z'"
        )
        assert [bytes(row.value) for row in frame.collect()] == [b"1", b"2", b"3"]
        assert frame.rdd.getNumPartitions() == 1


def test_mistakes_are_reported_when_the_frame_is_made(
    spark: SparkSession, broker: Broker, mixed: str
) -> None:
    """`load()` itself fails on an unknown option, and a schema cannot be put on the source."""
    with pytest.raises(AnalysisException, match="did you mean 'startingOffsets'"):
        read(spark, broker, mixed, startingOfsets="earliest")
    with pytest.raises(Exception, match="cannot change them"):
        spark.read.format("ottla").schema("value string").option(
            "kafka.bootstrap.servers", broker.bootstrap_servers
        ).option("subscribe", mixed).load().collect()
    with pytest.raises(Exception, match="there is no topic 'nowhere'"):
        read(spark, broker, "nowhere", fetchOffset_numRetries=1).collect()
    with pytest.raises(Exception, match="not there: source-mixed-9"):
        read(
            spark, broker, None, assign='{"source-mixed": [1, 9]}', fetchOffset_numRetries=1
        ).collect()
