"""XXH3 against answers of the reference implementation (xxHash 0.8), one of each kind of length."""

from __future__ import annotations

import pytest

from ottla.wire.xxh3 import xxh3_64

ANSWERS = {
    0: 0x2D06800538D394C2,
    1: 0xC44BDFF4074EECDB,
    3: 0x5F4299FC161C9CBB,
    4: 0x60DAB036A58211F2,
    8: 0x3A1C2D7C85AF88F8,
    9: 0xE9612598145BB9DC,
    16: 0x8355E3A6F61770DB,
    17: 0x9EF341A99DE37328,
    128: 0x85C6174C7FF4C46B,
    129: 0xEC7642B431BA3E5A,
    240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02,
    1024: 0xE5D78BAFA45B2AA5,
    1025: 0xE95C42288F28186E,
    5000: 0xB418500FC42320EE,
}


@pytest.mark.parametrize("size", ANSWERS)
def test_hash_of_this_many_bytes(size: int) -> None:
    """Each way of the algorithm, at its shortest and longest input, gives the published hash."""
    assert xxh3_64(bytes(number % 251 for number in range(size))) == ANSWERS[size]
