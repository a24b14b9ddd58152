"""The fast reader of plain batches beside the general one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.compression import Compression
from ottla.wire.control import COMMIT, write_marker
from ottla.wire.key_values import KeyValue, read_key_values
from ottla.wire.records import CorruptBatch, Record, read_records, write_batch

DATA = st.one_of(
    st.none(), st.binary(max_size=30), st.sampled_from([63, 64, 8191, 8192, 20_000]).map(bytes)
)
RECORDS = st.lists(
    st.tuples(DATA, DATA, st.integers(0, 3), st.integers(0, 3_000_000), st.booleans()),
    min_size=1,
    max_size=5,
)


def batch_of(
    base_offset: int, drawn: list[tuple[bytes | None, bytes | None, int, int, bool]]
) -> bytes:
    records, offset = [], base_offset
    for key, value, gap, timestamp, header in drawn:
        offset += gap
        headers = [("name", b"x")] if header else []
        records.append(
            Record(value, key=key, headers=headers, timestamp=1000 + timestamp, offset=offset)
        )
        offset += 1
    return write_batch(records, base_offset=base_offset)


def in_general(data: bytes) -> list[KeyValue]:
    return [(each.key, each.value, each.offset) for each in read_records(data)]


@given(st.lists(RECORDS, max_size=4), st.integers(0, 2**40))
@settings(max_examples=200, deadline=None)
def test_the_same_as_the_general_reader(
    batches: list[list[tuple[bytes | None, bytes | None, int, int, bool]]], base_offset: int
) -> None:
    """Keys, values and offsets, whatever their sizes, with gaps, nulls and record headers."""
    data, expected, offset = b"", [], base_offset
    for drawn in batches:
        batch = batch_of(offset, drawn)
        expected += in_general(batch)
        offset = expected[-1][2] + 1
        data += batch
    found: list[KeyValue] = []
    position, next_offset = read_key_values(data, 0, found, 1000)
    assert found == expected
    assert position == len(data)
    assert next_offset == (offset if batches else -1)


PLAIN = write_batch([Record(b"v", key=b"k", timestamp=1) for _ in range(200)])
ONE = write_batch([Record(b"v", key=b"k", timestamp=1)])


@pytest.mark.parametrize(
    "other",
    [
        write_batch([Record(b"v", key=b"k")], compression=Compression.GZIP),
        write_batch([Record(b"v", key=b"k")], producer_id=1, producer_epoch=0, transactional=True),
        write_marker(COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1),
        PLAIN[:-1],
        PLAIN[:40],
        b"",
    ],
)
def test_stops_before_a_batch_of_another_kind(other: bytes) -> None:
    """Compressed, transactional, a marker, or cut off: the plain ones before it are read."""
    found: list[KeyValue] = []
    position, _ = read_key_values(ONE + PLAIN + other, 0, found, 1000)
    assert len(found) == 201
    assert position == len(ONE + PLAIN) or not other


def test_stops_at_the_limit() -> None:
    """After the batch that reaches it: what follows is for the next call."""
    found: list[KeyValue] = []
    position, _ = read_key_values(PLAIN * 3, 0, found, 201)
    assert (len(found), position) == (400, 2 * len(PLAIN))


@given(st.integers(61, len(PLAIN) - 1), st.integers(1, 255))
@settings(max_examples=100, deadline=None)
def test_damage_is_found(position: int, change: int) -> None:
    """A changed byte is a wrong checksum, as for the general reader."""
    damaged = bytearray(PLAIN)
    damaged[position] ^= change
    with pytest.raises(CorruptBatch):
        read_key_values(bytes(damaged), 0, [], 1000)
