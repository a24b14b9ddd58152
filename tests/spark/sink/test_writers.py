"""The sink as a user has it: batch writes and streams into topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.testing import Broker, consume_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(rows: DataFrame, broker: Broker, **options: Any) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    rows.write.format("ottla").options(**options).mode("append").save()


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows `key`, `value` over two tasks."""
    return spark.range(count).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")


def committed(broker: Broker, *topics: str) -> list[Any]:
    return consume_all(broker, topics, isolation_level="read_committed")


def test_a_batch_write_is_there_whole(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Every row is written once, those of a key to one partition and in their order."""
    write(numbers(spark, 1000), broker, topic=topic)
    found = committed(broker, topic)
    assert sorted(int(record.value) for record in found) == list(range(1000))
    partition_of: dict[bytes, set[int]] = {}
    for record in found:
        partition_of.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in partition_of.values())
    for key in partition_of:
        of_key = [int(record.value) for record in found if record.key == key]
        assert of_key == sorted(of_key)


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A stateless stream, stopped and started from its checkpoint, writes every row once."""
    for files in range(1, 4):
        folder = tmp_path / "in"
        folder.mkdir(exist_ok=True)
        text = "\n".join(str(files * 100 + each) for each in range(100))
        (folder / f"{files}.txt").write_text(text)
        query = (
            spark.readStream.format("text")
            .load(str(folder))
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        found = committed(broker, topic)
        assert sorted(int(each.value) for each in found) == list(range(100, 100 + files * 100))
