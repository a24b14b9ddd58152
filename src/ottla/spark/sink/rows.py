"""Rows of a DataFrame into record batches: which columns count, and what is wrong with the others.

The columns are those of Spark's Kafka connector: `value`, and where wanted `key`, `topic`,
`partition` and `headers`; others are left alone. `layout` judges the schema on the driver, before
anything runs; `RowEncoder` turns a task's Arrow batches into finished record batches, without a
Python object per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.producer.column_batches import ColumnBatches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

TEXT = ("string", "binary")
HEADERS = "array<struct<key:string,value:binary>>"
# What each column may be, as Spark's own connector has it.
TYPES: dict[str, tuple[str, ...]] = {
    "value": TEXT,
    "key": TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS,),
}


class SinkError(ValueError):
    """The rows, or the options, do not determine what to write; the text has the advice."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns are; `topic` is the one for all rows, if there is one."""

    positions: dict[str, int]
    topic: str | None


class Piece(NamedTuple):
    """A finished record batch and where it goes."""

    topic: str
    partition: int
    data: Any  # bytes-like
    records: int


def layout(schema: StructType, topic: str | None) -> Layout:
    """Find the columns; raises SinkError for what is missing or of the wrong type."""
    positions = {}
    for position, field in enumerate(schema.fields):
        if field.name in TYPES and field.name not in positions:
            if not (field.name == "topic" and topic is not None):
                _check_type(field.name, field.dataType)
            positions[field.name] = position
    names = ", ".join(schema.fieldNames()) or "none"
    if "value" not in positions:
        raise SinkError(
            f"no column 'value' to write (the columns are: {names})\n"
            "Try: df.selectExpr(\"to_json(struct(*)) AS value\"), or rename one to 'value'"
        )
    if topic is None and "topic" not in positions:
        raise SinkError(
            f"no topic to write to: no option 'topic', no column 'topic' (they are: {names})\n"
            'Try: .option("topic", "a-name")'
        )
    return Layout(positions, topic)


def _check_type(name: str, kind: DataType) -> None:
    found = kind.simpleString()
    if found in TYPES[name]:
        return
    wanted = " or ".join(TYPES[name])
    raise SinkError(
        f"column '{name}' is {found}, and must be {wanted}\n"
        f"Try: df.withColumn('{name}', …cast to {TYPES[name][0]}…), "
        "or to_json(struct(*)) for several columns in one"
    )


class RowEncoder:
    """Finished record batches out of a task's rows, in order within each partition."""

    def __init__(
        self,
        where: Layout,
        partition_count: Callable[[str], int],
        *,
        compression: str,
        batch_bytes: int,
        spread_from: int,
    ) -> None:
        self.where = where
        self.partition_count = partition_count
        self.compression = compression
        self.batch_bytes = batch_bytes
        self.spread_from = spread_from
        self._topics: dict[str, ColumnBatches] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        """Take rows in; give what is finished by now."""
        positions = self.where.positions
        columns = {name: rows.column(position) for name, position in positions.items()}
        if self.where.topic is not None:
            yield from self._add(self.where.topic, columns)
            return
        topics = columns.pop("topic")
        if topics.null_count:
            raise SinkError(
                "a row has null in its column 'topic'\n"
                "Try: filter such rows out, or write all to one with the option 'topic'"
            )
        names = topics.unique().to_pylist()
        if len(names) == 1:
            yield from self._add(names[0], columns)
            return
        import pyarrow.compute

        for name in names:
            mask = pyarrow.compute.equal(topics, name)
            chosen = {each: column.filter(mask) for each, column in columns.items()}
            yield from self._add(name, chosen)

    def _add(self, topic: str, columns: dict[str, Any]) -> Iterator[Piece]:
        batches = self._topics.get(topic)
        if batches is None:
            batches = self._topics[topic] = ColumnBatches(
                self.partition_count(topic),
                compression=self.compression,
                batch_bytes=self.batch_bytes,
                spread_from=self.spread_from,
            )
        try:
            batches.add(
                columns["value"],
                keys=columns.get("key"),
                partitions=columns.get("partition"),
                headers=columns.get("headers"),
            )
        except ValueError as problem:
            raise SinkError(f"a row for topic '{topic}': {problem}") from None
        for done in batches.take():
            yield Piece(topic, done.partition, done.data, done.records)

    def finish(self) -> Iterator[Piece]:
        """What is left."""
        for topic, batches in self._topics.items():
            for done in batches.take(rest=True):
                yield Piece(topic, done.partition, done.data, done.records)
