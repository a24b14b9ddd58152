"""XXH3, 64 bits, without a seed: the hash in which Kafka's coordinators keep a group's topics.

Written from the published description of the algorithm. Its inputs here are some kilobytes, once
per change of a topic, so plain integers are fast enough.
"""

from __future__ import annotations

import struct

MASK = (1 << 64) - 1
PRIME32_1 = 0x9E3779B1
PRIME32_2 = 0x85EBCA77
PRIME32_3 = 0xC2B2AE3D
PRIME64_1 = 0x9E3779B185EBCA87
PRIME64_2 = 0xC2B2AE3D27D4EB4F
PRIME64_3 = 0x165667B19E3779F9
PRIME64_4 = 0x85EBCA77C2B2AE63
PRIME64_5 = 0x27D4EB2F165667C5
MIX_1 = 0x165667919E3779F9
MIX_2 = 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
STRIPE_BYTES = 64
EIGHT_WORDS = struct.Struct("<8Q")
STRIPES_PER_BLOCK = (len(SECRET) + 1 - STRIPE_BYTES) // 8
BLOCK_BYTES = STRIPES_PER_BLOCK * STRIPE_BYTES
SHORT_BYTES_MAX = 16
MIDDLE_BYTES_MAX = 128
LONGER_BYTES_MAX = 240


def word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def folded(one: int, other: int) -> int:
    """The halves of the 128-bit product, xored."""
    product = one * other
    return (product & MASK) ^ (product >> 64)


def avalanche(hashed: int) -> int:
    hashed ^= hashed >> 37
    hashed = hashed * MIX_1 & MASK
    return hashed ^ (hashed >> 32)


def avalanche_of_64(hashed: int) -> int:
    hashed ^= hashed >> 33
    hashed = hashed * PRIME64_2 & MASK
    hashed ^= hashed >> 29
    hashed = hashed * PRIME64_3 & MASK
    return hashed ^ (hashed >> 32)


def xxh3_64(data: bytes) -> int:
    """The hash, unsigned."""
    size = len(data)
    if size <= SHORT_BYTES_MAX:
        return short(data, size)
    if size <= MIDDLE_BYTES_MAX:
        return middle(data, size)
    if size <= LONGER_BYTES_MAX:
        return longer(data, size)
    return long(data, size)


def short(data: bytes, size: int) -> int:
    if size > 8:
        low = word(data, 0) ^ word(SECRET, 24) ^ word(SECRET, 32)
        high = word(data, size - 8) ^ word(SECRET, 40) ^ word(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche(size + swapped + high + folded(low, high) & MASK)
    if size >= 4:
        both = half(data, size - 4) + (half(data, 0) << 32)
        hashed = both ^ word(SECRET, 8) ^ word(SECRET, 16)
        hashed ^= rotated(hashed, 49) ^ rotated(hashed, 24)
        hashed = hashed * MIX_2 & MASK
        hashed ^= (hashed >> 35) + size
        hashed = hashed * MIX_2 & MASK
        return hashed ^ (hashed >> 28)
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return avalanche_of_64(combined ^ half(SECRET, 0) ^ half(SECRET, 4))
    return avalanche_of_64(word(SECRET, 56) ^ word(SECRET, 64))


def rotated(value: int, left: int) -> int:
    return (value << left | value >> 64 - left) & MASK


def mixed(data: bytes, at: int, secret_at: int) -> int:
    return folded(
        word(data, at) ^ word(SECRET, secret_at), word(data, at + 8) ^ word(SECRET, secret_at + 8)
    )


def middle(data: bytes, size: int) -> int:
    hashed = size * PRIME64_1
    for pair in range((size - 1) // 32 + 1):
        hashed += mixed(data, 16 * pair, 32 * pair)
        hashed += mixed(data, size - 16 * (pair + 1), 32 * pair + 16)
    return avalanche(hashed & MASK)


def longer(data: bytes, size: int) -> int:
    hashed = size * PRIME64_1
    for number in range(8):
        hashed += mixed(data, 16 * number, 16 * number)
    hashed = avalanche(hashed & MASK)
    for number in range(8, size // 16):
        hashed += mixed(data, 16 * number, 16 * (number - 8) + 3)
    hashed += mixed(data, size - 16, 136 - 17)
    return avalanche(hashed & MASK)


def long(data: bytes, size: int) -> int:
    sums = [
        PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
    ]  # fmt: skip
    blocks = (size - 1) // BLOCK_BYTES
    for block in range(blocks):
        for stripe in range(STRIPES_PER_BLOCK):
            accumulate(sums, data, block * BLOCK_BYTES + stripe * STRIPE_BYTES, stripe * 8)
        secret = EIGHT_WORDS.unpack_from(SECRET, len(SECRET) - STRIPE_BYTES)
        for number, hashed in enumerate(sums):
            sums[number] = (hashed ^ hashed >> 47 ^ secret[number]) * PRIME32_1 & MASK
    begin = blocks * BLOCK_BYTES
    for stripe in range((size - 1 - begin) // STRIPE_BYTES):
        accumulate(sums, data, begin + stripe * STRIPE_BYTES, stripe * 8)
    accumulate(sums, data, size - STRIPE_BYTES, len(SECRET) - STRIPE_BYTES - 7)
    hashed = size * PRIME64_1
    secret = EIGHT_WORDS.unpack_from(SECRET, 11)
    for number in range(0, 8, 2):
        hashed += folded(sums[number] ^ secret[number], sums[number + 1] ^ secret[number + 1])
    return avalanche(hashed & MASK)


def accumulate(sums: list[int], data: bytes, at: int, secret_at: int) -> None:
    words = EIGHT_WORDS.unpack_from(data, at)
    secret = EIGHT_WORDS.unpack_from(SECRET, secret_at)
    for number, value in enumerate(words):
        keyed = value ^ secret[number]
        sums[number ^ 1] = sums[number ^ 1] + value & MASK
        sums[number] = sums[number] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & MASK
