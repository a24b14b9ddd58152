"""Committed and pending offsets against a dumb twin that goes through the whole history."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.effects import Producer
from ottla.coordinator.offsets import (
    Committed,
    Offsets,
    declared_value,
    metadata_too_long,
    offset_record,
    offset_tombstone,
)
from ottla.wire.coordinator_records import (
    GROUP_RECORDS,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
    read_value,
    write_key,
    write_value,
)

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


def replayed(history: list[Event]) -> Offsets:
    offsets = Offsets()
    for number, (what, group, partition, producer) in enumerate(history):
        if what == "end":
            offsets.replay_marker(Producer(producer, 0), group)
            continue
        topic, index = partition
        key = OffsetCommitKey(group=group, topic=topic, partition=index)
        value = OffsetCommitValue(offset=number) if what == "commit" else None
        owner = None if producer is None else Producer(producer, 0)
        offsets.replay(key, value, owner, number)
    return offsets


@given(HISTORIES)
@settings(max_examples=500, deadline=None)
def test_any_history_gives_what_counting_by_hand_gives(history: list[Event]) -> None:
    """The latest commit counts, a transaction's only by its marker; deletion undoes all before."""
    offsets = replayed(history)
    found = {
        (group, partition): committed.offset
        for group, partitions in offsets.by_group.items()
        for partition, committed in partitions.items()
    }
    assert found == committed_by_hand(history)
    pending = pending_by_hand(history)
    for group in ("g", "h"):
        assert set(offsets.pending_partitions(group)) == {p for g, p in pending if g == group}
        assert offsets.has_pending(group) == any(g == group for g, _ in pending)
        for partition in (("t", 0), ("t", 1), ("u", 0)):
            assert offsets.unstable(group, partition) == ((group, partition) in pending)
    places = {*found, *pending}
    assert set(offsets.of_topics({"t"})) == {place for place in places if place[1][0] == "t"}


TEXT = st.text(max_size=300)


@given(TEXT, TEXT, st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), TEXT, st.booleans(),
       st.binary(min_size=16, max_size=16))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_records_say_what_was_committed(
    group: str, topic: str, index: int, offset: int, note: str, expires: bool, topic_id: bytes
) -> None:
    """Written and read back by the declared format: nothing is lost but what version 1 lacks."""
    expiry = 12345 if expires else -1
    committed = Committed(offset, 3, note, 1_700_000_000_000, expiry, -1, topic_id)
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


@given(st.text(max_size=40), st.integers(0, 40))
def test_notes_are_measured_in_utf16(note: str, length_max: int) -> None:
    """As Java's String.length does."""
    assert metadata_too_long(note, length_max) == (
        len(note.encode("utf-16-le", "surrogatepass")) // 2 > length_max
    )
