"""Records by column and as Arrow: the same records that poll gives, in both forms of the loops."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.client.codec.columns import RecordColumns
from ottla.client.codec.records import Columns, read_columns
from ottla.wire.records import (
    HEADER_BYTES,
    Record,
    read_header,
    write_batch,
)

SCHEMA = pyarrow.schema(
    [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("ms", tz="UTC")),
        ("timestampType", pyarrow.int32()),
    ]
)


def fill(bootstrap: str, topic: str, count: int, **options: Any) -> None:
    """Records with and without keys, values and headers."""
    with Producer(bootstrap_servers=bootstrap, linger_ms=20, **options) as producer:
        for n in range(count):
            producer.send(
                topic,
                None if n % 7 == 3 else b"value %d" % n,
                key=b"key %d" % n if n % 2 else None,
                headers=[("n", b"%d" % n), ("none", None)] if n % 5 == 0 else None,
                partition=0,
                timestamp_ms=1_700_000_000_000 + n,
            )


def batches(consumer: Consumer, count: int) -> list[RecordColumns]:
    found: list[RecordColumns] = []
    while sum(len(each) for each in found) < count:
        found += consumer.poll_batches(1000)
    return found


def test_arrow_has_what_poll_has(any_bootstrap: str, topic: str) -> None:
    """Every column of the record batches equals the field of the polled records."""
    fill(any_bootstrap, topic, 1000)
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=any_bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        found = batches(consumer, 1000)
        assert consumer.position(partition) == 1000
        consumer.seek(partition, 0)
        records: list[Any] = []
        while len(records) < 1000:
            for each in consumer.poll(1000).values():
                records += each
    made = [each.to_arrow(headers=True) for each in found]
    table = pyarrow.Table.from_batches(made)
    made[0].validate(full=True)
    assert table.schema.names == [*SCHEMA.names, "headers"]
    assert all(table.schema.field(name) == SCHEMA.field(name) for name in SCHEMA.names)
    assert table["key"].to_pylist() == [each.key for each in records]
    assert table["value"].to_pylist() == [each.value for each in records]
    assert table["offset"].to_pylist() == [each.offset for each in records]
    assert table["timestamp"].cast("int64").to_pylist() == [each.timestamp for each in records]
    assert set(table["topic"].to_pylist()) == {topic}
    assert set(table["timestampType"].to_pylist()) == {0}
    assert [
        [(each["key"], each["value"]) for each in row] for row in table["headers"].to_pylist()
    ] == [each.headers for each in records]
    assert [value for each in found for value in each.values] == [each.value for each in records]
    assert [key for each in found for key in each.keys] == [each.key for each in records]
    assert found[0].offsets[0] == 0


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_columns_begin_at_the_position(bootstrap: str, topic: str, codec: str) -> None:
    """A batch that begins before the position gives only what is behind it; a poll that was left
    in the middle of a batch goes on by column without a gap."""
    fill(bootstrap, topic, 300, compression_type=codec)
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 123)
        assert [n for each in batches(consumer, 177) for n in each.offsets] == list(range(123, 300))
        consumer.seek(partition, 0)
        while not (polled := consumer.poll(1000, max_records=10)):
            pass
        assert [each.offset for each in polled[partition]] == list(range(10))
        assert [n for each in batches(consumer, 290) for n in each.offsets] == list(range(10, 300))


def test_the_time_of_the_log(bootstrap: str, topic: str, make_topic: Callable[..., None]) -> None:
    """With LogAppendTime every row has the log's time and says so."""
    make_topic(topic, 1, **{"message.timestamp.type": "LogAppendTime"})
    fill(bootstrap, topic, 10)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (found,) = batches(consumer, 10)
    assert found.timestamp_type == 1
    assert set(found.to_arrow()["timestampType"].to_pylist()) == {1}
    assert min(found.timestamps) > 1_700_000_001_000


