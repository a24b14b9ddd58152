"""RE2's language of patterns, read into a tree; patterns.py makes it run.

Left out, and refused: scripts in `\\p{…}` (categories are there), `\\C`, and octal numbers.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

PATTERN_CHARACTERS_MAX = 4_096
REPEAT_MAX = 1_000  # RE2's own
DEPTH_MAX = 100

BEGIN, END, BEGIN_LINE, END_LINE, BOUNDARY, NOT_BOUNDARY = (
    "begin", "end", "begin line", "end line", "boundary", "not boundary",
)  # fmt: skip
Fits = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern cannot be understood."""


class OneOf(NamedTuple):
    """One character that `fits`."""

    fits: Fits


class Check(NamedTuple):
    """Nothing, at a certain place."""

    kind: str


class Sequence(NamedTuple):
    """One after the other."""

    parts: list[Node]


class Alternatives(NamedTuple):
    """One of these."""

    parts: list[Node]


class Repeat(NamedTuple):
    """A part so many times; `high` None is without end."""

    part: Node
    low: int
    high: int | None


Node = OneOf | Check | Sequence | Alternatives | Repeat

HEXADECIMAL = "0123456789abcdefABCDEF"
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
PLACES = {"A": BEGIN, "z": END, "b": BOUNDARY, "B": NOT_BOUNDARY}
ASCII: dict[str, Fits] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in "\t\n\f\r ",
}
NAMED: dict[str, Fits] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": lambda c: c.isascii(),
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": ASCII["d"],
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": ASCII["w"],
    "xdigit": lambda c: c in HEXADECIMAL,
}


