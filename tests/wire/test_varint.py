"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.malformed import MalformedMessage
from ottla.wire.varint import put_uvarint, put_varint, read_uvarint, read_varint, read_varlong


@given(st.integers(0, 2**32 - 1))
def test_unsigned_numbers_come_back(number: int) -> None:
    """Any unsigned 32-bit number is read again, wherever it starts."""
    data = put_uvarint(number)
    assert read_uvarint(data, 0) == (number, len(data))
    assert read_uvarint(memoryview(b"xx" + data + b"y"), 2) == (number, len(data) + 2)


@given(st.integers(-(2**31), 2**31 - 1))
def test_signed_numbers_come_back(number: int) -> None:
    """Any signed 32-bit number is read again, by both readers."""
    data = put_varint(number)
    assert read_varint(data, 0) == read_varlong(data, 0) == (number, len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_numbers_come_back(number: int) -> None:
    """Any signed 64-bit number is read again."""
    data = put_varint(number)
    assert read_varlong(data, 0) == (number, len(data))


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")],
)
def test_published_examples(number: int, data: str) -> None:
    """The zig-zag of the protocol guide."""
    assert put_varint(number).hex() == data


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffffff01", "808080808000", "ff" * 20])
def test_numbers_of_more_than_32_bits_are_refused(data: str) -> None:
    """Too large, or longer than five bytes, though they be zeros."""
    with pytest.raises(MalformedMessage, match="32 bits"):
        read_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["ffffffffffffffffff02", "80" * 10 + "00", "ff" * 20])
def test_numbers_of_more_than_64_bits_are_refused(data: str) -> None:
    """Too large, or longer than ten bytes."""
    with pytest.raises(MalformedMessage, match="64 bits"):
        read_varlong(bytes.fromhex(data), 0)


def test_negative_numbers_have_no_unsigned_form() -> None:
    """Writing one is our mistake and says so."""
    with pytest.raises(ValueError, match="-1"):
        put_uvarint(-1)
