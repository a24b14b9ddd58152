"""JSON values into columns, and what does not parse into bad records with the reason.

A record is bad when its value is not UTF-8, not exactly one JSON object, or has a field of another
type than the schema says, or lacks a field declared NOT NULL. `from_json` alone would pass over
text after the object, over several objects and over an empty value, so it is given the value as the
one element of an array: whatever is not one object then is malformed, or has another size.

The parser's result is the output of a generator (`explode`), because Spark would else push the test
for bad records below the projection and parse every value twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from ..source.examined import BLOCK_OFFSETS, BLOCKS_MAX
from .problems import first_line
from .topics import HEADERS, PipelineError, Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

PARSED = "__parsed"
CORRUPT = "__corrupt"
BAD = "__bad"
OBJECTS = "__objects"
FOUND_CHARACTERS_MAX = 60
# Spark's parser takes 'text' for text; JSON does not.
JSON_OPTIONS = {"allowSingleQuotes": "false"}
HEADER_PREFIX = "ottla."


def schema_of(spark: SparkSession, schema: str | StructType, where: str) -> StructType:
    """The schema that a declaration gives as DDL or whole."""
    if isinstance(schema, StructType):
        return schema
    from pyspark.errors import PySparkException
    from pyspark.sql.types import _parse_datatype_string

    try:
        parsed = _parse_datatype_string(schema)
    except PySparkException as problem:
        raise PipelineError(
            f"{where}: the schema {schema!r} is not DDL: {first_line(str(problem))}"
        ) from None
    if not isinstance(parsed, StructType):
        raise PipelineError(f"{where}: the schema {schema!r} names no fields")
    return parsed


def nullable(kind: DataType) -> DataType:
    """The same type with null allowed everywhere: what a parser can promise."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(each.name, nullable(each.dataType), True) for each in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
    return kind


