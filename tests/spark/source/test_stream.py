"""`spark.readStream.format("ottla")` against a live broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ottla import Admin, TopicPartition
from ottla.spark import register
from ottla.spark.source import listener
from ottla.spark.source.listener import commit_progress
from ottla.spark.source.offsets import PartitionOffsets, decode, lag
from ottla.testing import Broker, wait_for_lag_zero
from ottla.testing import broker as start_broker

from .helpers import Sink, make_topic, plain_read, produce, read_stream, row_of_spark

VALUES = [b"%04d" % number for number in range(400)]


@pytest.fixture
def sink(spark: SparkSession, topic: str, tmp_path: Path) -> Sink:
    return Sink(spark, topic, tmp_path)


def test_a_stream_is_what_a_consumer_reads(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink
) -> None:
    """Every record once, in every compression, over micro-batches of limited size and a restart;
    the lag is reported."""
    make_topic(broker, topic)
    for number, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
        produce(broker, topic, [None, b"", *VALUES[number::5]], compression_type=codec)
    frame = read_stream(spark, broker, topic, includeHeaders=True, maxOffsetsPerTrigger=150)
    progress = sink.run(frame)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [
        pytest.approx(150, abs=4), pytest.approx(150, abs=4), pytest.approx(110, abs=8),
    ]  # fmt: skip
    assert lag(progress[0]["sources"][0]) == pytest.approx(260, abs=4)
    assert lag(progress[-1]["sources"][0]) == 0
    produce(broker, topic, [b"more"])
    sink.run(frame)
    found = sorted((row_of_spark(row) for row in sink.rows), key=lambda row: row[3:5])
    assert found == plain_read(broker, topic)


def test_committed_records_alone(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink
) -> None:
    """A stream of committed records stops where a transaction is open, goes on when it ends, and
    reads nothing of an aborted one."""
    from ottla import Producer

    make_topic(broker, topic, 1)
    frame = read_stream(spark, broker, topic, kafka_isolation_level="read_committed")
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"one")
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.flush()
        sink.run(frame)
        assert sink.values == [b"one"]
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"two")
    sink.run(frame)
    assert sink.values == [b"one", b"two"]


def test_partitions_and_topics_that_come_later(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink
) -> None:
    """New partitions, and new topics of a pattern, are read from their first record."""
    make_topic(broker, f"{topic}-a", 1)
    produce(broker, f"{topic}-a", VALUES[:5])
    frame = read_stream(spark, broker, None, subscribePattern=f"{topic}-.*")
    sink.run(frame)
    assert sink.values == VALUES[:5]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({f"{topic}-a": 3})
    make_topic(broker, f"{topic}-b", 2)
    produce(broker, f"{topic}-a", VALUES[5:40], partitioner=lambda key, every, some: every[-1])
    produce(broker, f"{topic}-b", VALUES[40:50])
    progress = sink.run(frame)
    assert sink.values == VALUES[:50]
    assert len(decode(progress[-1]["sources"][0]["endOffset"])) == 5


def test_a_start_at_the_end_is_kept(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink
) -> None:
    """A query that started at `latest` and was stopped before anything came reads what came in the
    meantime when it starts again."""
    make_topic(broker, topic, 2)
    produce(broker, topic, VALUES[:10])
    frame = read_stream(spark, broker, topic, startingOffsets="latest")
    progress = sink.run(frame)
    assert sink.rows == []
    assert sum(decode(progress[0]["sources"][0]["endOffset"]).values()) == 10
    produce(broker, topic, VALUES[10:20])
    sink.run(frame)
    assert sink.values == VALUES[10:20]


def test_retention_overtakes_the_reader(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink
) -> None:
    """Records deleted before they were read end the query with what was lost, or, with
    failOnDataLoss false, are left out."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:10])
    sink.run(read_stream(spark, broker, topic))
    produce(broker, topic, VALUES[10:20])
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})
    with pytest.raises(
        StreamingQueryException, match=r"(?s)offsets 10 to 20 of .*it has 15 to 20.*failOnDataLoss"
    ):
        sink.run(read_stream(spark, broker, topic))
    sink.run(read_stream(spark, broker, topic, failOnDataLoss=False))
    assert sink.values == VALUES[:10] + VALUES[15:20]


def test_a_topic_made_anew(spark: SparkSession, broker: Broker, topic: str, sink: Sink) -> None:
    """A topic deleted and made again is noticed; with failOnDataLoss false the query goes on."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:10])
    quick = {"fetchOffset_numRetries": 1, "fetchOffset_retryIntervalMs": 10}
    sink.run(read_stream(spark, broker, topic))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([topic])
    with pytest.raises(StreamingQueryException, match=f"there is no topic '{topic}'"):
        sink.run(read_stream(spark, broker, topic, **quick))
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[20:23])
    with pytest.raises(StreamingQueryException, match="went from offset 10 back to 3"):
        sink.run(read_stream(spark, broker, topic, **quick))
    sink.run(read_stream(spark, broker, topic, failOnDataLoss=False, **quick))
    produce(broker, topic, VALUES[23:25])
    sink.run(read_stream(spark, broker, topic))
    assert sink.values == VALUES[:10] + VALUES[23:25]


def test_progress_is_committed_to_a_group(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener commits when a batch is done, so the lag is 0 after the last; `commit_progress`
    does it without one."""
    make_topic(broker, topic, 2)
    produce(broker, topic, VALUES[:50])
    frame = read_stream(spark, broker, topic, commitGroup=topic)
    received: list[PartitionOffsets] = []
    commit = listener.commits.commit

    def recorded(servers: str, group: str, offsets: PartitionOffsets, client: object) -> None:
        assert not client
        commit(servers, group, offsets)
        received.append(offsets)

    monkeypatch.setattr(listener.commits, "commit", recorded)
    register(spark)
    register(spark)  # twice is once
    sink.run(frame)
    wait_for_lag_zero(broker, topic, topic, timeout_s=30)
    assert [sum(offsets.values()) for offsets in received] == [50]
    monkeypatch.setattr(listener.CommitListener, "onQueryProgress", lambda self, event: None)
    produce(broker, topic, VALUES[50:60])
    commit_progress(sink.run(frame)[-1])
    wait_for_lag_zero(broker, topic, topic, timeout_s=0)


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker that may be killed."""
    with start_broker(num_partitions=2) as started:
        yield started


def test_a_running_query(
    spark: SparkSession, own_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Records that come while the query runs are read in the next micro-batch, and so are those
    that come after a broker was killed and started again."""
    broker = own_broker
    make_topic(broker, topic, 2)
    found: list[bytes] = []
    frame = read_stream(spark, broker, topic, startingOffsets="latest", columns="value")
    query = (
        frame.writeStream.foreachBatch(
            lambda batch, _: found.extend(bytes(row.value) for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    try:
        until(lambda: query.lastProgress is not None, query)
        for count in 10, 20, 30:
            produce(broker, topic, VALUES[count - 10 : count])
            until(lambda count=count: len(found) >= count, query)
        broker.restart(kill=True)
        produce(broker, topic, VALUES[30:40])
        until(lambda: len(found) >= 40, query)
    finally:
        query.stop()
    assert sorted(found) == VALUES[:40]


def until(met: object, query: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not met():  # type: ignore[operator]
        assert query.isActive, query.exception()  # type: ignore[attr-defined]
        assert time.monotonic() < deadline, query.lastProgress  # type: ignore[attr-defined]
        time.sleep(0.05)
