"""Committed and pending offsets beside a plain model that searches the whole history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.effects import Producer
from ottla.coordinator.offsets import (
    Committed,
    Offsets,
    declared_value,
    decode,
    metadata_too_long,
    offset_key,
    offset_record,
    offset_tombstone,
    partition_key,
)
from ottla.wire.coordinator_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
    read_value,
    write_key,
    write_value,
)
from ottla.wire.malformed import MalformedMessage
from ottla.wire.schema import NO_UUID

GROUPS = st.sampled_from(["g", "h"])
PARTITIONS = st.sampled_from([("t", 0), ("t", 1), ("u", 0)])
PRODUCERS = st.sampled_from([None, 1, 2, 3])
HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), GROUPS, PARTITIONS, PRODUCERS),
        st.tuples(st.just("delete"), GROUPS, PARTITIONS, st.none()),
        st.tuples(st.just("end"), st.booleans(), st.none(), st.sampled_from([1, 2, 3])),
    ),
    max_size=40,
)
Event = tuple[str, Any, Any, Any]


def committed_by_hand(history: list[Event]) -> dict[Any, int]:
    """For each place the latest commit that counts: plain, or of a transaction that committed."""
    found: dict[Any, int] = {}
    for number, (what, group, partition, producer) in enumerate(history):
        if what != "commit":
            continue
        place = (group, partition)
        later = history[number + 1 :]
        counted_at = number
        if producer is not None:
            ends = [i for i, each in enumerate(later) if each[0] == "end" and each[3] == producer]
            if not ends or not later[ends[0]][1]:
                continue
            counted_at = number + 1 + ends[0]
        deleted = any(each[:3] == ("delete", group, partition) for each in later)
        if not deleted and counted_at >= 0:
            found[place] = max(found.get(place, -1), number)
    return found


def pending_by_hand(history: list[Event]) -> set[Any]:
    found = set()
    for number, (what, group, partition, producer) in enumerate(history):
        if what == "commit" and producer is not None:
            later = history[number + 1 :]
            ended = any(each[0] == "end" and each[3] == producer for each in later)
            deleted = any(each[:3] == ("delete", group, partition) for each in later)
            if not ended and not deleted:
                found.add((group, partition))
    return found


def replayed(history: list[Event], *, loading: bool) -> Offsets:
    offsets = Offsets()
    for number, (what, group, partition, producer) in enumerate(history):
        if what == "end":
            offsets.replay_marker(Producer(producer, 0), group)
            continue
        topic, index = partition
        record = offset_tombstone(group, topic, index)
        if what == "commit":
            record = offset_record(group, topic, index, Committed(number, -1, "", 0))
        if loading and producer is None:
            assert not offsets.load([(*record, number)])
        else:
            owner = None if producer is None else Producer(producer, 0)
            offsets.replay(group, partition_key(topic, index), record.value, owner, number)
    if loading:
        offsets.loaded()
    return offsets


@given(HISTORIES, st.booleans())
@settings(max_examples=500, deadline=None)
def test_any_history_gives_what_the_model_gives(history: list[Event], loading: bool) -> None:
    """The latest commit counts, a transaction's only by its marker; deletion undoes all before.

    The same when the history is loaded from a log as when it is replayed one by one.
    """
    offsets = replayed(history, loading=loading)
    found = {
        (group, partition): committed.offset
        for group in offsets.by_group
        for partition, committed in offsets.of(group).items()
    }
    assert all(offsets.by_group.values()), "a group without offsets is not kept"
    assert found == committed_by_hand(history)
    pending = pending_by_hand(history)
    for group in ("g", "h"):
        assert set(offsets.pending_partitions(group)) == {p for g, p in pending if g == group}
        assert offsets.has_pending(group) == any(g == group for g, _ in pending)
        for partition in (("t", 0), ("t", 1), ("u", 0)):
            assert offsets.unstable(group, partition) == ((group, partition) in pending)
    for group in ("g", "h"):
        places = {place[1] for place in (*found, *pending) if place[0] == group}
        of_topic = offsets.of_topics(group, {b"t"}, len(history))
        assert of_topic == {place for place in places if place[0] == "t"}
        assert not offsets.of_topics(group, {b"t"}, -1)


TEXT = st.text(max_size=300)
OLD_VALUE = offset_record("g", "t", 0, Committed(5, -1, "", 0)).value or b""


@given(TEXT, TEXT, st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), TEXT, st.booleans(),
       st.binary(min_size=16, max_size=16))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_records_say_what_was_committed(
    group: str, topic: str, index: int, offset: int, note: str, expires: bool, topic_id: bytes
) -> None:
    """Written and read back by the declared format: nothing is lost but what version 1 lacks."""
    expiry = 12345 if expires else -1
    committed = Committed(offset, 3, note, 1_700_000_000_000, expiry, topic_id)
    record = offset_record(group, topic, index, committed)
    found = read_key(GROUP_RECORDS, record.key)
    assert found is not None
    assert found[0] == OffsetCommitKey(group=group, topic=topic, partition=index)
    assert record.value is not None
    value = read_value(OffsetCommitValue, record.value)
    assert (value.offset, value.metadata, value.expire_timestamp) == (offset, note, expiry)
    if not expires:
        assert (value.leader_epoch, value.topic_id) == (3, topic_id)
        assert record.value == write_value(declared_value(committed), 4)
    assert record.key == write_key(OffsetCommitKey(group=group, topic=topic, partition=index))
    assert offset_tombstone(group, topic, index) == (record.key, None)
    offsets = Offsets()
    assert not offsets.load([(*record, 7)])
    epoch, kept_id = (-1, NO_UUID) if expires else (3, topic_id)
    expected = committed._replace(leader_epoch=epoch, topic_id=kept_id)
    assert dict(offsets.of(group)) == {(topic, index): expected}


@given(st.integers(0, 4), TEXT, st.binary(min_size=16, max_size=16), st.integers(0, 2**62))
@settings(max_examples=200, deadline=None)
def test_values_of_every_version_are_read(
    version: int, metadata: str, topic_id: bytes, offset: int
) -> None:
    """Also those of older brokers, and as the declaration of the format reads them."""
    given = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=5)
    if version == 4:
        given.topic_id = topic_id
    value = write_value(given, version)
    assert decode(value) == Committed(
        offset, -1, metadata, 5, -1, topic_id if version == 4 else NO_UUID
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\1", b""),
        (b"\0\1\0\5abc", b""),
        (offset_key("g", "t", 0)[:-1], OLD_VALUE),
        (offset_key("g", "t", 0) + b"x", OLD_VALUE),
        (offset_key("g", "t", 0).replace(b"t", b"\xff"), OLD_VALUE),
        (offset_key("g", "t", 0), b""),
        (offset_key("g", "t", 0), b"\0\4"),
        (offset_key("g", "t", 0), OLD_VALUE[:-1]),
        (offset_key("g", "t", 0), OLD_VALUE + b"x"),
        (offset_key("g", "t", 0), b"\0\x09" + OLD_VALUE[2:]),
    ],
)
def test_a_record_that_is_no_offset_is_not_loaded(key: bytes, value: bytes) -> None:
    """Loading fails with the reason, and not later when the offset is read."""
    with pytest.raises(MalformedMessage):
        Offsets().load([(key, value, 0)])


def test_other_records_are_returned() -> None:
    """Loading offsets leaves every other record to the caller, in order."""
    group = write_key(GroupMetadataKey(group="g"))
    offset = offset_record("g", "t", 0, Committed(5, -1, "", 0))
    others = [(group, b"x", 0), (None, b"x", 1), (group, None, 3)]
    assert Offsets().load([*others[:2], (*offset, 2), others[2]]) == others


def test_equal_partitions_are_kept_once() -> None:
    """Groups that read the same topics share the keys of their offsets."""
    offsets = Offsets()
    committed = Committed(5, -1, "", 0)
    offsets.load([(*offset_record(f"g{i}", "t", 0, committed), i) for i in range(10)])
    keys = [key for stored in offsets.by_group.values() for key in stored]
    assert len(keys) == 10
    assert len({id(key) for key in keys}) == 1


@given(st.text(max_size=40), st.integers(0, 40))
def test_notes_are_measured_in_utf16(note: str, length_max: int) -> None:
    """As Java's String.length does."""
    assert metadata_too_long(note, length_max) == (
        len(note.encode("utf-16-le", "surrogatepass")) // 2 > length_max
    )
