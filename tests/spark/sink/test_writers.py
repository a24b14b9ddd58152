"""The sink as a user has it: batch writes, streams, foreachBatch, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla.spark
from ottla.client.admin import Admin, NewTopic
from ottla.testing import Broker, consume_all
from tests.spark.sink import plans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(rows: DataFrame, broker: Broker, mode: str = "append", **options: Any) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    rows.write.format("ottla").options(**options).mode(mode).save()


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows `key`, `value` over two tasks."""
    return spark.range(count).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")


def committed(broker: Broker, *topics: str) -> list[Any]:
    return consume_all(broker, topics, isolation_level="read_committed")


@pytest.mark.parametrize("staging", ["auto", "directory", "topic"])
def test_a_batch_write_is_there_whole(
    spark: SparkSession, broker: Broker, topic: str, staging: str
) -> None:
    """By each carrier: every row once, those of a key in one partition and in their order."""
    write(numbers(spark, 1000), broker, topic=topic, staging=staging)
    found = committed(broker, topic)
    assert sorted(int(record.value) for record in found) == list(range(1000))
    places: dict[bytes, set[int]] = {}
    for record in found:
        places.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in places.values())
    for key in places:
        of_key = [int(record.value) for record in found if record.key == key]
        assert of_key == sorted(of_key)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert not [name for name in admin.list_topics() if "ottla-spark-write" in name]


