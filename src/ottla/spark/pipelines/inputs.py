"""The DataFrames that a pipeline's function is given: streams, stored stretches, or empty ones.

`Inputs` reads a declared source; its three forms differ only in where records come from.
Everything after that is the same code, so that the past and the future give the same answer.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..source.data_source import TYPES
from .bounds import ISOLATION, ISOLATION_DEFAULT, Offsets, as_json
from .declaring import Pipeline
from .fresh import fresh_records
from .parsing import (
    bad_rows,
    good_rows,
    is_bad,
    one_object,
    parsed,
    reason,
    same_columns,
    schema_of,
)
from .progress import BAD_ROWS, BAD_VALUES, SEEN, bad_values_text
from .topics import INCLUDABLE, RECORD_COLUMNS, Files, PipelineError, Source, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

log = logging.getLogger("ottla.spark")
Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")
RECORD_SCHEMA = ", ".join(f"{column} {kind}" for column, kind in TYPES.items())


class Inputs:
    """Reads what is declared. `servers` are the brokers."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, servers: str) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.servers = servers

    # What the forms differ in.

    def records(self, name: str, source: Topic, columns: list[str]) -> DataFrame:
        """The records of a topic with these columns."""
        raise NotImplementedError

    def read_files(self, name: str, source: Files) -> DataFrame:
        raise NotImplementedError

    def table_records(self, name: str, source: Table, columns: list[str]) -> DataFrame:
        """All records of a table's topic."""
        options = {"subscribe": source.name, "startingOffsets": "earliest"}
        reader = self.spark.read.format("ottla")
        return self.ready(reader, source.options, columns).options(**options).load()

    # What they share.

    def frames(self) -> dict[str, DataFrame]:
        """What the function takes, by the name of the argument."""
        return {name: self.frame(name, each) for name, each in self.pipeline.sources.items()}

    def frame(self, name: str, source: Source) -> DataFrame:
        if isinstance(source, Files):
            return self.read_files(name, source)
        if isinstance(source, Table):
            return self.table(name, source)
        if not source.parsed:
            include = source.include or {each: each for each in RECORD_COLUMNS}
            rows = self.records(name, source, list(include))
            return rows.select(*(F.col(each).alias(alias) for each, alias in include.items()))
        schema = self.schema(name, source)
        stop = self.pipeline.bad_records is None
        metric = self.metric(name)
        needed = {"value", *source.include}
        if stop or metric is not None:
            needed |= {"topic", "partition", "offset"}
        raw = self.records(name, source, [each for each in INCLUDABLE if each in needed])
        return good_rows(
            raw,
            source,
            schema,
            pipeline=self.pipeline.name,
            stop_at_bad=stop,
            metric=metric,
        )

    def metric(self, name: str) -> str | None:
        """The observed metric that reports where a source's bad records are; None: no such."""
        return None

    def bad_records(self) -> DataFrame:
        """The bad records of all sources, as records for their topic."""
        found = []
        for name, source in self.pipeline.parsed.items():
            columns = [each for each in INCLUDABLE if each != "timestampType"]
            raw = self.records(name, source, columns)
            schema = self.schema(name, source)
            found.append(bad_rows(raw, source, schema, pipeline=self.pipeline.name))
        return same_columns(found).observe(BAD_ROWS, F.count(F.lit(1)).alias(BAD_ROWS))

    def latest_values(self, name: str, source: Table) -> DataFrame:
        """Key and value of a table's rows. The offset decides which is the latest; where a topic
        has grown partitions and a key has moved to another, the time."""
        columns = ["key", "value", "partition", "offset", "timestamp"]
        rows = self.table_records(name, source, columns).where(F.col("key").isNotNull())
        latest = F.max_by(F.struct("value", "timestamp"), F.col("offset")).alias("latest")
        rows = rows.groupBy("key", "partition").agg(latest)
        order = F.struct("latest.timestamp", "partition")
        rows = rows.groupBy("key").agg(F.max_by("latest.value", order).alias("value"))
        return rows.where(F.col("value").isNotNull())

    def counting(self, name: str, rows: DataFrame, schema: StructType) -> DataFrame:
        """The parsed rows of a table; a plan that runs again and again counts its bad values."""
        return rows

    def warn_of_tables(self) -> None:
        """Log how many values of tables that are read once do not parse: they are left out, and
        stay where they are, so they are no bad records that could be lost. One job a table."""
        for name, source in self.pipeline.sources.items():
            if isinstance(source, Table) and source.schema is not None and self.reads_once(source):
                schema = self.schema(name, source)
                rows = parsed(self.latest_values(name, source), schema, source.json_options)
                found = rows.agg(*bad_values(schema)).first()
                if found is not None and found["count"]:
                    log.warning("%s", bad_values_text(self.pipeline.name, name, found.asDict()))

    def reads_once(self, source: Table) -> bool:
        """Whether the table stands still for the whole run."""
        return True

    def table(self, name: str, source: Table) -> DataFrame:
        """The latest values with their columns."""
        rows = self.latest_values(name, source)
        key = F.col("key").cast("string").cast(source.key_type) if source.key else None
        if source.key_type == "binary":
            key = F.col("key")
        named = [] if source.key is None or key is None else [key.alias(source.key)]
        if source.schema is None:
            return rows.select(*named, "value") if named else rows
        schema = self.schema(name, source)
        rows = self.counting(name, parsed(rows, schema, source.json_options), schema)
        rows = rows.where(~is_bad(schema, "skip"))
        fields = [
            one_object()[each.name].alias(each.name)
            for each in schema.fields
            if each.name != source.key
        ]
        return rows.select(*named, *fields)

    def schema(self, name: str, source: Topic | Table | Files) -> StructType:
        where = f"pipeline {self.pipeline.name!r}: source {name!r}"
        schema = schema_of(self.spark, source.schema or "", where)
        if isinstance(source, Topic):
            both = {each.lower() for each in schema.names} & {
                each.lower() for each in source.include.values()
            }
            if both:
                raise PipelineError(
                    f"{where}: {min(both)!r} is a field and an included column; give the latter "
                    f'another name, include={{"{min(both)}": "record_{min(both)}"}}'
                )
        return schema

    def options(self, declared: Mapping[str, str], columns: list[str]) -> dict[str, str]:
        """The options of every topic, then those of its declaration."""
        return {
            "kafka.bootstrap.servers": self.servers,
            ISOLATION: ISOLATION_DEFAULT,
            "columns": ",".join(columns),
            **declared,
        }

    def ready(self, reader: Reader, declared: Mapping[str, str], columns: list[str]) -> Reader:
        return reader.options(**self.options(declared, columns))


