"""The checksum of every kind of buffer is the one of its bytes."""

from __future__ import annotations

from google_crc32c import value
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.wire.checksum import BLOCK_BYTES, crc32c


@given(st.integers(0, 3 * BLOCK_BYTES), st.integers(0, 100))
@example(BLOCK_BYTES - 1, 0)
@example(BLOCK_BYTES, 0)
@example(BLOCK_BYTES + 1, 1)
@example(3 * BLOCK_BYTES, 0)
def test_in_blocks_it_is_the_same(size: int, position: int) -> None:
    """With and without whole blocks, writable or not, from any position."""
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    position = min(position, size)
    expected = value(data[position:])
    for buffer in data, bytearray(data), memoryview(data), memoryview(bytearray(data)):
        assert crc32c(buffer, position) == expected


def test_the_published_value() -> None:
    """The check value of CRC-32C, that of "123456789"."""
    assert crc32c(b"123456789") == crc32c(memoryview(b"123456789")) == 0xE3069283


def test_a_buffer_can_grow_afterwards() -> None:
    """Nothing holds on to the memory that was looked at."""
    data = bytearray(2 * BLOCK_BYTES)
    crc32c(data)
    data += b"more"
    assert len(data) == 2 * BLOCK_BYTES + 4
