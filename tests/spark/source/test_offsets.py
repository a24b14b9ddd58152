"""Offsets as they stand in checkpoints and progress."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.structs import TopicPartition
from ottla.spark.source.offsets import decode, encode, lag, notes

PARTITIONS = st.builds(
    TopicPartition, st.text("ab.-_0", min_size=1, max_size=4), st.integers(0, 20)
)


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**60)))
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    """What is encoded is decoded to the same, also through JSON, and in any order to equal text."""
    text = json.dumps(encode(offsets))
    assert decode(text) == decode(encode(offsets)) == offsets
    backwards = dict(reversed(list(offsets.items())))
    assert json.dumps(encode(backwards)) == text


def test_the_shape_is_that_of_sparks_connector() -> None:
    """A checkpoint can be read by a person, and partition 10 comes after 2."""
    offsets = {TopicPartition("orders", each): each + 5 for each in (10, 2)}
    assert json.dumps(encode(offsets)) == '{"orders": {"2": 7, "10": 15}}'


def test_notes_are_no_offsets() -> None:
    """Text beside the topics is passed over by who wants offsets, and found by who wants it."""
    offset = '{"orders": {"0": 5}, "commitGroup": "billing"}'
    assert decode(offset) == {TopicPartition("orders", 0): 5}
    assert notes(offset) == {"commitGroup": "billing"}
    assert decode(None) == {}
    assert notes(None) == {}


def test_lag_is_what_is_not_read_yet() -> None:
    """The lag of a source counts every partition, also one that no batch has seen; without the
    ends of the topics it is not known."""
    source = {"endOffset": '{"t": {"0": 5}}', "latestOffset": '{"t": {"0": 7, "1": 3}}'}
    assert lag(source) == 5
    assert lag({**source, "latestOffset": None}) is None  # Spark has not asked: not known, not 0
