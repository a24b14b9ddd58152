"""For the tests of the source: topics to read, and what a plain consumer reads of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ottla import Admin, Producer
from ottla.client.structs import ConsumerRecord
from ottla.testing import Broker, consume_all

Row = tuple[Any, ...]


def make_topic(broker: Broker, name: str, partitions: int = 4, **configs: str) -> None:
    """A topic; `_` in the names of configs is `.`."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(
            {
                name: {
                    "num_partitions": partitions,
                    "configs": {key.replace("_", "."): value for key, value in configs.items()},
                }
            },
            wait_for_metadata=True,
        )


def produce(broker: Broker, topic: str, values: Iterable[bytes | None], **options: Any) -> None:
    """One record for each value, keyed by it now and then, spread over the partitions."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5, **options) as producer:
        for number, value in enumerate(values):
            producer.send(
                topic,
                value,
                key=None if number % 3 == 0 else b"k%d" % (number % 40),
                headers=[("n", b"%d" % number), ("none", None)] if number % 5 == 0 else [],
            )


def plain_read(broker: Broker, topic: str, **options: Any) -> list[Row]:
    """All records as a consumer gives them, in the columns of the source with headers."""
    return [row_of(each) for each in consume_all(broker, topic, **options)]


def row_of(record: ConsumerRecord) -> Row:
    return (
        record.key,
        record.value,
        record.topic,
        record.partition,
        record.offset,
        datetime.fromtimestamp(record.timestamp / 1000, UTC),
        record.timestamp_type,
        record.headers or None,
    )


def row_of_spark(row: Any) -> Row:
    """A row of the source with headers, as `row_of` has it."""
    headers = None
    if row.headers is not None:
        headers = [
            (each.key, None if each.value is None else bytes(each.value)) for each in row.headers
        ]
    return (
        None if row.key is None else bytes(row.key),
        None if row.value is None else bytes(row.value),
        row.topic,
        row.partition,
        row.offset,
        row.timestamp.astimezone(UTC),
        row.timestampType,
        headers,
    )


def rows_of(frame: DataFrame) -> list[Row]:
    """The rows of a DataFrame of the source (with headers), in the order of a plain read."""
    return sorted((row_of_spark(row) for row in frame.collect()), key=lambda row: row[2:5])


def read(spark: SparkSession, broker: Broker, topic: str | None, **options: object) -> DataFrame:
    """A batch read; `_` in the names of options is `.`."""
    return configured(spark.read, broker, topic, options).load()


def read_stream(
    spark: SparkSession, broker: Broker, topic: str | None, **options: object
) -> DataFrame:
    """The same as a stream, from the earliest record unless said otherwise."""
    options = {"startingOffsets": "earliest", **options}
    return configured(spark.readStream, broker, topic, options).load()


def configured(reader: Any, broker: Broker, topic: str | None, options: dict[str, object]) -> Any:
    reader = reader.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader


class Sink:
    """A table in memory that a stream is run into, with its checkpoint: run it again to go on."""

    def __init__(self, spark: SparkSession, name: str, directory: Path) -> None:
        self.spark = spark
        self.name = name.replace("-", "_").replace(".", "_")
        self.directory = directory
        self.rows: list[Any] = []

    def run(self, frame: DataFrame) -> list[Any]:
        """Read all that is there now; the progress of each micro-batch, as dictionaries."""
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: self.rows.extend(batch.collect()))
            .option("checkpointLocation", str(self.directory / self.name))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return list(query.recentProgress)

    @property
    def values(self) -> list[bytes]:
        return sorted(bytes(row.value) for row in self.rows)
