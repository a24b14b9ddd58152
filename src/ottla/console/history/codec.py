"""Packed blocks: some hundred values of one series in little more than their entropy.

A value becomes a code that is linear near 0 and logarithmic beyond: the upper bits of the 32-bit
float of value / unit + 2^bits. In a block of whole numbers the unit is 1, and those up to 2^bits
stay exact; else it is a small part of the greatest value. The differences of the codes are written,
one byte each where they are small, and deflated.
Minimum and maximum are written as how many steps they lie below and above the mean, rounded
outwards, so that a peak is never made smaller, and an interval of one value costs nothing.
"""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

FLOAT_BITS = 23  # of the mantissa of a 32-bit float
BELOW_BITS = 3  # of the minimum's mantissa: steps of 12 %
ABOVE_BITS = 4  # of the maximum's: 6 %
ESCAPE = 255
HEADER = struct.Struct("<BBhHH")  # version, bits and spread, unit's exponent, slots, escapes
UNIT_BITS = 5  # the unit of fractions is the greatest value / 2^(bits + this), or less
VERSION = 1
SPREAD_MARK = 0x80
BITS = range(4, 13)
DEFLATE_LEVEL = 9
MEMORY_LEVEL = 9
RAW = -15  # deflate without zlib's header
COLUMN_BYTES_MAX = 1 << 18  # a greater one cannot be ours
NAN = math.nan


class Values(NamedTuple):
    """The values of a block, NaN where there is none; the spread only where a tier has it."""

    means: array[float]
    minimums: array[float]
    maximums: array[float]


class BlockError(ValueError):
    """A block that cannot be read."""


def empty(slots: int) -> array[float]:
    return array("f", [NAN]) * slots


def pack(values: Values, bits: int, spread: bool) -> bytes:
    """The block of these values; none below 0."""
    means = values.means
    present = bytes([value == value for value in means])
    exponent = unit_exponent(values, bits)
    codes = codes_of(means, present, bits, exponent)
    columns = [differences(codes)]
    if spread:
        low, high = (codes_of(each, present, bits, exponent) for each in values[1:])
        pairs = zip(codes, low, strict=True)
        columns.append([max(0, -((least - code) >> (bits - BELOW_BITS))) for code, least in pairs])
        pairs = zip(codes, high, strict=True)
        columns.append([max(0, -((code - most) >> (bits - ABOVE_BITS))) for code, most in pairs])
    escaped = array("H", [each for column in columns for each in column if each >= ESCAPE])
    mark = bits | (SPREAD_MARK if spread else 0)
    head = HEADER.pack(VERSION, mark, exponent, len(means), len(escaped))
    parts = [head, deflated(present)]
    parts += [deflated(bytes([min(each, ESCAPE) for each in column])) for column in columns]
    if escaped:
        parts.append(deflated(escaped.tobytes()))
    return b"".join(parts)


def unpack(block: bytes) -> Values:
    """Raises BlockError."""
    try:
        version, mark, exponent, slots, escapes = HEADER.unpack_from(block)
        if version != VERSION:
            raise BlockError(f"version {version}")
        spread, bits = bool(mark & SPREAD_MARK), mark & ~SPREAD_MARK
        if bits not in BITS or not -200 <= exponent <= 0:
            raise BlockError(f"{bits} bits, a unit of 2^{exponent}")
        present, rest = inflated(block[HEADER.size :], slots)
        count = sum(present)
        columns: list[Sequence[int]] = []
        for _ in range(3 if spread else 1):
            column, rest = inflated(rest, count)
            columns.append(column)
        if escapes:
            raw, rest = inflated(rest, escapes * 2)
            great = iter(array("H", raw))
            columns = [
                [each if each != ESCAPE else next(great) for each in column] for column in columns
            ]
        codes = list(accumulate((each >> 1) ^ -(each & 1) for each in columns[0]))
        means = placed(codes, present, bits, exponent)
        if not spread:
            return Values(means, means, means)
        below = zip(codes, columns[1], strict=True)
        above = zip(codes, columns[2], strict=True)
        low = [max(0, code - (each << (bits - BELOW_BITS))) for code, each in below]
        high = [code + (each << (bits - ABOVE_BITS)) for code, each in above]
        return Values(
            means, placed(low, present, bits, exponent), placed(high, present, bits, exponent)
        )
    except (struct.error, zlib.error, StopIteration, OverflowError) as error:
        raise BlockError(str(error)) from None


def deflated(column: bytes) -> bytes:
    """The shorter of two ways: noise has no repetitions, and looking for them makes it longer."""
    found = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        deflate = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, RAW, MEMORY_LEVEL, strategy)
        found.append(deflate.compress(column) + deflate.flush())
    return min(found, key=len)


def inflated(data: bytes, length: int) -> tuple[bytes, bytes]:
    """A column of so many bytes, and what comes after it."""
    inflate = zlib.decompressobj(RAW)
    column = inflate.decompress(data, COLUMN_BYTES_MAX)
    if len(column) != length or not inflate.eof:
        raise BlockError(f"a column of {len(column)} bytes where {length} should be")
    return column, inflate.unused_data


def unit_exponent(values: Values, bits: int) -> int:
    """The unit of a block, as a power of two."""
    some = [each for each in values.means if each == each]
    if all(map(float.is_integer, some)):
        return 0
    greatest = max(each for each in values.maximums if each == each)
    return min(0, math.frexp(greatest)[1] - bits - UNIT_BITS)


def codes_of(values: array[float], present: bytes, bits: int, exponent: int) -> list[int]:
    """The codes of those that are present; greater values have greater ones, 0 has 0."""
    shift = FLOAT_BITS - bits
    scale, zero = 2.0**-exponent, float(1 << bits)
    raw = memoryview(array("f", [each * scale + zero for each in values])).cast("B").cast("I")
    half, base = 1 << (shift - 1), base_of(bits)
    return [
        ((each + half) >> shift) - base for each, there in zip(raw, present, strict=True) if there
    ]


def placed(codes: Iterable[int], present: bytes, bits: int, exponent: int) -> array[float]:
    """The values of codes, each at its slot."""
    shift, base = FLOAT_BITS - bits, base_of(bits)
    unit, zero = 2.0**exponent, float(1 << bits)
    raw = array("f", array("I", [(each + base) << shift for each in codes]).tobytes())
    found = [(each - zero) * unit for each in raw]
    if len(found) == len(present):
        return array("f", found)
    left = iter(found)
    return array("f", [next(left) if there else NAN for there in present])


def base_of(bits: int) -> int:
    """The code of 0 before it is made 0."""
    [raw] = struct.unpack("<I", struct.pack("<f", float(1 << bits)))
    return int(raw) >> (FLOAT_BITS - bits)


def differences(codes: list[int]) -> list[int]:
    """From each to the next, the sign in the lowest bit."""
    found = []
    last = 0
    for code in codes:
        change = code - last
        found.append(change << 1 if change >= 0 else (-change << 1) - 1)
        last = code
    return found
