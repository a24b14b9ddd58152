"""The offset map of compaction, in both forms, beside a dict."""

import random
import struct

import pytest

from ottla.log.batch import Batch, scan_records
from ottla.log.offset_map import SLOT_BYTES, OffsetMap, offset_map_of
from ottla.wire.records import CorruptBatch, Record, write_batch
from tests.log.offset_map_forms import COMPILED, FORMS

SECRET = bytes(range(16))
Form = type[OffsetMap]


def records_of(*pairs: tuple[bytes | None, bytes | None]) -> bytes:
    """The inside of a batch of these keys and values."""
    return Batch(
        memoryview(write_batch([Record(value, key=key) for key, value in pairs]))
    ).records()


@pytest.mark.parametrize("form", FORMS)
def test_the_map_has_a_limit(form: Form) -> None:
    """Keys go in up to the limit, but one batch always does, or nothing would move."""
    offsets = form(12, 10, SECRET)
    assert offsets.has_capacity(1_000)
    offsets.add(records_of(*[(bytes([n]), b"") for n in range(8)]), 8, 0, 0)
    assert len(offsets) == 8
    assert offsets.has_capacity(2)
    assert not offsets.has_capacity(3)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_larger_than_the_map_goes_in(form: Form) -> None:
    """The first batch of a pass is learned whole, whatever the budget is."""
    offsets = form(2, 1, SECRET)
    assert offsets.has_capacity(100)
    offsets.add(records_of(*[(b"%d" % n, b"") for n in range(100)]), 100, 5, 0)
    assert [offsets.get(b"%d" % n) for n in range(100)] == list(range(5, 105))
    assert not offsets.has_capacity(1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keys", [1, 90, 99])
def test_the_map_holds_what_a_dict_holds(form: Form, keys: int) -> None:
    """Keys of every length, put again and again into a table that is nearly full."""
    chance = random.Random(keys)
    offsets = form(100, 99, SECRET)
    names = [b"k" * n if n % 2 else chance.randbytes(n) for n in range(keys)]
    model: dict[bytes, int] = {}
    for base_offset in range(0, 400, 4):
        chosen = [chance.choice(names) for _ in range(4)]
        offsets.add(records_of(*[(name, b"") for name in chosen]), 4, base_offset, 0)
        model.update({name: base_offset + n for n, name in enumerate(chosen)})
    assert {name: offsets.get(name) for name in model} == model
    assert len(offsets) == len(model)
    assert offsets.get(b"another key") == -1


@pytest.mark.parametrize("form", FORMS)
def test_records_below_the_start_and_without_a_key_are_not_learned(form: Form) -> None:
    """Only keys, and only from the first dirty offset on."""
    offsets = form(10, 9, SECRET)
    offsets.add(records_of((b"a", b""), (b"b", b""), (None, b""), (b"", b"")), 4, 10, 11)
    assert [offsets.get(key) for key in (b"a", b"b", b"")] == [-1, 11, 13]
    assert len(offsets) == 2


@pytest.mark.parametrize("form", FORMS)
def test_what_stays_of_a_batch(form: Form) -> None:
    """The last record of each key, all beyond the map's end, tombstones while they may."""
    offsets = form(10, 9, SECRET)
    data = records_of((b"a", b"1"), (b"b", b"1"), (None, b"1"), (b"a", b"2"), (b"c", None))
    offsets.add(data, 5, 0, 0)
    offsets.latest_offset = 4

    def kept(base_offset: int, tombstones_stay: bool) -> tuple[list[bytes | None], int, bool]:
        count, without_key, has_tombstone, _, left = offsets.keep(
            data, 5, base_offset, tombstones_stay
        )
        keys = [record.key for record in scan_records(left, count)]
        return keys, without_key, has_tombstone

    assert kept(0, True) == ([b"b", b"a", b"c"], 1, True)
    assert kept(0, False) == ([b"b", b"a"], 1, False)
    assert kept(-1, True) == ([], 1, False), "all is older than what the map knows"
    assert kept(5, True) == ([b"a", b"b", None, b"a", b"c"], 0, True)
    assert offsets.keep(data, 5, 5, True)[4] is data, "nothing is copied when nothing goes"


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_timestamp_of_what_stays(form: Form) -> None:
    """The new batch's maximum timestamp is found in the same loop, also below its base."""
    records = [Record(b"", key=b"%d" % n, timestamp=1_000 + t) for n, t in enumerate((0, -7, 50))]
    data = Batch(memoryview(write_batch(records))).records()
    offsets = form(10, 9, SECRET)
    offsets.latest_offset = 2
    assert offsets.keep(data, 3, 0, True)[3] == 50
    offsets.add(records_of((b"0", b""), (b"2", b"")), 2, 100, 0)
    assert offsets.keep(data, 3, 0, True)[:4] == (1, 0, False, -7)


@pytest.mark.parametrize("form", FORMS)
def test_every_cut_and_every_wrong_count_is_noticed(form: Form) -> None:
    """Bytes that are not exactly so many records raise `CorruptBatch`."""
    data = records_of((b"key", b"value"), (None, None), (b"", b"x" * 300))
    for call in (
        lambda data, count: form(10, 9, SECRET).add(data, count, 0, 0),
        lambda data, count: form(10, 9, SECRET).keep(data, count, 0, True),
    ):
        call(data, 3)
        for cut in range(len(data)):
            with pytest.raises(CorruptBatch):
                call(data[:cut], 3)
        for count in (0, 1, 2, 4):
            with pytest.raises(CorruptBatch):
                call(data, count)


@pytest.mark.parametrize("seed", range(20))
def test_both_forms_refuse_the_same_bytes(seed: int) -> None:
    """Damaged records are refused by both forms or by neither, and nothing is read beyond them."""
    if COMPILED is None:
        pytest.skip("not compiled here; try: make compile")
    chance = random.Random(seed)
    sound = records_of(*[(chance.randbytes(n), chance.randbytes(n * 9)) for n in range(12)])
    for _ in range(100):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        outcomes = []
        for form in (OffsetMap, COMPILED):
            offsets = form(40, 30, SECRET)
            try:
                offsets.add(bytes(data), 12, 0, 0)
                outcomes.append(len(offsets))
            except CorruptBatch:
                outcomes.append(-1)
        assert outcomes[0] == outcomes[1], bytes(data).hex()


def test_the_compiled_hash_is_siphash() -> None:
    """SipHash-2-4 with 128 bits: the first vectors of its authors."""
    if COMPILED is None:
        pytest.skip("not compiled here; try: make compile")
    offsets = COMPILED(2, 1, SECRET)
    for size, expected in (
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
    ):
        halves = struct.unpack("=QQ", offsets.digest(bytes(range(size))))
        assert struct.pack("<QQ", *halves).hex() == expected


def test_the_size_of_the_map() -> None:
    """128 MB hold five million keys, as in Kafka; few records make a small table."""
    assert SLOT_BYTES == 24
    small = offset_map_of(128 << 20, 0.9, SECRET, records_max=90)
    assert 90 <= small.entries_max <= 100
    budget = 1 << 20
    full = offset_map_of(budget, 0.9, SECRET, records_max=1 << 40)
    assert budget / full.entries_max < 27
    assert offset_map_of(0, 7.5, SECRET, records_max=0).entries_max == 1
