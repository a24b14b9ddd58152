"""Arrays that are kept as their bytes: what is read of them, beside structs in a list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.shares.acknowledging import are_valid, said_in
from ottla.wire.api.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla.wire.api.write_share_group_state import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import Out
from ottla.wire.rows import Rows, row_bytes
from ottla.wire.schema import Struct, reader, writer
from tests.wire.declared import structs

READ = reader(WriteShareGroupStateRequest, 1)
WRITE = writer(WriteShareGroupStateRequest, 1)
BATCHES = st.lists(structs(StateBatch, 1), max_size=130)


def request(batches: list[Struct]) -> WriteShareGroupStateRequest:
    part = PartitionData(state_batches=batches)  # type: ignore[arg-type]
    return WriteShareGroupStateRequest(topics=[WriteStateData(partitions=[part])])


def batches_in(asked: WriteShareGroupStateRequest) -> object:
    return asked.topics[0].partitions[0].state_batches


@given(BATCHES)
def test_rows_are_what_a_list_is(batches: list[Struct]) -> None:
    """Read, asked for its elements and written again: the same as with a list of structs."""
    data = bytes(WRITE(request(batches), Out()))
    found, _ = READ(data)
    rows = batches_in(found)
    assert isinstance(rows, Rows)
    assert list(rows) == batches
    assert rows == batches
    assert rows[1:3] == batches[1:3]
    assert [rows[at] for at in range(len(rows))] == batches
    assert row_bytes(rows, StateBatch) == row_bytes(batches, StateBatch)
    assert bytes(WRITE(found, Out())) == data


def test_elements_with_tagged_fields_are_read_one_by_one() -> None:
    """A field that a newer client has put behind an element is skipped; the others are read."""
    batches: list[Struct] = [StateBatch(first_offset=at, delivery_count=0x101) for at in range(9)]
    plain = bytes(WRITE(request(batches), Out()))
    row = row_bytes(batches[4:5], StateBatch)
    tagged = plain.replace(row, row[:-1] + b"\1\7\2hi")
    found, end = READ(tagged)
    assert batches_in(found) == batches
    assert end == len(tagged)


def test_rows_that_are_cut_off_are_refused() -> None:
    """No prefix of a message with rows is read."""
    data = bytes(WRITE(request([StateBatch(), StateBatch()]), Out()))
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            READ(data[:size])


ACKNOWLEDGEMENTS = st.lists(
    st.builds(
        lambda first, more, types: AcknowledgementBatch(
            first_offset=first, last_offset=first + more, acknowledge_types=types
        ),
        st.integers(0, 1 << 62),
        st.integers(0, 9),
        st.one_of(
            st.lists(st.integers(-128, 127), min_size=1, max_size=1),
            st.lists(st.integers(0, 4), max_size=3),
        ),
    ),
    max_size=40,
)


@given(ACKNOWLEDGEMENTS)
def test_elements_with_a_list_of_one_are_rows(batches: list[AcknowledgementBatch]) -> None:
    """Where each element has a list of one byte they are kept as bytes, else one by one; what is
    read, and what is taken as an acknowledgement from it, is the same."""
    part = FetchPartition(acknowledgement_batches=batches)
    asked = ShareFetchRequest(topics=[FetchTopic(partitions=[part])])
    data = bytes(writer(ShareFetchRequest, 2)(asked, Out()))
    found, _ = reader(ShareFetchRequest, 2)(data)
    read = found.topics[0].partitions[0].acknowledgement_batches
    assert isinstance(read, Rows) == all(len(each.acknowledge_types) == 1 for each in batches)
    assert read == batches
    assert bytes(writer(ShareFetchRequest, 2)(found, Out())) == data
    said = [(first, last, [kind & 255 for kind in types]) for first, last, types in said_in(read)]
    assert said == [
        (each.first_offset, each.last_offset, [kind & 255 for kind in each.acknowledge_types])
        for each in batches
    ]
    assert are_valid(said_in(read), may_renew=True) == are_valid(said_in(batches), may_renew=True)
