"""Which lines about connections are logged: who fails again and again fills no disk.

The first lines say what is wrong. Of more of the same, of one address, and of all together so many
a second are written, and the others are counted, for a line of their own. Pure: the server has the
clock.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class Pace(NamedTuple):
    """So many lines at once after a silence, and so many a second from then on."""

    at_once: float
    per_second: float


SAME = Pace(5, 1)  # of one address, and the same sentence
SOURCE = Pace(200, 5)  # of one address
WHOLE = Pace(1_000, 20)  # of all: at 200 bytes a line 350 MB a day
REMEMBERED_MAX = 4_096  # addresses, and sentences of them; those of longest ago are forgotten
SENTENCE_CHARS_MAX = 200  # of a sentence, by which it is known again
SOURCES_COUNTED_MAX = 1_000  # addresses; what is left out of more is counted in all only


class Bucket:
    """What is left of a pace."""

    __slots__ = ("_at_s", "_left", "_pace")

    def __init__(self, pace: Pace, now_s: float) -> None:
        self._pace = pace
        self._left = pace.at_once
        self._at_s = now_s

    def has(self, now_s: float) -> bool:
        at_once, per_second = self._pace
        self._left = min(at_once, self._left + (now_s - self._at_s) * per_second)
        self._at_s = now_s
        return self._left >= 1

    def take(self) -> None:
        self._left -= 1


class LeftOut(NamedTuple):
    """What was not written: how much, and of whom most."""

    lines: int
    source: str
    of_source: int
    seconds: float


class LogLines:
    """One per server."""

    def __init__(self, now_s: float) -> None:
        self._whole = Bucket(WHOLE, now_s)
        self._buckets: dict[tuple[str, str], Bucket] = {}  # the one used last is the last
        self._left_out = 0
        self._left_out_of = Counter[str]()
        self._told_at_s = now_s

    def admits(self, source: str, sentence: str, now_s: float) -> bool:
        """Whether a line about an address is written; if not, it is counted."""
        same = self._bucket((source, sentence[:SENTENCE_CHARS_MAX] or " "), SAME, now_s)
        buckets = (self._whole, self._bucket((source, ""), SOURCE, now_s), same)
        if all(each.has(now_s) for each in buckets):
            for each in buckets:
                each.take()
            return True
        self._left_out += 1
        if source in self._left_out_of or len(self._left_out_of) < SOURCES_COUNTED_MAX:
            self._left_out_of[source] += 1
        return False

    def left_out(self, now_s: float) -> LeftOut | None:
        """What was left out since it was asked last; None: nothing."""
        since_s, self._told_at_s = now_s - self._told_at_s, now_s
        if not self._left_out:
            return None
        ((source, of_source),) = self._left_out_of.most_common(1)
        found = LeftOut(self._left_out, source, of_source, since_s)
        self._left_out = 0
        self._left_out_of.clear()
        return found

    def _bucket(self, key: tuple[str, str], pace: Pace, now_s: float) -> Bucket:
        found = self._buckets.pop(key, None)
        if found is None:
            if len(self._buckets) >= REMEMBERED_MAX:
                del self._buckets[next(iter(self._buckets))]
            found = Bucket(pace, now_s)
        self._buckets[key] = found
        return found
