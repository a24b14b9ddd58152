"""JSON values into columns: what is good, what is bad, and the reason that is given."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark.pipelines.topics import Topic, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "user string not null, n int, at timestamp, o struct<a:int,b:string>"

GOOD: dict[bytes, dict[str, Any]] = {
    b'{"user":"a","n":1,"at":"2026-11-15T10:00:00.123456Z","o":{"a":1,"b":"x"}}': {"n": 1},
    b' {"user":"a"} ': {"n": None},
    b'{"user":"a","more":[1,{}]}': {"n": None},
    b'{"user":"a","n":null}': {"n": None},
    b'{"user":"a","at":1700000000}': {"n": None},
    '{"user":"ü"}'.encode(): {"n": None},
    b'{"user":"a","n":1,"n":2}': {"n": 2},
}
BAD: dict[bytes | None, str] = {
    None: "the value is null",
    b"": "the value is empty",
    b" \n": "the value is empty",
    b'{"user":"a","n":1': "malformed JSON",
    b"garbage": "malformed JSON",
    b"{'user':'a'}": "malformed JSON",
    b"\x00\x01\x02": "malformed JSON",
    b'{"user":"\xff\xfe"}': "the value is not UTF-8",
    b"null": "not a JSON object",
    b"5": "not a JSON object",
    b'"text"': "not a JSON object",
    b"[1,2]": "not a JSON object",
    b'[{"user":"a"}]': "not a JSON object",
    b'{"user":"a"},{"user":"b"}': "one JSON object",
    b'{"user":"a"}{"user":"b"}': "one JSON object",
    b'{"user":"a"} junk': "one JSON object",
    b'{"user":"a"}}': "one JSON object",
    b'{"user":"a","n":"x"}': "field 'n' is not int: x",
    b'{"user":"a","n":1.5}': "field 'n' is not int: 1.5",
    b'{"user":"a","n":99999999999}': "field 'n' is not int: 99999999999",
    b'{"user":"a","at":"yesterday"}': "field 'at' is not timestamp: yesterday",
    b'{"user":"a","o":5}': "field 'o' is not struct<a:int,b:string>: 5",
    b'{"user":"a","o":{"a":"x"}}': "another type than the schema says",
    b'{"n":1}': "field 'user' is missing",
    b'{"user":null}': "field 'user' is missing",
    b'{"USER":"a"}': "field 'user' is missing",
}


@pytest.fixture(scope="module")
def raw(spark: SparkSession) -> DataFrame:
    """All values as records of one partition, the offset is the place in the lists."""
    now = datetime.datetime(2026, 11, 15, 10, tzinfo=datetime.UTC)
    values = [*GOOD, *BAD]
    rows = [
        (f"k{n}".encode(), value, "t", 0, n, now, 0, [("trace", b"x")] if n % 2 else None)
        for n, value in enumerate(values)
    ]
    from ottla.spark.pipelines.inputs import RECORD_SCHEMA

    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1).cache()


def good(raw: DataFrame, source: Topic, *, stop: bool = False) -> list[Any]:
    from ottla.spark.pipelines.parsing import good_rows, schema_of

    schema = schema_of(raw.sparkSession, SCHEMA, "here")
    return good_rows(raw, source, schema, pipeline="p", stop_at_bad=stop).collect()


def test_good_records_become_columns(raw: DataFrame) -> None:
    """One column a field, then the record's own under their new names; nothing else comes out."""
    source = topic("t", schema=SCHEMA, include={"offset": "at_offset", "key": "key"})
    rows = good(raw, source)
    assert [row.at_offset for row in rows] == list(range(len(GOOD)))
    assert [row.n for row in rows] == [each["n"] for each in GOOD.values()]
    assert rows[0].asDict(recursive=True) == {
        "user": "a",
        "n": 1,
        "at": datetime.datetime(2026, 11, 15, 10, 0, 0, 123456),
        "o": {"a": 1, "b": "x"},
        "at_offset": 0,
        "key": b"k0",
    }


def test_bad_records_keep_their_bytes_and_say_why(raw: DataFrame) -> None:
    """Every record is either good or bad; a bad one keeps key, value and headers, and says where
    it comes from and what is wrong."""
    from ottla.spark.pipelines.parsing import bad_rows, schema_of

    schema = schema_of(raw.sparkSession, SCHEMA, "here")
    rows = bad_rows(raw, topic("t", schema=SCHEMA), schema, pipeline="p").collect()
    assert [row.value for row in rows] == list(BAD)
    for number, (row, said) in enumerate(zip(rows, BAD.values(), strict=True), len(GOOD)):
        headers = {each.key: bytes(each.value) for each in row.headers}
        assert row.key == f"k{number}".encode()
        assert said in headers["ottla.error"].decode(), (row.value, headers)
        assert headers["ottla.offset"] == str(number).encode()
        assert headers["ottla.topic"] == b"t"
        assert headers["ottla.partition"] == b"0"
        assert headers["ottla.pipeline"] == b"p"
        assert headers["ottla.timestamp"] == b"1794736800000"
        assert headers.get("trace") == (b"x" if number % 2 else None)