def parse(text: str) -> Node:
    """The tree of a pattern."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"a pattern may have {PATTERN_CHARACTERS_MAX} characters")
    parser = Parser(text)
    found = parser.alternatives(0)
    if not parser.ended:
        raise PatternError("a ) without its (")
    return found


class Parser:
    """Reads a pattern from left to right; flags hold until their group ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.flags: frozenset[str] = frozenset()
        self.names: set[str] = set()

    @property
    def ended(self) -> bool:
        return self.position >= len(self.text)

    def next(self) -> str:
        if self.ended:
            raise PatternError("the pattern ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def take(self, wanted: str) -> bool:
        """Go over `wanted` if it is next."""
        if not self.text.startswith(wanted, self.position):
            return False
        self.position += len(wanted)
        return True

    def until(self, end: str) -> str:
        stop = self.text.find(end, self.position)
        if stop < 0:
            raise PatternError(f"a {end} is missing")
        found = self.text[self.position : stop]
        self.position = stop + len(end)
        return found

    # What stands beside and behind each other

    def alternatives(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise PatternError("too many groups within each other")
        parts = [self.sequence(depth)]
        while self.take("|"):
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Alternatives(parts)

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.ended and self.text[self.position] not in "|)":
            found = self.piece(depth)
            parts += found.parts if isinstance(found, Sequence) else [found]
        return parts[0] if len(parts) == 1 else Sequence(parts)

    def piece(self, depth: int) -> Node:
        """One thing and how often it comes."""
        found = self.thing(depth)
        repeated = self.repetition()
        if repeated is None:
            return found
        self.take("?")  # as few as possible: the same when all of a text must fit
        if self.repetition() is not None:
            raise PatternError("a repetition of a repetition")
        if not isinstance(found, Sequence):
            return Repeat(found, *repeated)
        if not found.parts:
            raise PatternError("there is nothing to repeat")
        return Sequence([*found.parts[:-1], Repeat(found.parts[-1], *repeated)])  # of \Q…\E

    def repetition(self) -> tuple[int, int | None] | None:
        for sign, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(sign):
                return low, high
        if self.ended or self.text[self.position] != "{":
            return None
        begin = self.position + 1
        end = self.text.find("}", begin)
        low_text, comma, high_text = self.text[begin : max(end, begin)].partition(",")
        if end < 0 or not low_text.isdecimal() or (high_text and not high_text.isdecimal()):
            return None  # a brace that means itself
        self.position = end + 1
        low = int(low_text[:5])
        high = int(high_text[:5]) if high_text else None if comma else low
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise PatternError(f"a repetition of {{{self.text[begin:end]}}}")
        return low, high

    # One thing

    def thing(self, depth: int) -> Node:
        if self.repetition() is not None:
            raise PatternError("there is nothing to repeat")
        sign = self.next()
        if sign == "(":
            return self.group(depth)
        if sign == "[":
            return OneOf(self.cased(self.character_class()))
        if sign == ".":
            return OneOf(lambda c: True) if "s" in self.flags else OneOf(lambda c: c != "\n")
        if sign == "^":
            return Check(BEGIN_LINE if "m" in self.flags else BEGIN)
        if sign == "$":
            return Check(END_LINE if "m" in self.flags else END)
        if sign == "\\":
            return self.escape()
        return self.literal(sign)

    def literal(self, character: str) -> Node:
        return OneOf(self.cased(lambda c: c == character))

    def cased(self, fits: Fits) -> Fits:
        if "i" not in self.flags:
            return fits
        return lambda c: fits(c) or fits(c.lower()) or fits(c.upper())

    def group(self, depth: int) -> Node:
        before = self.flags
        if self.take("?"):
            if self.take("P<") or self.take("<"):
                name = self.until(">")
                if not name.isidentifier() or name in self.names:
                    raise PatternError(f"{name!r} is no name for a group, or not a new one")
                self.names.add(name)
            elif self.read_flags():
                return Sequence([])
        found = self.alternatives(depth + 1)
        if not self.take(")"):
            raise PatternError("a ( without its )")
        self.flags = before
        # Kept apart from what stands around it: a repetition means all of it.
        return Alternatives([found]) if isinstance(found, Sequence) else found

    def read_flags(self) -> bool:
        """`i-s:` or `i-s)`: whether they end with the bracket, and so hold for what follows."""
        on = True
        while True:
            sign = self.next()
            if sign in ":)":
                return sign == ")"
            if sign == "-" and on:
                on = False
            elif sign in "imsU":
                self.flags = self.flags | {sign} if on else self.flags - {sign}
            else:
                raise PatternError(f"(?{sign} is not in this language")

    def escape(self) -> Node:
        if self.take("Q"):
            stop = self.text.find("\\E", self.position)
            stop = len(self.text) if stop < 0 else stop
            quoted = self.text[self.position : stop]
            self.position = min(stop + 2, len(self.text))
            return Sequence([self.literal(each) for each in quoted])
        sign = self.text[self.position : self.position + 1]
        if sign in PLACES:
            self.position += 1
            return Check(PLACES[sign])
        found = self.escaped()
        return self.literal(found) if isinstance(found, str) else OneOf(self.cased(found))

    def escaped(self) -> str | Fits:
        """What follows a backslash, also inside of a class: a character, or many."""
        sign = self.next()
        if sign.lower() in ASCII:
            return opposite(ASCII[sign.lower()], sign.isupper())
        if sign in "pP":
            name = self.until("}") if self.take("{") else self.next()
            negated = name.startswith("^")
            return opposite(in_category(name.removeprefix("^")), (sign == "P") is not negated)
        if sign in ESCAPED:
            return ESCAPED[sign]
        if sign == "x":
            digits = self.until("}") if self.take("{") else self.next() + self.next()
            if not all(each in HEXADECIMAL for each in digits) or not 1 <= len(digits) <= 6:
                raise PatternError(f"\\x{digits} is no character")
            number = int(digits, 16)
            if number > sys.maxunicode:
                raise PatternError(f"there is no character {number:#x}")
            return chr(number)
        if not sign.isascii() or sign.isalnum():
            raise PatternError(f"\\{sign} is not in this language")
        return sign

    def character_class(self) -> Fits:
        negated = self.take("^")
        kinds: list[Fits] = []
        ranges: list[tuple[str, str]] = []
        first = True
        while first or not self.take("]"):
            if self.text.find(":]", self.position + 2) > 0 and self.take("[:"):
                kinds.append(self.named_class())
            else:
                low = self.member()
                if not isinstance(low, str):
                    kinds.append(low)
                else:
                    ranges.append((low, self.end_of_range(low)))
            first = False

        def fits(c: str) -> bool:
            found = any(low <= c <= high for low, high in ranges) or any(k(c) for k in kinds)
            return found is not negated

        return fits

    def named_class(self) -> Fits:
        name = self.until(":]")
        found = NAMED.get(name.removeprefix("^"))
        if found is None:
            raise PatternError(f"there is no class [:{name}:]")
        return opposite(found, name.startswith("^"))

    def member(self) -> str | Fits:
        sign = self.next()
        return self.escaped() if sign == "\\" else sign

    def end_of_range(self, low: str) -> str:
        ahead = self.text[self.position : self.position + 2]
        if len(ahead) < 2 or ahead[0] != "-" or ahead[1] == "]":
            return low
        self.position += 1
        high = self.member()
        if not isinstance(high, str) or high < low:
            raise PatternError(f"{low}-{high} is no range")
        return high


CATEGORIES = {
    "C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps",
}  # fmt: skip


def opposite(fits: Fits, yes: bool) -> Fits:
    return (lambda c: not fits(c)) if yes else fits


def in_category(name: str) -> Fits:
    """A category of Unicode: L, Lu, Nd …"""
    if len(name) not in (1, 2) or name[0] not in CATEGORIES or name[1:] not in CATEGORIES[name[0]]:
        raise PatternError(f"there is no category {name!r} here")
    return lambda c: unicodedata.category(c).startswith(name)
