"""How a request becomes events, beside what Flume 1.11's JSONHandler and BLOBHandler make of it."""

from __future__ import annotations

import pytest

from ottla.agent.http.requests import BadRequest, Request, blob_events, json_events


def json_request(body: bytes, charset: str | None = None) -> Request:
    kind = "application/json" if charset is None else f"application/json; charset={charset}"
    return Request(body, headers={"content-type": kind})


def test_an_array_of_events() -> None:
    """Each event has a body and headers; either may be missing, other keys do not count."""
    batch = json_events(
        json_request(b'[{"headers":{"a":"b","c":"d"},"body":"x"},{"body":"y"},{"other":1}]')
    )
    assert batch.bodies == [b"x", b"y", b""]
    assert [batch.headers_of(at) for at in range(3)] == [{"a": "b", "c": "d"}, {}, {}]
    assert json_events(json_request(b"[]")).bodies == []


def test_numbers_and_truth_values_are_text() -> None:
    """As Gson reads them for a string; a header that is null is left out."""
    body = b'[{"body":5,"headers":{"n":1.50,"t":true,"f":false,"z":null}},{"body":null}]'
    batch = json_events(json_request(body))
    assert batch.bodies == [b"5", b""]
    assert batch.headers_of(0) == {"n": "1.50", "t": "true", "f": "false"}


@pytest.mark.parametrize(
    ("charset", "sent", "body"),
    [
        (None, "utf-8", "ž".encode()),
        ("UTF-8", "utf-8-sig", "ž".encode()),
        ("utf-16", "utf-16-be", b"\xfe\xff\x01\x7e"),
        ("UTF-16", "utf-16", b"\xfe\xff\x01\x7e"),
        ("utf-32", "utf-32-be", b"\0\0\x01\x7e"),
        ('"UTF-32"', "utf-32", b"\0\0\x01\x7e"),
    ],
)
def test_charsets(charset: str | None, sent: str, body: bytes) -> None:
    """The body has the character set of the request, byte for byte what Java's getBytes gives;
    without a byte order mark what comes is big-endian."""
    batch = json_events(json_request('[{"body":"ž"},{"body":""}]'.encode(sent), charset))
    assert batch.bodies == [body, b""]


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (json_request(b'{"body":"x"}'), "not an array of events"),
        (json_request(b""), "Expecting value"),
        (json_request(b"null"), "not an array of events"),
        (json_request(b'[{"body":"x"'), "Expecting"),
        (json_request(b"[{body:'x'}]"), "Expecting property name"),
        (json_request(b"[1]"), "event 0 is not an object"),
        (json_request(b'[{"body":{"x":1}}]'), "body of event 0 is not a string"),
        (json_request(b'[{},{"headers":[]}]'), "headers of event 1 are not an object"),
        (json_request(b'[{"headers":{"a":[]}}]'), "header 'a' of event 0 is not a string"),
        (json_request(b'[{"body":NaN}]'), "NaN is no JSON"),
        (json_request(b"[" * 100_000), "nested too deep"),
        (json_request(b'[{"body":"\xff"}]'), "byte 10 is not UTF-8"),
        (json_request(b"[]", "utf-16"), "Expecting value"),
        (json_request(b"[", "utf-16"), "byte 0 is not UTF-16"),
        (json_request(b"[]", "latin-1"), "UTF-8, UTF-16 and UTF-32 only (got 'latin-1')"),
        (Request(b"\x1f\x8b", headers={"content-encoding": "gzip"}), "gzip is not read"),
    ],
)
def test_what_is_no_array_of_events(request_: Request, sentence: str) -> None:
    """A sentence says where it is wrong."""
    with pytest.raises(BadRequest) as raised:
        json_events(request_)
    assert sentence in str(raised.value)


def test_a_blob_is_one_event() -> None:
    """Bytes as they are; the first of a parameter's values is a header."""
    events_of = blob_events(["a", "b"])
    batch = events_of(Request(b"\x00\xff\r\n", "a=1&b=&c=%C5%BE+x&a=9"))
    assert batch.bodies == [b"\x00\xff\r\n"]
    assert batch.headers == {"a": "1", "b": "", "c": "ž x"}
    with pytest.raises(BadRequest, match=r"Please specify b parameter in the request\."):
        events_of(Request(b"x", "a=1"))
    with pytest.raises(BadRequest, match="over 1000 parameters"):
        events_of(Request(b"x", "a=1&" * 1001))
