"""Arrow columns into record batches, by both forms of the codec, held against slow models."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.producer import column_batches
from ottla.client.producer.column_batches import ColumnBatches, EncodedBatch
from ottla.client.producer.raw_producer import RawProducer
from ottla.wire.records import HEADER_BYTES, Record, read_header, read_records
from tests.client.forms import codec_forms
from tests.client.reading import make_topic, read_all

forms = pytest.mark.parametrize("codec", codec_forms())
BYTES_KINDS = (pa.binary(), pa.large_binary(), pa.binary_view())
TEXT_KINDS = (pa.string(), pa.large_string(), pa.string_view())
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

text = st.none() | st.text(max_size=8)
content = st.none() | st.binary(max_size=40)
header = st.fixed_dictionaries({"key": st.text(max_size=5), "value": content})
row = st.tuples(
    text, content, st.none() | st.integers(0, 2), st.none() | st.lists(header, max_size=3)
)


@contextmanager
def using(codec: ModuleType) -> Iterator[None]:
    """Let ColumnBatches run on this form of the codec."""
    names = ("ArrowBytes", "ArrowHeaders", "ColumnWriter")
    before = {name: getattr(column_batches, name) for name in names}
    for name in names:
        setattr(column_batches, name, getattr(codec, name))
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(column_batches, name, value)


def java_partition(key: bytes, count: int) -> int:
    """Java's default partitioner, line by line in 32-bit arithmetic with a sign."""

    def signed(number: int) -> int:
        return (number + 2**31) % 2**32 - 2**31

    def shifted(number: int, by: int) -> int:
        return (number % 2**32) >> by

    m = 0x5BD1E995
    h = signed(0x9747B28C ^ len(key))
    for i in range(len(key) // 4):
        k = signed(sum(key[4 * i + j] << 8 * j for j in range(4)))
        k = signed(k * m)
        k = signed(signed(k ^ shifted(k, 24)) * m)
        h = signed(signed(h * m) ^ k)
    tail = len(key) // 4 * 4
    for j in reversed(range(len(key) - tail)):
        h = signed(h ^ key[tail + j] << 8 * j)
        if j == 0:
            h = signed(h * m)
    h = signed(signed(h ^ shifted(h, 13)) * m)
    h = signed(h ^ shifted(h, 15))
    return (h & 0x7FFFFFFF) % count


def records_by_partition(batches: list[EncodedBatch]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for batch in batches:
        records = read_records(batch.data)
        assert [each.offset for each in records] == list(range(batch.records))
        found.setdefault(batch.partition, []).extend(records)
    return found


def column(draw: Any, items: list[Any], kind: pa.DataType) -> Any:
    """The items as an array of this kind, perhaps a slice of a longer one, perhaps in chunks."""
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    padding = items[:1] or [None]
    whole = pa.array(padding * before + items + padding * after, kind)
    array = whole.slice(before, len(items))
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(items)))
        return pa.chunked_array([array.slice(0, cut), array.slice(cut)], kind)
    return array


