"""Variable-length integers: seven bits a byte, lowest first, the high bit set on all but the last.

Lengths and tags are unsigned (`read_uvarint`). Record fields are signed and zig-zagged first, so
that small negative numbers stay short (`read_varint` for 32 bits, `read_varlong` for 64). A
number that does not fit, or has no end, is refused.
"""

from __future__ import annotations

from .malformed import Buffer, MalformedMessage

__all__ = [
    "SMALL",
    "put_uvarint",
    "put_varint",
    "read_uvarint",
    "read_varint",
    "read_varlong",
    "zigzag",
]


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """The unsigned 32-bit number at `pos`, and the position after it."""
    number = shift = 0
    while shift < 35:
        byte = buf[pos]
        pos += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number > 0xFFFFFFFF:
                break
            return number, pos
        shift += 7
    raise MalformedMessage(f"variable-length number at byte {pos - 1} is longer than 32 bits")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """The signed 32-bit number at `pos`, and the position after it."""
    number, pos = read_uvarint(buf, pos)
    return (number >> 1) ^ -(number & 1), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """The signed 64-bit number at `pos`, and the position after it."""
    number = shift = 0
    while shift < 70:
        byte = buf[pos]
        pos += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number > 0xFFFFFFFFFFFFFFFF:
                break
            return (number >> 1) ^ -(number & 1), pos
        shift += 7
    raise MalformedMessage(f"variable-length number at byte {pos - 1} is longer than 64 bits")


def zigzag(number: int) -> int:
    """A signed number as the unsigned one that is written: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return (number << 1) if number >= 0 else ((-number << 1) - 1)


def encode_uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


# Nearly every length is small; a table look-up is five times quicker than the loop.
SMALL = tuple(encode_uvarint(number) for number in range(4096))


def put_uvarint(number: int) -> bytes:
    """An unsigned number as bytes."""
    return SMALL[number] if 0 <= number < 4096 else encode_large(number)


def put_varint(number: int) -> bytes:
    """A signed number of either width as bytes."""
    return put_uvarint(zigzag(number))


def encode_large(number: int) -> bytes:
    if number < 0:
        raise ValueError(f"an unsigned number cannot be {number}")
    return encode_uvarint(number)