class StreamInputs(Inputs):
    """Streams, from `starts` on where there is no checkpoint; `group` shows how far they are.

    `observed` are the sources whose frames report their bad records; `examined` has, for the query
    of bad records, the files with what another query has reported, by source.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        servers: str,
        starts: Mapping[str, Offsets | None],
        group: str,
        *,
        observed: Collection[str] = (),
        examined: Mapping[str, Path] | None = None,
    ) -> None:
        super().__init__(spark, pipeline, servers)
        self.starts = starts
        self.group = group
        self.observed = observed
        self.examined = examined or {}

    def metric(self, name: str) -> str | None:
        return SEEN + name if name in self.observed else None

    def records(self, name: str, source: Topic, columns: list[str]) -> DataFrame:
        start = self.starts.get(name)
        reader = self.spark.readStream.format("ottla").options(**subscription(source))
        reader = reader.option("startingOffsets", as_json(start) if start else "earliest")
        reader = reader.option("commitGroup", self.group)
        if name in self.examined:
            reader = reader.option("ottla.examined", str(self.examined[name]))
        return self.ready(reader, source.options, columns).load()

    def table_records(self, name: str, source: Table, columns: list[str]) -> DataFrame:
        if source.refresh == "start":
            return super().table_records(name, source, columns)
        options = self.options(source.options, columns)
        return fresh_records(self.spark, {**options, "subscribe": source.name})

    def read_files(self, name: str, source: Files) -> DataFrame:
        if source.schema is not None:
            schema = self.schema(name, source)
        else:
            schema = stored(self.spark, source, self.pipeline.name).schema
        reader = self.spark.readStream.format(source.format).schema(schema)
        return reader.options(**source.options).load(source.location)

    def table(self, name: str, source: Table) -> DataFrame:
        rows = super().table(name, source)
        if source.refresh == "batch":
            return rows
        # Kept by value: no later micro-batch and no lost executor has the topic read again.
        return self.spark.createDataFrame(rows.toArrow())

    def counting(self, name: str, rows: DataFrame, schema: StructType) -> DataFrame:
        source = self.pipeline.sources[name]
        if isinstance(source, Table) and self.reads_once(source):
            return rows
        # In the progress of each micro-batch: `Run` warns of them. A job before the start would
        # hold up every query.
        return rows.observe(BAD_VALUES + name, *bad_values(schema))

    def reads_once(self, source: Table) -> bool:
        return source.refresh == "start"


class PastInputs(Inputs):
    """What is stored, between offsets that stand still."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        servers: str,
        stretches: Mapping[str, tuple[Offsets | None, Offsets]],
    ) -> None:
        super().__init__(spark, pipeline, servers)
        self.stretches = stretches

    def records(self, name: str, source: Topic, columns: list[str]) -> DataFrame:
        begin, end = self.stretches[name]
        reader = self.spark.read.format("ottla").options(**subscription(source))
        reader = reader.option("startingOffsets", as_json(begin) if begin else "earliest")
        reader = reader.option("endingOffsets", as_json(end))
        options = {each: value for each, value in source.options.items() if each not in STREAM_ONLY}
        return self.ready(reader, options, columns).load()

    def read_files(self, name: str, source: Files) -> DataFrame:
        return stored(self.spark, source, self.pipeline.name)


