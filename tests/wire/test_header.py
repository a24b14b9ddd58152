"""Request and response headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.apis import API
from ottla.wire.header import finish, read_request_header, start_request, start_response
from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import FileRange, Out, frame_bytes

FETCH, API_VERSIONS = 1, 18


@given(
    st.sampled_from(sorted(API)),
    st.integers(-1, 40),
    st.integers(-(2**31), 2**31 - 1),
    st.one_of(st.none(), st.text(max_size=50)),
)
def test_request_header_reads_back(
    key: int, version: int, correlation_id: int, client: str | None
) -> None:
    """Any API in any version, also one that is not served; the body's position is its end."""
    out = start_request(key, version, correlation_id, client)
    header = read_request_header(memoryview(bytes(out[4:]) + b"body"))
    assert (header.api_key, header.api_version) == (key, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client)
    assert header.body_position == len(out) - 4


@pytest.mark.parametrize("version", [4, 12])
def test_every_prefix_of_a_header_is_refused(version: int) -> None:
    """A request that ends inside its header is refused, in both forms."""
    data = bytes(start_request(FETCH, version, 7, "client")[4:])
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            read_request_header(data[:size])


def test_client_id_keeps_its_old_length_in_flexible_requests() -> None:
    """Header v2 has tagged fields, but the client id's length stays two bytes (KIP-482)."""
    assert bytes(start_request(FETCH, 11, 7, "ab")[12:]) == b"\x00\x02ab"
    assert bytes(start_request(FETCH, 12, 7, "ab")[12:]) == b"\x00\x02ab\x00"
    assert bytes(start_request(FETCH, 12, 7, None)[12:]) == b"\xff\xff\x00"


def test_tagged_fields_of_the_header_are_skipped() -> None:
    """A client may add tagged fields that we do not know."""
    data = bytes(start_request(FETCH, 12, 7, "ab")[4:-1]) + b"\x02\x00\x03abc\x81\x01\x00"
    assert read_request_header(data + b"body").body_position == len(data)
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            read_request_header(data[:size])


@pytest.mark.parametrize("key", [-1, 4, 999, 32767])
def test_an_api_that_is_not_known_is_refused(key: int) -> None:
    """Nobody can say what its header looks like."""
    data = key.to_bytes(2, "big", signed=True) + bytes(20)
    with pytest.raises(MalformedMessage, match=f"unknown API key {key}"):
        read_request_header(data)


def test_client_ids_that_are_not_text() -> None:
    """Bytes that are not UTF-8 are replaced, as Kafka does; the request itself is fine."""
    data = bytes(start_request(FETCH, 4, 7, "ab")[4:-2]) + b"\xff\xfe"
    assert read_request_header(data).client_id == "\ufffd\ufffd"


def test_response_header() -> None:
    """Four bytes of correlation id, and tagged fields in flexible versions."""
    assert bytes(finish(start_response(7, flexible=False))) == b"\x00\x00\x00\x04\x00\x00\x00\x07"
    flexible = finish(start_response(7, flexible=True))
    assert bytes(flexible) == b"\x00\x00\x00\x05\x00\x00\x00\x07\x00"


def test_the_answer_to_api_versions_has_no_tagged_fields_in_its_header() -> None:
    """Its version is not agreed yet; one byte too many made a client allocate 34 GB."""
    assert [API[API_VERSIONS].flexible_response(version) for version in range(5)] == [False] * 5
    assert API[FETCH].flexible_response(12)
    assert not API[FETCH].flexible_response(11)


def test_the_size_counts_file_ranges() -> None:
    """What is sent from a file belongs to the frame."""
    out = start_response(7, flexible=False)
    out += b"before"
    out.add_blob(FileRange("file", 100, 5000))
    out += b"after"
    out.add_blob(FileRange("file", 0, 1))
    assert [position for position, _ in out.blobs] == [14, 19]
    assert frame_bytes(out) == len(out) + 5001
    assert int.from_bytes(finish(out)[:4], "big") == len(out) + 5001 - 4
    assert Out().blobs == ()
