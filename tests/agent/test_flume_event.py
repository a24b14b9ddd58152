"""Flume's Avro event: headers and body, as Flume's agents write them."""

from __future__ import annotations

import pytest

from ottla.agent.flume_event import NotAFlumeEvent, decode_event, encode_event

# What Flume's SpecificDatumWriter makes of {"host": "web1"} and "hello": one block of one entry,
# its end, then the body.
BYTES = b"\x02\x08host\x08web1\x00\x0ahello"


def test_an_event_has_the_bytes_that_flume_writes() -> None:
    """An event has the bytes that flume writes."""
    assert encode_event({"host": "web1"}, b"hello") == BYTES
    assert decode_event(BYTES) == ({"host": "web1"}, b"hello")


def test_what_is_no_event_is_refused() -> None:
    """Each proper prefix, and bytes behind it."""
    for size in range(len(BYTES)):
        with pytest.raises(NotAFlumeEvent):
            decode_event(BYTES[:size])
    with pytest.raises(NotAFlumeEvent, match="1 bytes behind"):
        decode_event(BYTES + b"x")