def parsed(raw: DataFrame, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """The records with the parser's result as one more column."""
    whole = StructType(
        [StructField(OBJECTS, ArrayType(nullable(schema))), StructField(CORRUPT, StringType())]
    )
    value = F.col("value").cast("string")
    text = F.concat(F.lit(f'{{"{OBJECTS}":['), value, F.lit("]}"))
    result = F.from_json(
        text,
        whole,
        {**JSON_OPTIONS, **options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
    )
    return raw.select("*", F.explode(F.array(result)).alias(PARSED))


def one_object() -> Column:
    # get(): an index past the end is null, where [0] would end the run.
    return F.get(F.col(f"{PARSED}.{OBJECTS}"), F.lit(0))


def is_bad(schema: StructType, tombstones: str) -> Column:
    """True for records that are not what the schema says; never null."""
    objects = F.col(f"{PARSED}.{OBJECTS}")
    missing = [one_object()[each.name].isNull() for each in schema.fields if not each.nullable]
    wrong: Column = (
        ~is_utf8()
        | F.col(f"{PARSED}.{CORRUPT}").isNotNull()
        | (F.coalesce(F.size(objects), F.lit(0)) != 1)
        | one_object().isNull()
    )
    for each in missing:
        wrong = wrong | each
    wrong = F.coalesce(wrong, F.lit(True))
    null_value = F.lit(tombstones == "bad")
    return F.when(F.col("value").isNull(), null_value).otherwise(wrong)


def is_utf8() -> Column:
    return F.expr("is_valid_utf8(cast(value as string))")


def reason(schema: StructType) -> Column:
    """Why a bad record is bad, as a sentence without a full stop."""
    text = F.col("value").cast("string")
    objects = F.col(f"{PARSED}.{OBJECTS}")
    well_formed = F.expr("try_parse_json(cast(value as string))").isNotNull()
    chain = F.when(F.col("value").isNull(), "the value is null")
    chain = chain.when(~is_utf8(), "the value is not UTF-8")
    chain = chain.when(text.rlike(r"^\s*$"), "the value is empty")
    chain = chain.when(~well_formed, "malformed JSON")
    chain = chain.when(~text.rlike(r"^\s*\{"), "not a JSON object")
    chain = chain.when(F.coalesce(F.size(objects), F.lit(0)) != 1, "not exactly one JSON object")
    for each in schema.fields:
        found = F.get_json_object(text, f"$['{each.name}']")
        chain = chain.when(
            found.isNotNull() & one_object()[each.name].isNull(),
            F.concat(
                F.lit(f"field {each.name!r} is not {each.dataType.simpleString()}: "),
                F.substring(found, 1, FOUND_CHARACTERS_MAX),
            ),
        )
    for each in schema.fields:
        if not each.nullable:
            chain = chain.when(one_object()[each.name].isNull(), f"field {each.name!r} is missing")
    return chain.otherwise(F.lit("a field has another type than the schema says"))


def good_rows(
    raw: DataFrame,
    source: Topic,
    schema: StructType,
    *,
    pipeline: str,
    stop_at_bad: bool,
    metric: str | None = None,
) -> DataFrame:
    """One column for each field of the schema, then those of the record that are included.

    `metric` is the name of an observed metric that reports where bad records are.
    """
    if metric is not None:
        rows = parsed(raw, schema, source.json_options)
        rows = rows.select("*", is_bad(schema, source.tombstones).alias(BAD))
        rows = rows.observe(metric, *seen_records()).where(~F.col(BAD))
        if source.tombstones == "skip":
            rows = rows.where(F.col("value").isNotNull())
    else:
        if source.tombstones == "skip":
            raw = raw.where(F.col("value").isNotNull())
        rows = parsed(raw, schema, source.json_options)
        bad = is_bad(schema, source.tombstones)
        rows = rows.where(~(stopped(bad, schema, pipeline) if stop_at_bad else bad))
    fields = [one_object()[each.name].alias(each.name) for each in schema.fields]
    extra = [F.col(name).alias(alias) for name, alias in source.include.items()]
    return rows.select(*fields, *extra)


def seen_records() -> tuple[Column, Column, Column]:
    """What is observed of parsed records: the fields of `Seen`."""
    block = F.expr(f"offset div {BLOCK_OFFSETS}").cast("string")
    place = F.concat_ws(":", F.col("topic"), F.col("partition").cast("string"), block)
    blocks = F.collect_set(F.when(F.col(BAD), place))
    return (
        F.count(F.lit(1)).alias("count"),
        F.try_sum("offset").alias("offset_sum"),
        F.when(F.size(blocks) <= BLOCKS_MAX, blocks).alias("blocks"),
    )


def stopped(bad: Column, schema: StructType, pipeline: str) -> Column:
    """The same condition, which ends the run at the first bad record."""
    message = F.concat(
        F.lit(f"pipeline {pipeline!r} has no bad_records, and a record does not parse: topic "),
        F.col("topic"),
        F.lit(", partition "),
        F.col("partition").cast("string"),
        F.lit(", offset "),
        F.col("offset").cast("string"),
        F.lit(": "),
        reason(schema),
    )
    return F.when(bad, F.raise_error(message).cast("boolean")).otherwise(F.lit(False))


def bad_rows(raw: DataFrame, source: Topic, schema: StructType, *, pipeline: str) -> DataFrame:
    """The bad records as they came, with where they came from and what is wrong as headers."""
    rows = parsed(raw, schema, source.json_options).where(is_bad(schema, source.tombstones))
    origin = {
        "error": reason(schema),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis(F.col("timestamp")).cast("string"),
        "pipeline": F.lit(pipeline),
    }
    added = F.array(
        *(
            F.struct(F.lit(HEADER_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in origin.items()
        )
    )
    headers = F.concat(F.coalesce(F.col(HEADERS), no_headers()), added)
    return rows.select("key", "value", headers.alias(HEADERS))


def no_headers() -> Column:
    return F.array().cast("array<struct<key:string,value:binary>>")


def same_columns(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    first, *others = frames
    for each in others:
        first = first.unionByName(each)
    return first
