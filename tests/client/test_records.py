"""The record codec, plain and compiled: both are held against the wire's own simple codec."""

from __future__ import annotations

import gc
import importlib.util
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.structs import ConsumerRecord
from ottla.wire.records import HEADER_BYTES, Record, crc32c, read_header, read_records, write_batch
from tests.client.forms import codec_forms

KNOWN_HASHES = {  # from the tests of Kafka's own clients
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
content = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=10), content), max_size=3)
rows = st.lists(
    st.tuples(st.integers(0, 2**41), content, content, headers), min_size=1, max_size=30
)


codecs = pytest.mark.parametrize("codec", codec_forms())


def batch_of(written: list[tuple[int, Any, Any, Any]]) -> bytes:
    return write_batch(
        [Record(value, key=key, headers=h, timestamp=time) for time, key, value, h in written]
    )


def consumer_records(codec: ModuleType, batch: bytes, first_offset: int = 0) -> list[Any]:
    head = read_header(batch)
    found: list[Any] = codec.read_consumer_records(
        batch[HEADER_BYTES:], head.record_count, 0, head.base_timestamp, -1, first_offset,
        ("t", 3, 7), None, None, ConsumerRecord,
    )  # fmt: skip
    return found


@codecs
@given(written=rows)
@settings(max_examples=60, deadline=None)
def test_appended_records_are_what_the_wire_writes(
    codec: ModuleType, written: list[tuple[int, Any, Any, Any]]
) -> None:
    """A batch built record by record has the same bytes as one written at once."""
    builder = codec.BatchBuilder(64)
    for time, key, value, h in written:
        while (size := builder.append(time, key, value, h)) < 0:
            builder.grow(builder.byte_capacity * 2 - size)
    assert bytes(builder.body()) == batch_of(written)[HEADER_BYTES:]
    assert builder.record_count == len(written)
    assert builder.first_timestamp == written[0][0]
    assert builder.last_timestamp == max(time for time, *_ in written)


@codecs
def test_a_full_builder_takes_nothing_and_says_how_much_it_needs(codec: ModuleType) -> None:
    """What does not fit leaves the builder as it was, and the answer is minus the bytes needed."""
    builder = codec.BatchBuilder(20)
    assert builder.append(5, None, b"1234", ()) == 11
    assert builder.append(5, None, b"1234", ()) == -11
    assert (builder.record_count, builder.byte_count) == (1, 11)
    builder.grow(22)
    assert builder.append(5, bytearray(b""), memoryview(b"1234"), ()) == 22
    big = 20_000
    builder.grow(big + 100)
    assert builder.append(5, None, b"x" * big, ()) == 22 + big + 11


@codecs
def test_keys_hash_as_in_java(codec: ModuleType) -> None:
    """murmur2 gives the values that Java's client gives, without their sign."""
    for key, expected in KNOWN_HASHES.items():
        assert codec.murmur2(key) == expected & 0x7FFFFFFF
    assert codec.murmur2(bytearray(b"abc")) == 479470107
    assert codec.murmur2(b"") == 275646681


@codecs
@given(first=st.binary(max_size=60), second=st.binary(max_size=60), rest=st.binary(max_size=5000))
def test_a_checksum_follows_a_change_before_the_rest(
    codec: ModuleType, first: bytes, second: bytes, rest: bytes
) -> None:
    """From the checksums of two beginnings and of one whole: that of the other whole."""
    second = second[: len(first)].ljust(len(first), b".")
    difference = crc32c(first) ^ crc32c(second)
    changed = crc32c(first + rest) ^ codec.carried(difference, len(rest))
    assert changed == crc32c(second + rest)


@codecs
@given(written=rows, first=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_records_read_are_what_the_wire_reads(
    codec: ModuleType, written: list[tuple[int, Any, Any, Any]], first: int
) -> None:
    """Every field of every record from the first wanted offset on."""
    batch = batch_of(written)
    expected = [each for each in read_records(batch) if each.offset >= first]
    found = consumer_records(codec, batch, first)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found] == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in expected
    ]
    for record in found:
        assert record[:3] == ("t", 3, 7)
        assert record.timestamp_type == 0
        assert record.serialized_key_size == (-1 if record.key is None else len(record.key))
        assert record.serialized_value_size == (-1 if record.value is None else len(record.value))
        assert (record.serialized_header_size == -1) == (not record.headers)


