"""Every message in every version: what is written is read again, and nothing else is accepted."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import Out
from ottla.wire.runtime import REPLACED_BYTES_MAX, STRING_BYTES_MAX
from ottla.wire.schema import reader, writer
from tests.wire.declared import (
    Case,
    every_version,
    messages,
    named,
    own_messages,
    structs,
    versions,
)

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
few = settings(max_examples=6, deadline=None, suppress_health_check=QUIET, database=None)
some = settings(max_examples=25, deadline=None, suppress_health_check=QUIET, database=None)


EVERY = messages() | own_messages()
OWN_VERSIONS = [(cls, version) for cls in own_messages().values() for version in versions(cls)]


@pytest.mark.parametrize("case", every_version() + OWN_VERSIONS, ids=named)
def test_what_is_written_is_read_again(case: Case) -> None:
    """A message reads back equal, ends where it was written to, and writes to the same bytes."""
    cls, version = case

    @few
    @given(structs(cls, version))
    def check(message: object) -> None:
        data = bytes(writer(cls, version)(message, Out()))
        again, end = reader(cls, version)(memoryview(data + b"trailing"))
        assert again == message
        assert end == len(data)
        assert bytes(writer(cls, version)(again, Out())) == data

    check()


@pytest.mark.parametrize("name", EVERY)
def test_every_proper_prefix_is_refused(name: str) -> None:
    """A message that is cut short anywhere is refused, never read as something shorter."""
    cls = EVERY[name]

    @few
    @given(st.sampled_from(versions(cls)).flatmap(lambda v: st.tuples(st.just(v), structs(cls, v))))
    def check(drawn: tuple[int, object]) -> None:
        version, message = drawn
        data = memoryview(bytes(writer(cls, version)(message, Out())))
        read = reader(cls, version)
        for size in range(0, len(data), max(1, len(data) // 400)):
            with pytest.raises(MalformedMessage):
                read(data[:size])

    check()


@pytest.mark.parametrize("name", EVERY)
def test_damaged_bytes_give_only_the_named_exception(name: str) -> None:
    """However the bytes are changed, reading gives a message or MalformedMessage."""
    cls = EVERY[name]
    mutation = st.tuples(st.integers(0, 2**16), st.sampled_from([0, 1, 127, 128, 255, 42]))

    @some
    @given(
        st.sampled_from(versions(cls)).flatmap(lambda v: st.tuples(st.just(v), structs(cls, v))),
        st.lists(mutation, min_size=1, max_size=8),
    )
    def check(drawn: tuple[int, object], mutations: list[tuple[int, int]]) -> None:
        version, message = drawn
        data = bytearray(writer(cls, version)(message, Out()))
        for position, value in mutations:
            if data:
                data[position % len(data)] = value
        try:
            _, end = reader(cls, version)(memoryview(data))
        except MalformedMessage:
            return
        assert end <= len(data)

    check()


def test_what_is_read_can_be_written() -> None:
    """Bytes that are not UTF-8 become U+FFFD, of three bytes each: where the string could be longer
    then than any may be, the request is refused. The feed stopped at such a principal."""
    read = reader(FindCoordinatorRequest, 0)
    for size in (REPLACED_BYTES_MAX, STRING_BYTES_MAX):
        text = b"\xff" * size
        frame = memoryview(struct.pack(">h", size) + text)
        if size > REPLACED_BYTES_MAX:
            with pytest.raises(MalformedMessage, match="is not UTF-8"):
                read(frame, 0)
            assert read(memoryview(struct.pack(">h", size) + b"x" * size), 0)[0].key == "x" * size
            continue
        request, _ = read(frame, 0)
        assert request.key == "\ufffd" * size
        writer(FindCoordinatorRequest, 0)(request, Out())
