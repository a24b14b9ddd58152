"""Rows into record batches: the columns of Spark's connector, and its mistakes made plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from ottla.client.codec.records import murmur2  # noqa: E402
from ottla.spark.sink.rows import Layout, RowEncoder, SinkError, layout  # noqa: E402
from ottla.wire.records import read_header, read_records  # noqa: E402

HEADERS = "array<struct<key:string,value:binary>>"


def schema(ddl: str) -> Any:
    return types.StructType(
        [
            types.StructField(name, kind_of(kind))
            for name, kind in (each.split(" ", 1) for each in ddl.split("; "))
        ]
    )


def kind_of(text: str) -> Any:
    kinds = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        HEADERS: types.ArrayType(
            types.StructType(
                [
                    types.StructField("key", types.StringType()),
                    types.StructField("value", types.BinaryType()),
                ]
            )
        ),
    }
    return kinds[text]


def encode(where: Layout, *batches: Any, count: int = 4) -> list[tuple[str, int, Any]]:
    """(topic, partition, record) of all rows, in the order of the batches made."""
    encoder = RowEncoder(
        where, lambda topic: count, compression="none", batch_bytes=1 << 16, spread_from=0
    )
    made = [piece for batch in batches for piece in encoder.add(batch)]
    made += encoder.finish()
    found = []
    for piece in made:
        assert read_header(memoryview(piece.data)).record_count == piece.records
        records: Sequence[Any] = read_records(memoryview(piece.data))
        found += [(piece.topic, piece.partition, record) for record in records]
    return found


def test_columns_may_come_in_any_order_and_with_others() -> None:
    """Only the named columns count, wherever they are; the rest is left alone."""
    where = layout(schema("other bigint; value binary; key string; partition int"), "t")
    assert where.positions == {"value": 1, "key": 2, "partition": 3}
    assert where.topic == "t"


@pytest.mark.parametrize(
    ("ddl", "topic", "words"),
    [
        ("key string", "t", "no column 'value'"),
        ("value string", None, "no topic to write to"),
        ("value bigint", "t", "'value' is bigint, and must be string or binary"),
        ("value string; key int", "t", "'key' is int"),
        ("value string; topic binary", None, "'topic' is binary, and must be string"),
        ("value string; partition bigint", "t", "'partition' is bigint, and must be int"),
        ("value string; headers string", "t", "'headers' is string, and must be array<struct<"),
    ],
)
def test_a_schema_that_cannot_be_written(ddl: str, topic: str | None, words: str) -> None:
    """What is missing or of the wrong type is named, with something to try."""
    with pytest.raises(SinkError) as caught:
        layout(schema(ddl), topic)
    assert words in str(caught.value)
    assert "\nTry: " in str(caught.value)


def test_rows_go_where_key_and_partition_say() -> None:
    """The partition column wins, then the key's hash; null keys and values stay null."""
    where = layout(schema(f"key binary; value string; partition int; headers {HEADERS}"), "t")
    keys = [b"a", b"b", None, b"a"]
    batch = pa.record_batch(
        [
            pa.array(keys, pa.binary()),
            pa.array(["1", None, "3", "4"], pa.string()),
            pa.array([None, None, 3, 2], pa.int32()),
            pa.array(
                [[("h", b"x"), ("g", None)], None, [], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        ],
        names=["key", "value", "partition", "headers"],
    )
    found = {
        (record.key, record.value): (place, record) for _, place, record in encode(where, batch)
    }
    assert found[b"a", b"1"][0] == murmur2(b"a") % 4
    assert found[b"b", None][0] == murmur2(b"b") % 4
    assert found[None, b"3"][0] == 3
    assert found[b"a", b"4"][0] == 2
    headers = [(key, value) for key, value in found[b"a", b"1"][1].headers]
    assert headers == [("h", b"x"), ("g", None)]


def test_rows_of_several_topics_keep_their_order() -> None:
    """A column of topics spreads rows over them; within each the order stays."""
    where = layout(schema("value string; topic string; key string"), None)
    names = ["x", "y", "x", "x", "y"]
    batches = [
        pa.record_batch(
            [
                pa.array([f"{n}{i}" for i in range(5)]),
                pa.array(names),
                pa.array(["k"] * 5),
            ],
            names=["value", "topic", "key"],
        )
        for n in (1, 2)
    ]
    found = encode(where, *batches)
    values = {t: [r.value.decode() for name, _, r in found if name == t] for t in "xy"}
    assert values == {"x": ["10", "12", "13", "20", "22", "23"], "y": ["11", "14", "21", "24"]}


@pytest.mark.parametrize(
    ("topics", "partitions", "words"),
    [(["t", None], [0, 0], "null in its column 'topic'"), (["t", "t"], [0, 4], "partition 4")],
)
def test_rows_that_cannot_be_written(
    topics: list[str | None], partitions: list[int], words: str
) -> None:
    """A null topic and a partition that the topic does not have are named."""
    where = layout(schema("value string; topic string; partition int"), None)
    batch = pa.record_batch(
        [pa.array(["a", "b"]), pa.array(topics), pa.array(partitions, pa.int32())],
        names=["value", "topic", "partition"],
    )
    with pytest.raises(SinkError, match=words):
        encode(where, batch)
