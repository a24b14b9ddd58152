"""Bytes as a reader sees them: what is found in them, what is chosen, where it is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.console.data.showing import (
    HEX,
    JSON,
    PRETTY_BYTES_MAX,
    SHOWN_BYTES_MAX,
    TEXT,
    indented,
    shown,
)
from tests import needs


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "null"),
        (b"", TEXT),
        (b"hello", TEXT),
        (b"12", TEXT),
        (b'{"a": 1}', JSON),
        (b" [1, 2]", JSON),
        (b"{not json", TEXT),
        (b"\xff\xfe", HEX),
        (b"\x00\x00\x00\x01", HEX),
        ("größe".encode(), TEXT),
        (b'{"a": NaN}', TEXT),
    ],
)
def test_what_bytes_are_is_found(data: bytes | None, kind: str) -> None:
    """JSON only where it is an object or a list; text where all of it is printable UTF-8."""
    assert shown(data).format == kind


def test_a_chosen_format_that_does_not_hold_is_said() -> None:
    """The bytes are shown in another format, with a sentence why."""
    found = shown(b"\xffabc", JSON)
    assert found.format == HEX
    assert found.problem == "not JSON: invalid start byte at byte 0"
    found = shown(b"plain", JSON)
    assert (found.format, found.text) == (TEXT, "plain")
    assert found.problem is not None
    assert shown(b"\xffabc", TEXT).text == "\ufffdabc"
    assert shown(b"abc", HEX).text.startswith("00000000  61 62 63")


def test_numbers_of_json_stay_as_they_were_written() -> None:
    """A number of many digits, an exponent and a duplicate name survive the new indentation."""
    text = '{"a":12345678901234567890.10,"a":1E+2,"b":"\\u00e9 , { \\" }","c":[],"d":{}}'
    assert indented(text) == (
        '{\n  "a": 12345678901234567890.10,\n  "a": 1E+2,\n  "b": "\\u00e9 , { \\" }",\n'
        '  "c": [],\n  "d": {}\n}'
    )


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=needs.rounds(40, 1000))
@given(JSONS)
def test_indented_json_means_the_same(document: object) -> None:
    """Reading it again gives the same document."""
    assert json.loads(indented(json.dumps(document))) == document


def test_long_values_are_cut_and_say_so() -> None:
    """At most SHOWN_BYTES_MAX characters, with the whole size; very long JSON is not parsed."""
    for data in (b"x" * 100_000, b"\x00" * 100_000, b"[" + b"1," * 50_000 + b"1]"):
        found = shown(data)
        assert found.cut
        assert found.size == len(data)
        assert len(found.text) <= SHOWN_BYTES_MAX * 2
    assert shown(b"[" + b"1," * PRETTY_BYTES_MAX + b"1]").format == TEXT


def test_json_nested_too_deeply_is_text() -> None:
    """A million brackets cost nothing and break nothing."""
    found = shown(b"[" * 1_000_000)
    assert (found.format, found.cut) == (TEXT, True)
    assert shown(b"[" * 100_000 + b"]" * 100_000).format in (TEXT, JSON)