class EmptyInputs(Inputs):
    """No records, and the columns of those to come: enough to build a plan. Needs no broker."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, streaming: bool) -> None:
        super().__init__(spark, pipeline, "")
        self.streaming = streaming
        self.directory = tempfile.TemporaryDirectory(prefix="ottla-check-")

    def close(self) -> None:
        self.directory.cleanup()

    def records(self, name: str, source: Topic, columns: list[str]) -> DataFrame:
        return self.empty(RECORD_SCHEMA).select(*columns)

    def table_records(self, name: str, source: Table, columns: list[str]) -> DataFrame:
        return self.spark.createDataFrame([], RECORD_SCHEMA).select(*columns)

    def read_files(self, name: str, source: Files) -> DataFrame:
        if source.schema is not None:
            return self.empty(self.schema(name, source))
        return self.empty(stored(self.spark, source, self.pipeline.name).schema)

    def empty(self, schema: str | StructType) -> DataFrame:
        reader = self.spark.readStream if self.streaming else self.spark.read
        return reader.format("json").schema(schema).load(self.directory.name)


def bad_values(schema: StructType) -> tuple[Column, Column]:
    """What is observed of a table's parsed values: how many are bad, and one of them."""
    bad = is_bad(schema, "skip")
    example = F.struct(F.col("key").cast("string").alias("key"), reason(schema).alias("error"))
    return F.count_if(bad).alias("count"), F.max(F.when(bad, example)).alias("example")


# Options that mean nothing where there are no micro-batches.
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")


def subscription(source: Topic) -> dict[str, str]:
    if source.pattern is not None:
        return {"subscribePattern": source.pattern}
    return {"subscribe": ",".join(source.names)}


def stored(spark: SparkSession, source: Files, pipeline: str) -> DataFrame:
    """Files as they lie there."""
    reader = spark.read.format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    try:
        return reader.load(source.location)
    except AnalysisException as problem:
        if problem.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise PipelineError(
                f"pipeline {pipeline!r}: there are no {source.format} files in {source.path}"
            ) from None
        raise
