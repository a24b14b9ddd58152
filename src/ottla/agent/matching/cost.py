"""How many steps Python's `re` can take at most, by the length of what it looks at.

`re` tries one way after another. How many there are is counted on its own syntax tree: a repetition
that may end at many places multiplies what follows it, unless what follows begins with a character
that the repetition cannot have (`\\S+ `), for then there is one place. What is not understood has
no bound. The bound is never too low; it is often too high, which costs time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import inf
from typing import Any

STEPS_MAX = 30_000_000  # a tenth of a second, or two
SUBJECT_MAX = 1 << 27
NO_BOUND = -1

parser: Any = import_module("re._parser")
compiler: Any = import_module("re._compiler")
codes: Any = import_module("re._constants")

SINGLE = {codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN}
REPEATS = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}
BEGINNINGS = {codes.AT_BEGINNING, codes.AT_BEGINNING_STRING}
OTHERS = 1 << 256  # in a set of characters: all those that are not in Latin-1
ALL = 2 * OTHERS - 1
NEWLINE = 1 << 10
AFTER_ITERATIONS_MAX = 1000  # of a repetition of what has several ways itself

Item = tuple[Any, Any]


@dataclass(frozen=True)
class Follow:
    """What comes behind an item: the characters that it may begin with. With `accepts` nothing
    behind can fail any more: there is no second way."""

    characters: int
    accepts: bool = False


NOTHING = Follow(0)  # the end of the text
ANYTHING = Follow(ALL)
ACCEPTED = Follow(0, accepts=True)


@cache
def subject_max(pattern: str | bytes, flags: int, *, whole: bool) -> int:
    """The longest text for which a search takes STEPS_MAX steps at most; `whole` is a match of all
    of the text. NO_BOUND if none is known. The pattern must be one that compiles."""
    tree = parser.parse(pattern, flags)
    analysis = Analysis(tree.state)
    items = flattened(tree)
    if items is None:
        return NO_BOUND
    longest = NO_BOUND
    length = 16
    while length <= SUBJECT_MAX and analysis.steps(items, length, whole=whole) <= STEPS_MAX:
        longest = length
        length = length * 3 // 2
    return longest


def flattened(tree: Any) -> list[Item] | None:
    """The items of a sequence, those of its groups among them. None for groups with flags."""
    items: list[Item] = []
    for code, value in tree:
        if code is not codes.SUBPATTERN:
            items.append((code, value))
            continue
        _, added, removed, inner = value
        found = None if added or removed else flattened(inner)
        if found is None:
            return None
        items += found
    return items


class Analysis:
    def __init__(self, state: Any) -> None:
        self._state = state
        self._flags = state.flags
        self._sets: dict[str, int] = {}

    def steps(self, items: Sequence[Item], length: int, *, whole: bool) -> float:
        code, value = items[0] if items else (None, None)
        multiline = self._flags & re.MULTILINE and value is codes.AT_BEGINNING
        anchored = whole or (code is codes.AT and value in BEGINNINGS and not multiline)
        follow = NOTHING if whole else ACCEPTED
        _, steps = self._sequence(items, length, follow, places=0 if anchored else 1)
        return steps + length

    def _sequence(
        self, items: Sequence[Item], length: int, follow: Follow, places: int = 0
    ) -> tuple[float, float]:
        """In how many ways it matches from one place on, and the steps for all of them.

        `places` is the number of repetitions before it that may end anywhere: k of them share the
        text in (n + k over k) ways.
        """
        ways: float = length + 1 if places else 1
        steps: float = ways
        for index, item in enumerate(items):
            behind = self._behind(items, index + 1, follow)
            code, value = item
            if code in REPEATS and self._is_single(value[2]):
                low, high, inner = value
                several = min(high - low + 1, length + 1) if high != codes.MAXREPEAT else length + 1
                shared = (length + places + 1) / (places + 1)
                all_ways = ways * min(several, shared)
                steps += ways * min(low, length) + 2 * all_ways
                if code is not codes.POSSESSIVE_REPEAT and not self._ends_in_one_place(
                    self._characters(inner[0]), behind
                ):
                    ways = all_ways
                    places += several > shared
                continue
            its_ways, its_steps = self._item(code, value, length, behind)
            steps += ways * its_steps
            ways *= its_ways
        return ways, steps

    def _item(self, code: Any, value: Any, length: int, behind: Follow) -> tuple[float, float]:
        if code in SINGLE or code is codes.AT:
            return 1, 1
        if code is codes.BRANCH:
            return self._branch(value[1], length, behind)
        if code in REPEATS:
            return self._repeat(code, value, length, behind)
        if code in (codes.ASSERT, codes.ASSERT_NOT, codes.ATOMIC_GROUP):
            inner = flattened(value if code is codes.ATOMIC_GROUP else value[1])
            return (1, inf if inner is None else self._sequence(inner, length, ACCEPTED)[1])
        if code is codes.GROUPREF:
            return 1, length + 1
        return inf, inf

    def _branch(self, branches: Sequence[Any], length: int, behind: Follow) -> tuple[float, float]:
        all_ways: float = 0
        most: float = 0
        steps: float = 1
        taken = 0
        disjoint = True
        for branch in branches:
            items = flattened(branch)
            if items is None:
                return inf, inf
            its_ways, its_steps = self._sequence(items, length, behind)
            all_ways += its_ways
            most = max(most, its_ways)
            steps += its_steps
            first = self._behind(items, 0, ANYTHING).characters
            disjoint = disjoint and not first & taken
            taken |= first
        return (1 if behind.accepts else most if disjoint else all_ways), steps

    def _repeat(self, code: Any, value: Any, length: int, behind: Follow) -> tuple[float, float]:
        _, high, inner = value
        items = flattened(inner)
        if items is None:
            return inf, inf
        first, can_be_empty = self._first(items)
        if can_be_empty:
            return inf, inf
        again = Follow(first | behind.characters)
        its_ways, its_steps = self._sequence(items, length, again)
        most = min(high, length) if high != codes.MAXREPEAT else length
        if its_ways <= 1:
            one_place = code is codes.POSSESSIVE_REPEAT or self._ends_in_one_place(first, behind)
            return 1 if one_place else most + 1, (most + 1) * its_steps
        if most > AFTER_ITERATIONS_MAX:
            return inf, inf
        ways: float = 1
        steps: float = 0
        total: float = 0
        for _ in range(most + 1):
            total += ways
            steps += ways * its_steps
            ways *= its_ways
            if ways > STEPS_MAX:
                return inf, inf
        return 1 if behind.accepts else total, steps

    @staticmethod
    def _ends_in_one_place(characters: int, behind: Follow) -> bool:
        return behind.accepts or not characters & behind.characters

    def _behind(self, items: Sequence[Item], start: int, follow: Follow) -> Follow:
        first, can_be_empty = self._first(items[start:])
        if not can_be_empty:
            return Follow(first)
        return ACCEPTED if follow.accepts else Follow(first | follow.characters)

    def _first(self, items: Sequence[Item]) -> tuple[int, bool]:
        """The characters that a sequence may begin with, and whether it may have none."""
        found = 0
        for code, value in items:
            if code in SINGLE:
                return found | self._characters((code, value)), False
            if code is codes.AT and value is codes.AT_END and not self._flags & re.MULTILINE:
                return found | NEWLINE, False  # the end, or before the newline that is the last
            if code is codes.AT and value is codes.AT_END_STRING:
                return found, False
            if code in REPEATS:
                inner = flattened(value[2])
                if inner is None:
                    return ALL, False
                first, can_be_empty = self._first(inner)
                found |= first
                if value[0] > 0 and not can_be_empty:
                    return found, False
                continue
            if code is codes.BRANCH:
                can_be_empty = False
                for branch in value[1]:
                    inner = flattened(branch)
                    first, empty = (ALL, False) if inner is None else self._first(inner)
                    found |= first
                    can_be_empty = can_be_empty or empty
                if not can_be_empty:
                    return found, False
                continue
            return ALL, False  # what may fail without a character, or is not understood
        return found, True

    def _is_single(self, tree: Any) -> bool:
        return len(tree) == 1 and tree[0][0] in SINGLE

    def _characters(self, item: Item) -> int:
        """The set of what a single character may be, asked of `re` itself."""
        key = repr(item)
        if key not in self._sets:
            one = compiler.compile(parser.SubPattern(self._state, [item]), self._flags)
            is_text = isinstance(self._state.str, str)
            found = 0
            for number in range(256):
                character: Any = chr(number) if is_text else bytes([number])
                if one.fullmatch(character):
                    found |= 1 << number
            self._sets[key] = found | (OTHERS if self._has_others(item) else 0)
        return self._sets[key]

    def _has_others(self, item: Item) -> bool:
        code, value = item
        if self._flags & re.IGNORECASE:
            return True
        if code is codes.LITERAL:
            return bool(value >= 256)
        if code is not codes.IN:
            return True
        for inner_code, inner in value:
            if inner_code is codes.LITERAL:
                others = inner >= 256
            elif inner_code is codes.RANGE:
                others = inner[1] >= 256
            else:
                others = not (self._flags & re.ASCII and inner in ASCII_CATEGORIES)
            if others:
                return True
        return False


ASCII_CATEGORIES = {codes.CATEGORY_DIGIT, codes.CATEGORY_SPACE, codes.CATEGORY_WORD}