def test_all_columns(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Topic, partition and headers come from the row; compression is the client's option."""
    rows = spark.sql(
        f"""SELECT * FROM VALUES
        ('{topic}-a', 'k', 'one', 2, array(struct('h' AS key, X'00' AS value))),
        ('{topic}-b', NULL, 'two', NULL, NULL),
        ('{topic}-a', 'k', NULL, NULL, array()) AS t(topic, key, value, partition, headers)"""
    )
    write(rows, broker, **{"kafka.compression.type": "zstd"})
    found = {
        (each.topic, each.value): each for each in committed(broker, f"{topic}-a", f"{topic}-b")
    }
    one = found[f"{topic}-a", b"one"]
    assert (one.partition, one.key, list(one.headers)) == (2, b"k", [("h", b"\0")])
    assert found[f"{topic}-b", b"two"].key is None
    assert found[f"{topic}-a", None].partition == plans.murmur2(b"k") % plans.PARTITIONS


def test_a_failed_write_leaves_nothing(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A batch write is all or nothing: one task that fails takes the rows of all with it."""
    rows = spark.range(1000).selectExpr(
        "cast(id as string) value", "cast(if(id = 900, 99, 0) as int) partition"
    )
    with pytest.raises(Exception, match=r"partition 99"):
        write(rows, broker, topic=topic)
    assert committed(broker, topic) == []


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id", {"topic": "t"}, r"no column 'value'"),
        ("cast(id as string) value", {}, r"no topic to write to"),
        ("id value", {"topic": "t"}, r"'value' is bigint"),
        ("'x' value, cast(null as string) topic", {}, r"null in its column 'topic'"),
        ("'x' value", {"topic": "t", "delivery": "twice"}, r"one of: exactly-once, at-least"),
        ("'x' value", {"topic": "t", "kafka.no.such.option": "1"}, r"no.such.option"),
        ("'x' value", {"topic": "bad/name"}, r"(?i)bad/name"),
    ],
)
def test_mistakes_are_named(
    spark: SparkSession, broker: Broker, columns: str, options: dict[str, str], words: str
) -> None:
    """What cannot be written is refused with words that help."""
    with pytest.raises(Exception, match=words):
        write(spark.range(2).selectExpr(*columns.split(", ")), broker, **options)


def test_other_modes_are_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A topic is appended to; overwriting it is refused, with what to do."""
    with pytest.raises(Exception, match="cannot be overwritten, only appended to"):
        write(numbers(spark, 1), broker, "overwrite", topic=topic)


def test_at_least_once_goes_straight_to_the_topic(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    """delivery=at-least-once writes without a transaction: no control records either."""
    write(numbers(spark, 500), broker, topic=topic, delivery="at-least-once")
    found = committed(broker, topic)
    assert sorted(int(record.value) for record in found) == list(range(500))
    ends: dict[int, int] = {}
    for record in found:
        ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 1)
    assert sum(ends.values()) == 500


def lines(folder: Path, number: int, values: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.txt").write_text("\n".join(values))


def test_complete_mode_appends_all_rows(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """As with Spark's connector: a complete-mode aggregate is written whole at every batch."""
    for number in (1, 2):
        lines(tmp_path / "in", number, ["x"] * number)
        counts = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count()
        query = plans.start(
            counts.selectExpr("value key", "cast(count as string) value"),
            broker.bootstrap_servers,
            topic,
            str(tmp_path / "checkpoint"),
            mode="complete",
        )
        assert query.awaitTermination(60)
    assert [record.value for record in committed(broker, topic)] == [b"1", b"3"]


def test_updates_by_foreach_batch(
    spark: SparkSession, broker: Broker, topic: str, faults: Path, tmp_path: Path
) -> None:
    """write(df, batch=…) in foreachBatch has a ledger: what is out is not written again."""

    def each(rows: DataFrame, batch: int) -> None:
        ottla.spark.write(
            rows, bootstrap_servers=broker.bootstrap_servers, topic=topic, batch=batch
        )

    def run(number: int) -> None:
        lines(tmp_path / "in", number, ["x"] * number)
        counts = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count()
        query = (
            counts.selectExpr("value key", "cast(count as string) value")
            .writeStream.outputMode("update")
            .foreachBatch(each)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run(1)
    (faults / "commit.after-end").write_text("kill")
    with pytest.raises(Exception, match=r"(?i)worker|python"):
        run(2)
    run(3)
    assert [record.value for record in committed(broker, topic)] == [b"1", b"3", b"6"]


def test_write_needs_to_know_whose_batch_it_is(spark: SparkSession, broker: Broker) -> None:
    """batch= outside of foreachBatch asks for query=, and query= for batch=."""
    servers = broker.bootstrap_servers
    with pytest.raises(ValueError, match="query="):
        ottla.spark.write(numbers(spark, 1), bootstrap_servers=servers, topic="t", batch=1)
    with pytest.raises(ValueError, match="batch="):
        ottla.spark.write(numbers(spark, 1), bootstrap_servers=servers, topic="t", query="q")


def test_write_with_a_name_of_its_own(spark: SparkSession, broker: Broker, topic: str) -> None:
    """The same batch of the same query is written once, whoever asks again."""
    for batch in (0, 0, 1, 1):
        ottla.spark.write(
            numbers(spark, 10),
            bootstrap_servers=broker.bootstrap_servers,
            topic=topic,
            query=f"{topic}-loads",
            batch=batch,
            compression_type="lz4",
        )
    assert len(committed(broker, topic)) == 20


def test_a_missing_ledger_and_a_quiet_start(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A query that finds no ledger is refused, and goes on with ledger=accept."""

    def run(**options: str) -> None:
        rows = spark.readStream.text(str(tmp_path / "in"))
        servers, checkpoint = broker.bootstrap_servers, str(tmp_path / "checkpoint")
        query = plans.start(rows, servers, topic, checkpoint, **options)
        assert query.awaitTermination(60)

    lines(tmp_path / "in", 1, ["first"])
    run(delivery="at-least-once")
    lines(tmp_path / "in", 2, ["second"])
    with pytest.raises(Exception, match=r"may be out already"):
        run()
    run(ledger="accept")
    lines(tmp_path / "in", 3, ["third"])
    run()
    found = sorted(record.value.decode() for record in committed(broker, topic))
    assert found == ["first", "second", "third"]


def test_more_partitions_are_used(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A partition that is named in the rows may be any that the topic has."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 6, 1)])
    rows = spark.range(60).selectExpr("cast(id as string) value", "cast(id % 6 as int) partition")
    write(rows, broker, topic=topic)
    assert {record.partition for record in committed(broker, topic)} == set(range(6))