@codecs
@given(batches=st.lists(rows, min_size=1, max_size=3), first=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_columns_hold_what_the_records_hold(
    codec: ModuleType, batches: list[list[tuple[int, Any, Any, Any]]], first: int
) -> None:
    """Several batches, one set of columns: offsets, times, keys, values, nulls and headers."""
    columns = codec.Columns()
    expected = []
    for written in batches:
        batch = batch_of(written)
        head = read_header(batch)
        expected += [each for each in read_records(batch) if each.offset >= first]
        codec.read_columns(
            batch[HEADER_BYTES:], head.record_count, 0, head.base_timestamp, -1, first, columns
        )
    count = columns.count
    assert count == len(expected)
    assert list(memoryview(columns.offsets).cast("q")) == [r.offset for r in expected]
    assert list(memoryview(columns.timestamps).cast("q")) == [r.timestamp for r in expected]
    assert unpacked(columns.keys, count) == [r.key for r in expected]
    assert unpacked(columns.values, count) == [r.value for r in expected]
    assert columns.keys.nulls == sum(r.key is None for r in expected)
    assert headers_of(columns) == [r.headers for r in expected]


def headers_of(columns: Any) -> list[list[tuple[str, bytes | None]]]:
    """The headers of each row, and a bit for each that has some."""
    lists = columns.header_lists
    if len(lists.offsets) == 4:
        return [[] for _ in range(columns.count)]
    ends = struct.unpack(f"={columns.count + 1}i", lists.offsets)
    names = unpacked(columns.header_names, ends[-1])
    values = unpacked(columns.header_values, ends[-1])
    assert columns.header_values.nulls == values.count(None)
    pairs = [((name or b"").decode(), value) for name, value in zip(names, values, strict=True)]
    found = [pairs[ends[row] : ends[row + 1]] for row in range(columns.count)]
    for row, each in enumerate(found):
        assert bool(lists.validity[row >> 3] >> (row & 7) & 1) == bool(each)
    return found


def unpacked(column: Any, count: int) -> list[bytes | None]:
    ends = struct.unpack(f"={count + 1}i", column.offsets)
    return [
        bytes(column.data[ends[i] : ends[i + 1]])
        if column.validity[i >> 3] >> (i & 7) & 1
        else None
        for i in range(count)
    ]


@codecs
def test_deserializers_and_append_time(codec: ModuleType) -> None:
    """Deserializers see bytes or None; under LogAppendTime every record has the batch's time."""
    body = batch_of([(5, b"k", None, [])])[HEADER_BYTES:]
    (record,) = codec.read_consumer_records(
        body, 1, 40, 5, 99, 0, ("t", 0, 1), lambda k: k.decode(), lambda v: v, ConsumerRecord
    )
    assert (record.offset, record.timestamp, record.timestamp_type) == (40, 99, 1)
    assert (record.key, record.value) == ("k", None)


@codecs
@given(written=rows, cut=st.integers(0, 400), place=st.integers(0, 400), byte=st.integers(0, 255))
@settings(max_examples=120, deadline=None)
def test_damage_is_named_and_never_more(
    codec: ModuleType, written: list[tuple[int, Any, Any, Any]], cut: int, place: int, byte: int
) -> None:
    """Cut or changed bytes end in CorruptRecords or in records, never in anything else."""
    head = read_header(batch_of(written))
    body = bytearray(batch_of(written)[HEADER_BYTES:])
    body[place % len(body)] = byte
    for data in bytes(body), bytes(body[: cut % len(body)]):
        columns = codec.Columns()
        try:
            codec.read_columns(data, head.record_count, 0, 0, -1, 0, columns)
        except codec.CorruptRecords:
            assert columns.count == 0
        try:
            found = codec.read_consumer_records(
                data, head.record_count, 0, 0, -1, 0, ("t", 0, 0), None, None, ConsumerRecord
            )
        except codec.CorruptRecords:
            assert columns.count == 0
        else:
            assert columns.count == len(found)


@codecs
@given(written=rows)
@settings(max_examples=30, deadline=None)
def test_a_view_is_read_in_place(
    codec: ModuleType, written: list[tuple[int, Any, Any, Any]]
) -> None:
    """Records and columns of a view of shared memory are those of its bytes, and stay when the
    memory is written over."""
    batch = batch_of(written)
    head = read_header(batch)
    memory = bytearray(b"..." + batch)
    view = memoryview(memory)[3:]
    found = codec.read_consumer_records(
        view, head.record_count, 0, head.base_timestamp, -1, 0, ("t", 3, 7), None, None,
        ConsumerRecord, HEADER_BYTES,
    )  # fmt: skip
    columns = codec.Columns()
    codec.read_columns(
        view, head.record_count, 0, head.base_timestamp, -1, 0, columns, HEADER_BYTES
    )
    memory[:] = bytes(len(memory))
    view.release()
    memory.clear()  # nobody holds on to it
    assert found == consumer_records(codec, batch)
    assert [type(each) for each in found] == [ConsumerRecord] * len(written)
    assert unpacked(columns.values, columns.count) == [each.value for each in found]


@codecs
def test_a_header_cut_off_is_damage(codec: ModuleType) -> None:
    """A header whose content is longer than its record ends in CorruptRecords, nothing else."""
    batch = batch_of([(0, None, b"v", [("name", b"content")])])
    head = read_header(batch)
    body = bytearray(batch[HEADER_BYTES:])
    place = body.index(b"content") - 1
    for size in 0x7E, 0x10, 0x0C, 0x00:
        body[place] = size
        with pytest.raises(codec.CorruptRecords):
            codec.read_consumer_records(
                bytes(body), head.record_count, 0, 0, -1, 0, ("t", 0, 0), None, None, ConsumerRecord
            )
        with pytest.raises(codec.CorruptRecords):
            codec.read_columns(bytes(body), head.record_count, 0, 0, -1, 0, codec.Columns())


@codecs
def test_records_are_made_as_tuples_only(codec: ModuleType) -> None:
    """What is not a tuple class is refused before any memory is touched."""
    body = batch_of([(0, None, b"v", [])])[HEADER_BYTES:]
    with pytest.raises(TypeError):
        codec.read_consumer_records(body, 1, 0, 0, -1, 0, ("t", 0, 0), None, None, dict)


@codecs
@given(data=st.binary(max_size=3000), repeat=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_checksums_of_views_are_those_of_bytes(codec: ModuleType, data: bytes, repeat: int) -> None:
    """Small or large, bytes or a view: the CRC-32C is the same."""
    data *= repeat
    expected = crc32c(data)
    assert codec.checksum(data) == expected
    assert codec.checksum(memoryview(bytearray(b"x" + data))[1:]) == expected


def test_records_of_bytes_are_no_work_for_the_collector() -> None:
    """Compiled, records without deserializers are not tracked; with one, they are."""
    from ottla.client.codec import records

    if not records.COMPILED:
        pytest.skip("the record codec is not compiled")
    body = batch_of([(0, b"k", b"v", [])])[HEADER_BYTES:]
    for function, tracked in (None, False), (lambda value: [value], True):
        (record,) = records.read_consumer_records(
            body, 1, 0, 0, -1, 0, ("t", 0, 0), None, function, ConsumerRecord
        )
        assert gc.is_tracked(record) is tracked


def test_the_switch_takes_the_compiled_form_when_it_is_there() -> None:
    """records.py names one form of everything, and says which."""
    from ottla.client.codec import records

    assert isinstance(records.COMPILED, bool)
    assert records.BatchBuilder(10).append(0, None, b"", ()) > 0


def test_the_compiled_form_is_made_from_todays_source() -> None:
    """An extension that is older than its source would test and run something else."""
    path = Path(__file__).parents[2] / "scripts" / "compile.py"
    spec = importlib.util.spec_from_file_location("compile_script", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if not script.STAMP.exists():
        pytest.skip("not compiled here; try: make compile")
    assert script.STAMP.read_text() == script.source_hash(), "out of date; try: make compile"
