"""Rows of a pipeline's DataFrame as records of its sink: key, value, headers, partition.

A column that a declaration names and the DataFrame lacks is a PipelineError in one sentence, before
Spark's error.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from .topics import HEADERS, PipelineError, Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Nulls are kept, or a reader could not tell them from a field that is not there; microseconds are
# kept, which Spark's own format would cut.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}
RAW_COLUMNS = ("key", "value", HEADERS, "partition", "topic")


def records(frame: DataFrame, sink: Topic, where: str) -> DataFrame:
    """The DataFrame as `format("ottla")` takes it. `where` names the sink in a message."""
    if sink.format == "raw":
        return raw_records(frame, where)
    control = {each for each in (sink.headers, sink.partition, sink.tombstone) if each}
    made: list[Column] = []
    if sink.key:
        made.append(key_of(frame, sink.key, where).alias("key"))
    made.append(value_of(frame, sink, control, where).alias("value"))
    if sink.headers:
        made.append(headers_of(frame, sink.headers, where).alias(HEADERS))
    if sink.partition:
        need(frame, sink.partition, f"{where} takes its partition from", INTEGERS, "a number")
        made.append(F.col(sink.partition).cast("int").alias("partition"))
    return frame.select(*made)


INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def raw_records(frame: DataFrame, where: str) -> DataFrame:
    need(frame, "value", f"{where} is raw and takes its value from", (BinaryType, StringType),
         "bytes or text")  # fmt: skip
    others = [name for name in frame.columns if name not in RAW_COLUMNS]
    if others:
        raise PipelineError(
            f"{where} is raw, and {others[0]!r} is no column of a record ({', '.join(RAW_COLUMNS)})"
        )
    return frame


def key_of(frame: DataFrame, columns: tuple[str, ...], where: str) -> Column:
    """One column as bytes or text, several as a JSON object."""
    types = [need(frame, each, f"{where} takes its key from") for each in columns]
    if len(columns) > 1:
        return F.to_json(F.struct(*columns), JSON_OPTIONS)
    key = F.col(columns[0])
    if isinstance(types[0], StructType | ArrayType | MapType):
        return F.to_json(key, JSON_OPTIONS)
    return key if isinstance(types[0], BinaryType) else key.cast("string")


def value_of(frame: DataFrame, sink: Topic, control: set[str], where: str) -> Column:
    if sink.value:
        need(frame, sink.value, f"{where} takes its value from", (BinaryType, StringType),
             "bytes or text")  # fmt: skip
        value = F.col(sink.value)
    else:
        fields = [quoted(name) for name in frame.columns if name not in control]
        if not fields:
            raise PipelineError(f"{where} has no columns left for its value")
        value = F.to_json(F.struct(*fields), {**JSON_OPTIONS, **sink.json_options})
    if sink.tombstone:
        need(frame, sink.tombstone, f"{where} takes its tombstones from", (BooleanType,),
             "true or false")  # fmt: skip
        value = F.when(~F.coalesce(F.col(sink.tombstone), F.lit(False)), value)
    return value


def headers_of(frame: DataFrame, column: str, where: str) -> Column:
    """Headers as the sink takes them, from such an array or from a map of text."""
    kind = need(
        frame, column, f"{where} takes its headers from", (ArrayType, MapType), "an array or a map"
    )
    if isinstance(kind, ArrayType):
        return F.col(column)
    return F.transform(
        F.map_entries(column),
        lambda each: F.struct(
            each["key"].cast("string").alias("key"), each["value"].cast("binary").alias("value")
        ),
    )


def need(
    frame: DataFrame,
    column: str,
    takes: str,
    types: tuple[type[DataType], ...] = (),
    kind: str = "",
) -> DataType:
    """The type of a column that must be there."""
    try:
        found = frame.select(column).schema.fields[0].dataType
    except PySparkException:
        raise PipelineError(
            f"{takes} column {column!r}, which is not there{instead(column, frame.columns)}"
        ) from None
    if types and not isinstance(found, types):
        raise PipelineError(
            f"{takes} column {column!r}, which is {found.simpleString()} and not {kind}"
        )
    return found


def instead(column: str, columns: list[str]) -> str:
    close = difflib.get_close_matches(column, columns, 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f" (there are {', '.join(columns)})"


def quoted(name: str) -> str:
    """A column's name as Spark reads it, also with dots in it."""
    return "`" + name.replace("`", "``") + "`"
