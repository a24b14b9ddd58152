"""Chance: ids that Kafka's tools can take, and sequences that repeat."""

import base64
import random

from ottla.seams.chance import RealChance, SeededChance, draw_uuid, is_reserved


def test_ids_are_version_four_and_never_start_with_a_dash() -> None:
    """A topic id can stand on a command line, and is marked as random."""
    for chance in (RealChance(), SeededChance(7)):
        for _ in range(500):
            uuid = chance.uuid()
            assert len(uuid) == 16
            assert uuid[6] >> 4 == 4
            assert uuid[8] >> 6 == 2
            assert not base64.urlsafe_b64encode(uuid).startswith(b"-")


def test_a_draw_with_a_leading_dash_is_drawn_again() -> None:
    """The first byte 0xF8 to 0xFB would read '-' in base64."""
    draws = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\xfc" + bytes(15)])
    assert draw_uuid(lambda size: next(draws))[0] == 0xFC


def test_reserved_ids_are_known() -> None:
    """Kafka keeps the ids 0 to 99."""
    assert is_reserved(bytes(16))
    assert is_reserved(bytes(15) + b"\x63")
    assert not is_reserved(bytes(15) + b"\x64")


def test_the_same_seed_gives_the_same_sequence() -> None:
    """A simulation can be repeated from its seed."""

    def sequence(seed: int) -> list[object]:
        chance = SeededChance(seed)
        return [chance.uuid(), chance.integer(0, 10**9), chance.bytes(5)]

    assert sequence(3) == sequence(3)
    assert sequence(3) != sequence(4)


def test_integers_include_both_bounds() -> None:
    """`integer(1, 3)` gives 1, 2 and 3."""
    for chance in (RealChance(), SeededChance(random.randrange(10**6))):
        drawn = {chance.integer(1, 3) for _ in range(200)}
        assert drawn == {1, 2, 3}