@forms
@given(
    rows=st.lists(row, min_size=1, max_size=40),
    count=st.integers(3, 5),
    codec_name=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    batch_bytes=st.integers(70, 2000),
    spread_from=st.integers(0, 9),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_rows_come_out_as_they_went_in(
    codec: ModuleType,
    rows: list[Any],
    count: int,
    codec_name: str,
    batch_bytes: int,
    spread_from: int,
    data: Any,
) -> None:
    """Every row is in one batch of its partition, whole and in order, in whatever layout it came:
    the partition given, else Java's for its key, else runs over all partitions."""
    keys, values, partitions, headers = (list(each) for each in zip(*rows, strict=True))
    draw = data.draw
    times = list(range(1000, 1000 + len(rows)))
    with using(codec):
        batches = ColumnBatches(
            count, compression=codec_name, batch_bytes=batch_bytes, spread_from=spread_from
        )
        batches.add(
            column(draw, values, draw(st.sampled_from(BYTES_KINDS))),
            column(draw, keys, draw(st.sampled_from(TEXT_KINDS))),
            column(draw, partitions, draw(st.sampled_from([pa.int32(), pa.int64(), pa.uint8()]))),
            column(draw, headers, draw(st.sampled_from([pa.list_(HEADER), pa.large_list(HEADER)]))),
            column(draw, times, pa.int64()),
        )
        taken = batches.take() + batches.take(rest=True)
        assert batches.take(rest=True) == []
    found = records_by_partition(taken)
    place_of = {each.timestamp: number for number in found for each in found[number]}
    for number, records in found.items():
        assert [each.timestamp for each in records] == sorted(each.timestamp for each in records)
        for each in records:
            key, value, partition, header_row = rows[each.timestamp - 1000]
            assert each.key == (None if key is None else key.encode())
            assert each.value == value
            assert list(each.headers) == [(h["key"], h["value"]) for h in header_row or ()]
            if partition is not None:
                assert number == partition
            elif key is not None:
                assert number == java_partition(key.encode(), count)
    assert sorted(place_of) == times
    at = spread_from % count
    for index, (key, _, partition, _) in enumerate(rows):
        if key is None and partition is None:
            here = place_of[1000 + index]
            assert here in (at, (at + 1) % count)
            at = here
    for batch in taken:
        assert len(batch.data) <= batch_bytes or batch.records == 1


@forms
def test_full_batches_can_be_taken_early(codec: ModuleType) -> None:
    """What is full is out before the rest; a batch is nearly as large as it may be."""
    with using(codec):
        batches = ColumnBatches(1, batch_bytes=10_000)
        batches.add(pa.array([b"x" * 90] * 1000))
        full = batches.take()
        rest = batches.take(rest=True)
    assert len(rest) == 1
    assert len(full) == 9
    assert all(9_900 < len(batch.data) <= 10_000 for batch in full)
    assert sum(batch.records for batch in full + rest) == 1000


@forms
def test_rows_without_keys_fill_all_partitions_evenly(codec: ModuleType) -> None:
    """In runs of an eighth of a batch: no partition is more than a run ahead."""
    with using(codec):
        batches = ColumnBatches(4, batch_bytes=8_000, spread_from=6)
        batches.add(pa.array([b"x" * 90] * 2000))
        assert 0 <= batches.spread_to < 4
        sizes = dict.fromkeys(range(4), 0)
        taken = batches.take(rest=True)
    for batch in taken:
        sizes[batch.partition] += len(batch.data) - HEADER_BYTES
    assert max(sizes.values()) - min(sizes.values()) <= 1_100
    assert len(taken) <= 2000 * 100 // 8_000 + 4 + 1


@forms
def test_open_batches_are_closed_when_they_hold_too_much(
    codec: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many partitions, each with a little: what is open stays below a limit."""
    monkeypatch.setattr(column_batches, "OPEN_BYTES_MAX", 50_000)
    with using(codec):
        batches = ColumnBatches(100, batch_bytes=100_000)
        numbers = pa.array([i % 100 for i in range(5000)])
        batches.add(pa.array([b"x" * 90] * 5000), partitions=numbers)
        early = batches.take()
        rest = batches.take(rest=True)
    assert sum(len(batch.data) - HEADER_BYTES for batch in rest) <= 50_000
    assert sum(batch.records for batch in early + rest) == 5000


@forms
def test_a_row_larger_than_a_batch_goes_alone(codec: ModuleType) -> None:
    """The limit gives way to a single row, and to nothing else."""
    with using(codec):
        batches = ColumnBatches(1, batch_bytes=500)
        batches.add(pa.array([b"a", b"x" * 5000, b"b", b"c"]))
        taken = batches.take(rest=True)
    assert [batch.records for batch in taken] == [1, 1, 2]
    values = [record.value for record in records_by_partition(taken)[0]]
    assert values == [b"a", b"x" * 5000, b"b", b"c"]


@forms
def test_times_of_rows(codec: ModuleType) -> None:
    """A number for all, a column of numbers or timestamps, or now; null means now."""
    micros = pa.array([1_500_999, None], pa.timestamp("us", tz="UTC"))
    cases: list[tuple[Any, list[int | None]]] = [
        (5, [5, 5]),
        (None, [None, None]),
        (pa.array([7, None]), [7, None]),
        (micros, [1500, None]),
        (pa.nulls(2), [None, None]),
        (pa.array([9, 3]), [9, 3]),
    ]
    for given_times, expected in cases:
        before = int(time.time() * 1000)
        with using(codec):
            batches = ColumnBatches(1)
            batches.add(pa.array([b"a", b"b"]), timestamps_ms=given_times)
            (batch,) = batches.take(rest=True)
        now = int(time.time() * 1000)
        for record, time_ms in zip(read_records(batch.data), expected, strict=True):
            if time_ms is None:
                assert before <= record.timestamp <= now
            else:
                assert record.timestamp == time_ms
        assert read_header(batch.data).max_timestamp == max(
            record.timestamp for record in read_records(batch.data)
        )


@forms
@pytest.mark.parametrize(
    "array",
    [
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array(["ab", None, "cd"]).dictionary_encode(),
        pa.array([b"ab", None, b"cd"]).cast(pa.binary_view()),
    ],
    ids=["fixed size", "dictionary", "view"],
)
def test_other_layouts_of_bytes(codec: ModuleType, array: Any) -> None:
    """Fixed sizes, dictionaries and views are what their values are."""
    with using(codec):
        batches = ColumnBatches(1)
        batches.add(array, array)
        (batch,) = batches.take(rest=True)
    records = read_records(batch.data)
    assert [each.value for each in records] == [b"ab", None, b"cd"]
    assert [each.key for each in records] == [b"ab", None, b"cd"]


@forms
def test_columns_of_nothing_but_nulls(codec: ModuleType) -> None:
    """A null column is a null in every row, also inside headers; no rows are no batch."""
    only_names = pa.array([[{"key": "a", "value": None}]] * 2, pa.list_(HEADER))
    with using(codec):
        batches = ColumnBatches(1)
        batches.add(pa.nulls(2), pa.nulls(2), pa.nulls(2, pa.int32()), only_names, pa.nulls(2))
        batches.add(pa.array([], pa.binary()), headers=pa.array([], pa.list_(HEADER)))
        (batch,) = batches.take(rest=True)
    records = read_records(batch.data)
    assert [(each.key, each.value, list(each.headers)) for each in records] == [
        (None, None, [("a", None)])
    ] * 2


@forms
def test_what_cannot_be_written_is_refused(codec: ModuleType) -> None:
    """Wrong types, partitions that are not there, headers without a name: each says so."""
    values = pa.array([b"a", b"b"])
    nameless = pa.array([[{"key": None, "value": b"x"}]] * 2, pa.list_(HEADER))
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"keys": pa.array([1, 2])}, TypeError, "keys must be binary or string"),
        ({"partitions": pa.array([0, 4])}, ValueError, "partition 4: the topic has 4"),
        ({"partitions": pa.array([-1, 0])}, ValueError, "partition -1"),
        ({"partitions": pa.array(["1", "2"])}, TypeError, "whole numbers"),
        ({"headers": values}, TypeError, "headers must be list"),
        ({"headers": nameless}, ValueError, "without a name"),
        ({"timestamps_ms": values}, TypeError, "timestamps_ms must be"),
        ({"keys": pa.array([b"one"])}, Exception, "length"),
    ]
    for columns, kind, words in cases:
        with using(codec), pytest.raises(kind, match=words):
            ColumnBatches(4).add(values, **columns)
    with pytest.raises(ValueError, match="compression must be one of none"):
        ColumnBatches(1, compression="brotli")
    with pytest.raises(ValueError, match="partition_count"):
        ColumnBatches(0)


@forms
def test_offsets_outside_of_their_data_are_refused(codec: ModuleType) -> None:
    """A column that was damaged before it came here ends in an error, not in foreign memory."""
    for ends in ([0, 100, 5], [0, 9, 5], [0, -3, 5]):
        offsets = pa.array(ends, pa.int32()).buffers()[1]
        values = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"x" * 10)])
        with using(codec), pytest.raises(ValueError, match="offsets"):
            ColumnBatches(1).add(values)
    with pytest.raises(ValueError, match="too small"):
        codec.ArrowBytes(b"", bytes(8), 4, b"", 0, 2, 0)


@forms
def test_compression_that_does_not_help_is_left_out(codec: ModuleType) -> None:
    """Random bytes go uncompressed, and so never above the limit; others get smaller."""
    import os

    with using(codec):
        batches = ColumnBatches(1, compression="gzip", batch_bytes=1000)
        batches.add(pa.array([os.urandom(900)]))
        batches.add(pa.array([b"x" * 900]))
        random, plain = batches.take(rest=True)
    assert read_header(random.data).compression == 0
    assert len(random.data) <= 1000
    assert read_header(plain.data).compression == 1
    assert len(plain.data) < 200


@forms
def test_a_consumer_reads_the_rows(codec: ModuleType, bootstrap: str, topic: str) -> None:
    """Through a broker to another library's consumer: keys, values, headers, order, partitions."""
    make_topic(bootstrap, topic, partitions=3)
    count = 3000
    keys = [None if i % 5 == 0 else b"key-%d" % (i % 40) for i in range(count)]
    headers = [[{"key": "n", "value": b"%d" % i}] if i % 3 else None for i in range(count)]
    with using(codec), RawProducer(bootstrap_servers=bootstrap) as producer:
        batches = ColumnBatches(3, compression="zstd", batch_bytes=4000)
        for start in range(0, count, 700):
            stop = min(start + 700, count)
            batches.add(
                pa.array([b"%d" % i for i in range(start, stop)]),
                pa.array(keys[start:stop]),
                headers=pa.array(headers[start:stop], pa.list_(HEADER)),
                timestamps_ms=77,
            )
            for batch in batches.take(rest=stop == count):
                producer.send_batch(topic, batch.partition, batch.data, batch.records)
    seen = read_all(bootstrap, topic)
    assert sorted(int(each.value or b"") for each in seen) == list(range(count))
    for each in seen:
        number = int(each.value or b"")
        assert each.key == keys[number]
        assert each.headers == ([("n", b"%d" % number)] if number % 3 else [])
        assert each.timestamp == 77
        if each.key is not None:
            assert each.partition == java_partition(each.key, 3)
    for partition in range(3):
        order = [int(each.value or b"") for each in seen if each.partition == partition]
        assert order == sorted(order)
