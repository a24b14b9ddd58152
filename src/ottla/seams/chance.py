"""Randomness, handed in: ids, jitter and choices.

`RealChance` asks the operating system; `SeededChance` gives the same sequence for the same seed,
so a failing simulation can be repeated.
"""

import os
import random
from collections.abc import Callable
from typing import Protocol

# Kafka never hands these out as random ids: the zero id, and the first hundred that it keeps for
# itself (the metadata topic has the id 1).
RESERVED_IDS = 100


class Chance(Protocol):
    """Where anything random comes from."""

    def uuid(self) -> bytes:
        """A random version-4 UUID as Kafka draws them: not reserved, no leading '-' in base64."""
        ...

    def integer(self, low: int, high: int) -> int:
        """A whole number, both bounds included."""
        ...

    def bytes(self, size: int) -> bytes: ...


class RealChance:
    """The operating system's randomness."""

    __slots__ = ()

    def uuid(self) -> bytes:
        return draw_uuid(os.urandom)

    def integer(self, low: int, high: int) -> int:
        return random.SystemRandom().randint(low, high)

    def bytes(self, size: int) -> bytes:
        return os.urandom(size)


class SeededChance:
    """The same sequence for the same seed."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> bytes:
        return draw_uuid(self._random.randbytes)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)


def draw_uuid(draw: Callable[[int], bytes]) -> bytes:
    """A version-4 UUID from `draw`, again and again until Kafka's tools can take it."""
    while True:
        raw = bytearray(draw(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        drawn = bytes(raw)
        # The first base64 character is the top six bits; 62 is '-', which a command line
        # would take for an option.
        if drawn[0] >> 2 != 62 and not is_reserved(drawn):
            return drawn


def is_reserved(uuid: bytes) -> bool:
    """Whether the id is one of those that Kafka keeps for itself."""
    return int.from_bytes(uuid, "big") < RESERVED_IDS