def test_no_value_stops_a_filter_without_generated_code(raw: DataFrame) -> None:
    """A pipeline's own filter is joined with the test for bad records, and where the plan is too
    large for generated code, fields are asked for before it: also of values without an object."""
    from ottla.spark.pipelines.parsing import good_rows, schema_of

    conf = raw.sparkSession.conf
    schema = schema_of(raw.sparkSession, SCHEMA, "here")
    rows = good_rows(raw, topic("t", schema=SCHEMA), schema, pipeline="p", stop_at_bad=False)
    conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        assert rows.where("user = 'a' AND n = 1").count() == 1
    finally:
        conf.unset("spark.sql.codegen.wholeStage")


def test_python_agrees(raw: DataFrame) -> None:
    """What is good here, json.loads takes as an object; what it refuses is bad here."""
    for value in GOOD:
        assert isinstance(json.loads(value), dict)
    for value, said in BAD.items():
        if value and ("malformed" in said or "UTF-8" in said or "one JSON object" in said):
            with pytest.raises(ValueError):
                json.loads(value)


def test_tombstones_are_as_declared(raw: DataFrame) -> None:
    """A null value is bad, left out, or a row of nulls."""
    null = raw.where("value is null")
    assert good(null, topic("t", schema=SCHEMA)) == []
    assert good(null, topic("t", schema=SCHEMA, tombstones="skip")) == []
    (row,) = good(null, topic("t", schema=SCHEMA, tombstones="keep", include=["key"]))
    assert (row.user, row.key) == (None, f"k{len(GOOD)}".encode())


def test_without_bad_records_the_first_one_stops_the_run(raw: DataFrame) -> None:
    """The error tells which record it was; good ones alone pass."""
    from pyspark.errors import PySparkException

    source = topic("t", schema=SCHEMA)
    assert len(good(raw.where(f"offset < {len(GOOD)}"), source, stop=True)) == len(GOOD)
    at = len(GOOD) + list(BAD).index(b"garbage")
    with pytest.raises(PySparkException, match=rf"topic t, partition 0, offset {at}: malformed"):
        good(raw.where(f"offset = {at}"), source, stop=True)


def test_values_are_parsed_once(raw: DataFrame) -> None:
    """The parser stands in the plan once, not again in the filter."""
    from ottla.spark.pipelines.parsing import good_rows, schema_of

    schema = schema_of(raw.sparkSession, SCHEMA, "here")
    rows = good_rows(raw, topic("t", schema=SCHEMA), schema, pipeline="p", stop_at_bad=False)
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1


def test_rows_become_records(spark: SparkSession) -> None:
    """Columns become one JSON object with nulls and microseconds, beside key, headers, partition;
    a tombstone is a null value."""
    from ottla.spark.pipelines.outputs import records

    frame = spark.sql(
        "select 'a' as page, 7 as n, cast(null as string) as gone, "
        "timestamp'2026-11-15 10:00:00.000001' as at, map('h', 'v') as h, 1L as p, true as dead"
    )
    sink = topic("t", key="page", headers="h", partition="p", tombstone="dead")
    (row,) = records(frame, sink, "sink").collect()
    assert (row.key, row.value, row.partition) == ("a", None, 1)
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("h", b"v")]
    (row,) = records(frame.drop("h", "p", "dead"), topic("t", key=["page", "n"]), "s").collect()
    assert json.loads(row.key) == {"page": "a", "n": 7}
    assert json.loads(row.value) == {
        "page": "a",
        "n": 7,
        "gone": None,
        "at": "2026-11-15T10:00:00.000001Z",
    }


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (topic("t", key="pag"), "column 'pag', which is not there; did you mean 'page'?"),
        (topic("t", value="n"), "column 'n', which is int and not bytes or text"),
        (topic("t", headers="page"), "which is string and not an array or a map"),
        (topic("t", partition="page"), "which is string and not a number"),
        (topic("t", tombstone="n"), "which is int and not true or false"),
        (topic("t", format="raw"), "is raw and takes its value from column 'value'"),
    ],
)
def test_a_wrong_column_of_a_sink_is_reported(spark: SparkSession, sink: Topic, said: str) -> None:
    """By what it is for, and what is there instead."""
    from ottla.spark.pipelines.outputs import records
    from ottla.spark.pipelines.topics import PipelineError

    with pytest.raises(PipelineError) as raised:
        records(spark.sql("select 'a' as page, 1 as n"), sink, "sink")
    assert said in str(raised.value)
