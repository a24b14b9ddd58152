"""Patterns sent by clients, matched in bounded time: RE2's language, as Kafka's brokers have it.

Python's `re` tries one way after the other, and a hostile pattern makes that take for ever. Here a
pattern becomes a small program of which all ways are followed at once (Thompson), step by step with
the text, and each set of ways is remembered with where a character leads from it, so that a text
costs one look-up a character once the pattern is warm. What cannot be done so (back-references,
looking ahead) is not in the language, in RE2 neither. `Pattern.matches` means the whole text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .pattern_parser import (
    BEGIN,
    BEGIN_LINE,
    BOUNDARY,
    END,
    END_LINE,
    NOT_BOUNDARY,
    Alternatives,
    Check,
    Fits,
    Node,
    OneOf,
    PatternError,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["Pattern", "PatternError", "PatternTooComplex"]

PROGRAM_STEPS_MAX = 10_000  # of one pattern; RE2/J has a limit on repetition for the same reason
WORK_MAX = 200_000  # steps followed for one pattern in all, some 50 ms; what is remembered is free
STATES_MAX = 2_000  # sets of ways that are remembered

# What stands before a place in the text.
START, WORD, OTHER, NEWLINE = range(4)


class Step(NamedTuple):
    """One of three: a character that fits; a check that holds; or a fork to other steps."""

    fits: Fits | None = None
    check: str = ""
    targets: tuple[int, ...] = ()


class PatternTooComplex(PatternError):
    """It would take too long."""


class State:
    """A set of ways that are still open, and what stands before this place in the text."""

    __slots__ = ("before", "following", "places", "whole")

    def __init__(self, places: frozenset[int], before: int) -> None:
        self.places = places
        self.before = before
        self.following: dict[str, State] = {}
        self.whole: bool | None = None  # whether the text may end here


class Pattern:
    """A pattern, ready to be matched; raises `PatternError` if it cannot be understood."""

    def __init__(self, text: str) -> None:
        self._program: list[Step] = []
        self._emit(parse(text))
        self._end = self._add()
        self._states: dict[tuple[frozenset[int], int], State] = {}
        self._first = self._state(frozenset((0,)), START)
        self._work = 0

    def matches(self, text: str) -> bool:
        """Whether the whole text fits."""
        state = self._first
        for character in text:
            following = state.following.get(character)
            if following is None:
                following = self._follow(state, character)
            state = following
            if not state.places:
                return False
        if state.whole is None:
            state.whole = self._end in self._open(state, None)
        return state.whole

    # The program

    def _add(self, fits: Fits | None = None, check: str = "") -> int:
        if len(self._program) >= PROGRAM_STEPS_MAX:
            raise PatternTooComplex("the pattern is too large")
        self._program.append(Step(fits, check))
        return len(self._program) - 1

    def _go(self, place: int, *targets: int) -> None:
        self._program[place] = Step(targets=targets)

    def _emit(self, node: Node) -> None:
        if isinstance(node, OneOf):
            self._add(node.fits)
        elif isinstance(node, Check):
            self._add(check=node.kind)
        elif isinstance(node, Sequence):
            for each in node.parts:
                self._emit(each)
        elif isinstance(node, Alternatives):
            self._emit_alternatives(node)
        else:
            self._emit_repeat(node)

    def _emit_alternatives(self, node: Alternatives) -> None:
        begin = self._add()
        starts, ends = [], []
        for each in node.parts:
            starts.append(len(self._program))
            self._emit(each)
            ends.append(self._add())
        self._go(begin, *starts)
        for end in ends:
            self._go(end, len(self._program))

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.low):
            self._emit(node.part)
        forks = []
        for _ in range(1 if node.high is None else node.high - node.low):
            forks.append(self._add())
            self._emit(node.part)
        if node.high is None:
            self._go(self._add(), forks[0])
        for fork in forks:
            self._go(fork, fork + 1, len(self._program))

    # The text

    def _state(self, places: frozenset[int], before: int) -> State:
        found = self._states.get((places, before))
        if found is None:
            if len(self._states) >= STATES_MAX:
                raise PatternTooComplex("the pattern has too many ways to go")
            found = self._states[places, before] = State(places, before)
        return found

    def _follow(self, state: State, character: str) -> State:
        places = frozenset(
            place + 1
            for place in self._open(state, character)
            if (fits := self._program[place].fits) is not None and fits(character)
        )
        found = self._state(places, kind_of(character))
        state.following[character] = found
        return found

    def _open(self, state: State, character: str | None) -> set[int]:
        """All places that can be reached without a character, before this one (None: the end)."""
        found: set[int] = set()
        waiting = list(state.places)
        while waiting:
            place = waiting.pop()
            if place in found:
                continue
            found.add(place)
            self._work += 1
            if self._work > WORK_MAX:
                raise PatternTooComplex("the pattern takes too long")
            step = self._program[place]
            waiting += step.targets
            if step.check and CHECKS[step.check](state.before, character):
                waiting.append(place + 1)
        return found


def kind_of(character: str) -> int:
    if character == "\n":
        return NEWLINE
    return WORD if character == "_" or (character.isascii() and character.isalnum()) else OTHER


def at_boundary(before: int, character: str | None) -> bool:
    return (before == WORD) is not (character is not None and kind_of(character) == WORD)


# Whether nothing fits between what is before and the next character.
CHECKS: dict[str, Callable[[int, str | None], bool]] = {
    BEGIN: lambda before, character: before == START,
    END: lambda before, character: character is None,
    BEGIN_LINE: lambda before, character: before in (START, NEWLINE),
    END_LINE: lambda before, character: character is None or character == "\n",
    BOUNDARY: at_boundary,
    NOT_BOUNDARY: lambda before, character: not at_boundary(before, character),
}