def test_one_entry_for_each_partition(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """Each partition has its own columns; after `max_records` no further batch is opened."""
    make_topic(topic, 3)
    for _ in range(3):
        with Producer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
            for n in range(30):
                producer.send(topic, b"%d" % n, partition=n % 3)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        while sum(map(len, seen.values())) < 90:
            for each in consumer.poll_batches(1000, max_records=5):
                assert len(each) <= 30
                seen[each.partition.partition] += list(each.offsets)
    assert seen == {n: list(range(30)) for n in range(3)}


def test_the_plain_loops_give_the_same(bootstrap: str, topic: str) -> None:
    """Without the compiled loops (OTTLA_PURE=1) poll and Arrow give the same records."""
    fill(bootstrap, topic, 200)
    script = f"""
from ottla import Consumer, TopicPartition
from ottla.client.codec.records import COMPILED
import hashlib
seen = hashlib.sha256()
partition = TopicPartition({topic!r}, 0)
with Consumer(bootstrap_servers={bootstrap!r}, auto_offset_reset="earliest") as consumer:
    consumer.assign([partition])
    count = 0
    while count < 200:
        for records in consumer.poll(1000).values():
            for each in records:
                seen.update(repr(each).encode())
                count += 1
    consumer.seek(partition, 0)
    rows = []
    while len(rows) < 200:
        for each in consumer.poll_batches(1000):
            rows += each.to_arrow(headers=True).to_pylist()
    seen.update(repr(rows).encode())
print(seen.hexdigest())
"""
    outputs = set()
    for pure in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "OTTLA_PURE": pure},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_headers_become_lists_whatever_their_names() -> None:
    """Names that are not UTF-8 are text with replacements; without headers: empty lists or null."""
    made = write_batch([Record(b"a", headers=[("n?", b"x"), ("m", None)]), Record(b"b")])
    odd = bytearray(made)
    odd[odd.index(b"n?") + 1] = 0xFF
    plain = write_batch([Record(b"c"), Record(b"d")])
    partition = TopicPartition("t", 0)
    for data, expected in (
        (bytes(odd), [[("n\ufffd", b"x"), ("m", None)], []]),
        (made, [[("n?", b"x"), ("m", None)], []]),
        (plain, [[], []]),
    ):
        header = read_header(data)
        columns = Columns()
        read_columns(data, 2, 0, header.base_timestamp, -1, 0, columns, HEADER_BYTES)
        found = RecordColumns(partition, columns, False)
        assert found.headers == expected
        for array, missing in (
            (found.to_arrow(headers=True)["headers"], []),
            (found.to_arrow(columns=["headers"])["headers"], None),
        ):
            array.validate(full=True)
            assert array.to_pylist() == [
                [{"key": key, "value": value} for key, value in row] or missing for row in expected
            ]
        found.cut(1)
        assert len(found.to_arrow(columns=["headers"])) == len(found.headers) == 1


def test_arrow_does_not_bring_pandas() -> None:
    """Columns become Arrow without an import of pandas, which would take longer than the rest."""
    program = (
        "import sys\n"
        "from ottla.client.codec.columns import RecordColumns\n"
        "from ottla.client.codec.records import Columns, read_columns\n"
        "from ottla.client.structs import TopicPartition\n"
        "from ottla.wire.records import HEADER_BYTES, Record, write_batch\n"
        "columns = Columns()\n"
        "batch = write_batch([Record(b'v%d' % n, timestamp=5) for n in range(3)])\n"
        "read_columns(batch, 3, 0, 5, -1, 0, columns, HEADER_BYTES)\n"
        "made = RecordColumns(TopicPartition('söme', 7), columns, False).to_arrow()\n"
        "finer = RecordColumns(TopicPartition('söme', 7), columns, False).to_arrow(unit='us')\n"
        "loaded = {'pandas', 'pyarrow.compute'} & set(sys.modules)\n"
        "assert finer.column('timestamp').cast('int64').to_pylist() == [5000] * 3\n"
        "made.validate(full=True)\n"
        "assert made.column('topic').to_pylist() == ['söme'] * 3\n"
        "assert made.column('partition').to_pylist() == [7] * 3\n"
        "assert made.column('timestampType').to_pylist() == [0] * 3\n"
        "assert made.column('value').to_pylist() == [b'v0', b'v1', b'v2']\n"
        "assert not loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_times_that_do_not_fit_the_unit_are_refused() -> None:
    """A timestamp beyond the years of microseconds is an error, not another time; none is none."""
    from ottla.client.codec.columns import times_array

    for far in 2**62, -(2**62):
        data = bytearray(struct.pack("=qq", 5, far))
        with pytest.raises(pyarrow.ArrowInvalid):
            times_array(pyarrow, data, 2, "us")
        assert times_array(pyarrow, data, 1, "ms").cast("int64").to_pylist() == [5]
    near = bytearray(struct.pack("=qq", -1, 1_700_000_000_000))
    found = times_array(pyarrow, near, 2, "us")
    assert found.cast("int64").to_pylist() == [-1000, 1_700_000_000_000_000]
    assert found.type == pyarrow.timestamp("us", tz="UTC")
    assert len(times_array(pyarrow, bytearray(), 0, "us")) == 0
